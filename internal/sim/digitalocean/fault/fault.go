// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault decides which requests fail, and how.
//
// A rule is either scripted (the third POST to a route) or random (one PUT in twenty). Whether a random rule strikes the
// n-th request of a route depends on the seed, the rule, the route and n only: runs with one seed fail alike, even if
// requests to different routes arrive in another order.
//
// It holds no clock and no lock: the caller calls from one goroutine at a time.
package fault

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Kind is a way to fail.
type Kind string

// The ways to fail. "Applied" means that the request was processed although the client cannot know.
const (
	// Delay makes the response late by Rule.Delay and up to Rule.Jitter more; everything else is as it would be.
	Delay Kind = "delay"
	// Reset resets the connection before the request is processed.
	Reset Kind = "reset"
	// CutAfterApply applies the request, then resets the connection without a response.
	CutAfterApply Kind = "cut-after-apply"
	// Hang never answers: the client gives up. Nothing is applied.
	Hang Kind = "hang"
	// HangAfterApply applies the request, then never answers.
	HangAfterApply Kind = "hang-after-apply"
	// Error answers with Rule.Status (500 if zero) and an error in JSON. Nothing is applied.
	Error Kind = "error"
	// ErrorAfterApply applies the request, then answers as Error does.
	ErrorAfterApply Kind = "error-after-apply"
	// ProxyError responds with 502 with a page of HTML, as a proxy before the API does. Nothing is applied.
	ProxyError Kind = "proxy-error"
	// TruncatedJSON applies the request and answers with the first half of the JSON, as if that were all.
	TruncatedJSON Kind = "truncated-json"
	// ShortBody applies the request and resets the connection in the middle of the body.
	ShortBody Kind = "short-body"
	// TooManyRequests responds with 429 although no limit is reached; retry-after is Rule.Delay, absent if zero. Nothing is applied.
	TooManyRequests Kind = "too-many-requests"
	// OmitItems leaves items out of a list, each with a chance of Rule.Fraction; the total stays as it is.
	OmitItems Kind = "omit-items"
	// HideItems is OmitItems with a total that agrees: nothing in the list shows that it is not whole.
	HideItems Kind = "hide-items"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		Delay, Reset, CutAfterApply, Hang, HangAfterApply, Error, ErrorAfterApply, ProxyError, TruncatedJSON, ShortBody, TooManyRequests,
		OmitItems, HideItems,
	}
}

// Applies reports whether a request is processed in spite of the fault.
func (k Kind) Applies() bool {
	switch k {
	case Reset, Hang, Error, ProxyError, TooManyRequests:
		return false
	default:
		return true
	}
}

// Rule returns which requests fail and how.
type Rule struct {
	// Route is a method and the pattern of a path, "POST /v2/load_balancers" or "GET /v2/droplets/{droplet_id}". A trailing *
	// stands for any ending: "GET *", "PUT /v2/load_balancers*". Empty means every request.
	Route string `json:"route,omitempty"`
	// Kind says what happens.
	Kind Kind `json:"kind"`
	// Nth makes the rule scripted: it strikes the Nth request that matches it, counted from 1 since the rule was added.
	Nth int `json:"nth,omitempty"`
	// Times is how many requests a scripted rule strikes from the Nth on, 1 if zero, all of them if negative.
	Times int `json:"times,omitempty"`
	// Probability makes the rule random: it strikes each request that matches it with this chance, from 0 to 1.
	Probability float64 `json:"probability,omitempty"`
	// Status and Message are the response's of Error and ErrorAfterApply.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay and Jitter belong to Delay; Delay is also the retry-after of TooManyRequests.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// Fraction is the chance of each item to be left out by OmitItems and HideItems, 0.5 if zero.
	Fraction float64 `json:"fraction,omitempty"`
}

