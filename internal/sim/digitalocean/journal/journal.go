// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal remembers the requests that a simulator served, so that a test can count what a program did rather than
// what it meant to do.
//
// Counters cover everything since the start or the last reset. Entries are kept up to a number; the oldest go first.
// It holds no clock and no lock: the caller says what time it is and calls from one goroutine at a time.
package journal

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// DefaultKeep is how many entries are kept if nothing else is asked for.
const DefaultKeep = 4096

// Entry is one request and what became of it.
type Entry struct {
	// Number counts requests from 1 in the order of their arrival.
	Number uint64 `json:"number"`
	// Time is when the request arrived.
	Time time.Time `json:"time"`
	// Account is the name of the account whose token was used, empty if the token is unknown.
	Account string `json:"account,omitempty"`
	// Route is the method and the pattern of the path: "GET /v2/droplets/{droplet_id}". It is the method and "unknown" if no
	// route matched.
	Route string `json:"route"`
	// Method and URL are as they were sent; URL has the path and the query.
	Method string `json:"method"`
	URL    string `json:"url"`
	// Status is the response's, 0 if no response was sent.
	Status int `json:"status"`
	// Applied reports that the request was processed, whatever the client saw of it.
	Applied bool `json:"applied"`
	// Fault is the kind of the injected fault, empty if there was none.
	Fault string `json:"fault,omitempty"`
	// Body is the request's, kept for requests that write; a body that is not JSON is kept as a JSON string.
	Body json.RawMessage `json:"body,omitempty"`
}

// RouteStats counts the requests of one route.
type RouteStats struct {
	Count int `json:"count"`
	// Statuses counts responses by status; 0 stands for none.
	Statuses map[int]int `json:"statuses"`
}

// Stats is what was counted.
type Stats struct {
	Total  int                   `json:"total"`
	Routes map[string]RouteStats `json:"routes"`
	// MaxInFlight is the largest number of requests that were being served at one time.
	MaxInFlight int `json:"maxInFlight"`
	// PeakPerMinute is the largest number of requests that arrived within any 60 seconds.
	PeakPerMinute int `json:"peakPerMinute"`
}

// Count adds up the requests of all routes that begin with prefix: a method ("PUT"), a method and a path
// ("GET /v2/droplets"), or nothing for all.
func (s Stats) Count(prefix string) int {
	total := 0
	for route, stats := range s.Routes {
		if strings.HasPrefix(route, prefix) {
			total += stats.Count
		}
	}
	return total
}

// Writes adds up the requests that are not GET.
func (s Stats) Writes() int { return s.Total - s.Count("GET ") }

// Filter selects entries. Fields that are zero select everything.
type Filter struct {
	// Route is a prefix of Entry.Route.
	Route string
	// After selects entries with a larger number.
	After uint64
	// Account is the name of an account.
	Account string
	// Fault selects entries with this fault.
	Fault string
}

func (f Filter) matches(e *Entry) bool {
	return e.Number > f.After && strings.HasPrefix(e.Route, f.Route) &&
		(f.Account == "" || e.Account == f.Account) && (f.Fault == "" || e.Fault == f.Fault)
}

// Journal is a list of entries and the counters alongside it.
type Journal struct {
	keep     int
	number   uint64
	entries  []Entry // a ring once it is full
	next     int     // where the ring is written next
	inFlight int
	stats    Stats
	minute   []time.Time // arrivals of the last 60 seconds
}

// New returns a journal that keeps this many entries: [DefaultKeep] if zero, none if negative.
func New(keep int) *Journal {
	if keep == 0 {
		keep = DefaultKeep
	}
	j := &Journal{keep: max(keep, 0)}
	j.stats.Routes = map[string]RouteStats{}
	return j
}

// Begin notes the arrival of a request and returns its number.
func (j *Journal) Begin(now time.Time) uint64 {
	j.number++
	j.inFlight++
	j.stats.MaxInFlight = max(j.stats.MaxInFlight, j.inFlight)
	expired := 0
	for expired < len(j.minute) && !j.minute[expired].Add(time.Minute).After(now) {
		expired++
	}
	j.minute = append(slices.Delete(j.minute, 0, expired), now)
	j.stats.PeakPerMinute = max(j.stats.PeakPerMinute, len(j.minute))
	return j.number
}

// End notes what became of a request that began.
func (j *Journal) End(e Entry) {
	j.inFlight--
	j.stats.Total++
	route := j.stats.Routes[e.Route]
	if route.Statuses == nil {
		route.Statuses = map[int]int{}
	}
	route.Count++
	route.Statuses[e.Status]++
	j.stats.Routes[e.Route] = route
	switch {
	case j.keep == 0:
	case len(j.entries) < j.keep:
		j.entries = append(j.entries, e)
	default:
		j.entries[j.next] = e
		j.next = (j.next + 1) % j.keep
	}
}

// Entries returns copies of the kept entries that the filter selects, in the order of their arrival.
func (j *Journal) Entries(f Filter) []Entry {
	var selected []Entry
	for i := range j.entries {
		if f.matches(&j.entries[i]) {
			selected = append(selected, j.entries[i])
		}
	}
	slices.SortFunc(selected, func(a, b Entry) int { return cmp.Compare(a.Number, b.Number) })
	return selected
}

// Stats returns a copy of the counters.
func (j *Journal) Stats() Stats {
	stats := j.stats
	stats.Routes = make(map[string]RouteStats, len(j.stats.Routes))
	for route, s := range j.stats.Routes {
		s.Statuses = maps.Clone(s.Statuses)
		stats.Routes[route] = s
	}
	return stats
}

// Number returns the number of the last request that arrived.
func (j *Journal) Number() uint64 { return j.number }

// Reset forgets entries and counters. Requests that are being served stay in flight, and numbers go on.
func (j *Journal) Reset() {
	j.entries, j.next, j.minute = nil, 0, nil
	j.stats = Stats{Routes: map[string]RouteStats{}, MaxInFlight: j.inFlight}
}