func (r Rule) validate() error {
	known := false
	for _, kind := range Kinds() {
		known = known || kind == r.Kind
	}
	switch {
	case !known:
		return fmt.Errorf("fault kind %q is unknown: use one of %v", r.Kind, Kinds())
	case r.Nth < 0:
		return fmt.Errorf("nth is %d: requests are counted from 1", r.Nth)
	case r.Probability < 0 || r.Probability > 1:
		return fmt.Errorf("probability is %v: it must be between 0 and 1", r.Probability)
	case (r.Nth == 0) == (r.Probability == 0):
		return fmt.Errorf("fault %q needs either nth or probability", r.Kind)
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return fmt.Errorf("status is %d: an error's status is between 400 and 599", r.Status)
	}
	return nil
}

func (r Rule) matches(route string) bool {
	if prefix, wild := strings.CutSuffix(r.Route, "*"); wild {
		return strings.HasPrefix(route, prefix)
	}
	return r.Route == "" || r.Route == route
}

// Decision is what happens to one request.
type Decision struct {
	// Delay is how late the response is.
	Delay time.Duration
	// Fault is what else happens; its Kind is empty if nothing does.
	Fault Rule
	// Random is the source for what the fault leaves open, nil if nothing happens.
	Random *rand.Rand
}

// Injector holds rules and counts the requests that they match.
type Injector struct {
	seed  uint64
	rules []*active
}

type active struct {
	Rule
	index  uint64
	total  int            // matching requests, for scripted rules
	routes map[string]int // matching requests by route, for random rules
}

// NewInjector returns an injector without rules.
func NewInjector(seed uint64) *Injector {
	return &Injector{seed: seed}
}

// Add appends rules, or none if one of them is wrong. Of several rules that strike one request the first decides, except that
// delays add up.
func (i *Injector) Add(rules ...Rule) error {
	for n, rule := range rules {
		if err := rule.validate(); err != nil {
			return fmt.Errorf("adding fault %d: %w", n, err)
		}
	}
	for _, rule := range rules {
		i.rules = append(i.rules, &active{Rule: rule, index: uint64(len(i.rules)), routes: map[string]int{}})
	}
	return nil
}

// Clear removes all rules.
func (i *Injector) Clear() { i.rules = nil }

// Rules returns the rules in the order in which they were added.
func (i *Injector) Rules() []Rule {
	rules := make([]Rule, 0, len(i.rules))
	for _, rule := range i.rules {
		rules = append(rules, rule.Rule)
	}
	return rules
}

// Decide counts a request to a route and says what happens to it.
func (i *Injector) Decide(route string) Decision {
	var decision Decision
	for _, rule := range i.rules {
		if !rule.matches(route) {
			continue
		}
		random := rule.source(i.seed, route)
		switch {
		case !rule.strikes(random):
		case rule.Kind == Delay:
			decision.Delay += rule.Delay
			if rule.Jitter > 0 {
				decision.Delay += time.Duration(random.Int64N(int64(rule.Jitter)))
			}
		case decision.Fault.Kind == "":
			decision.Fault, decision.Random = rule.Rule, random
		}
	}
	return decision
}

// source counts the request and returns the chance that belongs to it alone.
func (a *active) source(seed uint64, route string) *rand.Rand {
	a.total++
	a.routes[route]++
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%d %s %d", a.index, route, a.routes[route])
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

func (a *active) strikes(random *rand.Rand) bool {
	if a.Nth == 0 {
		return random.Float64() < a.Probability
	}
	times := a.Times
	if times == 0 {
		times = 1
	}
	return a.total >= a.Nth && (times < 0 || a.total < a.Nth+times)
}

// Storm returns random rules of every kind that a client can get over by itself, each with this chance: what a bad day looks
// like. Writes are cut before and after they are applied; reads are cut, late, incomplete and refused. Hanging is left out,
// since it costs real time. A chance of 0 is not a rule at all.
func Storm(probability float64) []Rule {
	if probability <= 0 {
		return nil
	}
	rules := []Rule{{Route: "GET *", Kind: OmitItems, Probability: probability, Fraction: 0.3}}
	for _, kind := range []Kind{Reset, CutAfterApply, Error, ErrorAfterApply, ProxyError, TruncatedJSON, ShortBody} {
		rules = append(rules, Rule{Kind: kind, Probability: probability})
	}
	return append(rules,
		Rule{Kind: Error, Status: 503, Probability: probability},
		Rule{Kind: TooManyRequests, Delay: time.Second, Probability: probability},
	)
}
