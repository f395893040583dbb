// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// seen is what a client sees of a request.
type seen struct {
	status    int
	json      bool // the body is whole JSON
	cut       bool // the connection died before an answer
	short     bool // the body ended too early
	applied   bool
	requested int
}

// TestEachFault makes one POST fail in each way, without sockets and over a real connection, and looks at what the client sees and at what
// became true.
func TestEachFault(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fault.Kind]seen{
		"":                    {status: 202, json: true, applied: true},
		fault.Delay:           {status: 202, json: true, applied: true},
		fault.Reset:           {cut: true},
		fault.CutAfterApply:   {cut: true, applied: true},
		fault.Error:           {status: 500, json: true},
		fault.ErrorAfterApply: {status: 500, json: true, applied: true},
		fault.ProxyError:      {status: 502},
		fault.TruncatedJSON:   {status: 202, applied: true},
		fault.ShortBody:       {status: 202, short: true, applied: true},
		fault.TooManyRequests: {status: 429, json: true},
		fault.OmitItems:       {status: 202, json: true, applied: true},
	} {
		want.requested = 1
		for name, connect := range map[string]func(*testing.T, *Simulator) (http.RoundTripper, string){
			"in process": func(_ *testing.T, s *Simulator) (http.RoundTripper, string) { return s.Transport(), "http://api" },
			"over TCP": func(t *testing.T, s *Simulator) (http.RoundTripper, string) {
				t.Helper()
				server := httptest.NewServer(s.Handler())
				t.Cleanup(server.Close)
				return server.Client().Transport, server.URL
			},
		} {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				t.Parallel()
				s := New(Options{})
				if kind != "" {
					must.Do(t, s.Inject(fault.Rule{Route: "POST /v2/load_balancers", Kind: kind, Nth: 1}))
				}
				transport, base := connect(t, s)
				if got := look(t, s, transport, base); got != want {
					t.Errorf("seen: %+v, not %+v", got, want)
				}
				entries := s.Requests(journal.Filter{})
				if len(entries) != 1 || entries[0].Applied != want.applied || entries[0].Fault != faultName(kind) || entries[0].Status != want.status {
					t.Errorf("journal: %+v", entries)
				}
			})
		}
	}
}

func faultName(kind fault.Kind) string {
	if kind == fault.Delay {
		return "" // a delay of nothing
	}
	return string(kind)
}

func look(t *testing.T, s *Simulator, transport http.RoundTripper, base string) seen {
	t.Helper()
	body := must.Get(json.Marshal(balancer("web", nil))).Or(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v2/load_balancers", strings.NewReader(string(body)))
	must.Do(t, err)
	request.Header.Set("Authorization", "Bearer "+DefaultToken)
	var got seen
	response, err := transport.RoundTrip(request)
	if err != nil {
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("the connection died otherwise than by a reset: %v", err)
		}
		got.cut = true
	} else {
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		got.status, got.short, got.json = response.StatusCode, errors.Is(err, io.ErrUnexpectedEOF), json.Valid(text)
	}
	got.applied = len(s.Account("").LoadBalancers()) == 1
	got.requested = s.Stats().Total
	return got
}

// TestHanging: the client gives up; time passes in the bubble only.
func TestHanging(t *testing.T) {
	t.Parallel()
	for kind, applied := range map[fault.Kind]bool{fault.Hang: false, fault.HangAfterApply: true} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{Faults: []fault.Rule{{Kind: kind, Nth: 1}}})
			client := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
			request := must.Get(http.NewRequest(http.MethodPost, "http://api/v2/tags", strings.NewReader(`{"name":"a"}`))).Or(t)
			request.Header.Set("Authorization", "Bearer "+DefaultToken)
			before := time.Now()
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != time.Minute {
				t.Errorf("%s: %v after %s", kind, err, time.Since(before))
			}
			if got := len(s.State().Accounts[0].Tags) == 1; got != applied {
				t.Errorf("%s: applied is %v", kind, got)
			}
		})
	}
}

// TestLatency: delays are the clock's, whatever the client does meanwhile.
func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Latency: time.Second, Faults: []fault.Rule{{Kind: fault.Delay, Delay: 2 * time.Second, Nth: 2}}})
		get := func(ctx context.Context) error {
			request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://api/v2/account", nil)).Or(t)
			response, err := s.Transport().RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		}
		before := time.Now()
		must.Do(t, get(t.Context()))
		if took := time.Since(before); took != time.Second {
			t.Errorf("a request took %s", took)
		}
		must.Do(t, get(t.Context()))
		if took := time.Since(before); took != 4*time.Second {
			t.Errorf("two requests, one of them late, took %s", took)
		}
		must.Get(s.Account("").CreateDroplet(DropletSpec{Name: "node", BootAfter: new(500 * time.Millisecond)})).Or(t)
		if got := (&api{t: t, sim: s, token: DefaultToken}).listDroplets(""); got[0].Status != statusActive {
			t.Errorf("a droplet that booted while the request was under way is %s", got[0].Status)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that gave up: %v", err)
		}
		if entries := s.Requests(journal.Filter{Fault: "delay"}); len(entries) != 1 || entries[0].Number != 2 {
			t.Errorf("journal: %+v", entries)
		}
	})
}

func TestListsThatMissItems(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Faults: []fault.Rule{{Route: "GET /v2/droplets", Kind: fault.OmitItems, Nth: 1, Fraction: 1}}})
	a.droplet(DropletSpec{Name: "a"})
	a.droplet(DropletSpec{Name: "b"})
	if got := a.send("GET", "/v2/droplets", nil); !strings.Contains(got.body, `"droplets":[]`) || !strings.Contains(got.body, `"total":2`) {
		t.Errorf("a list that misses all: %s", got.body)
	}
	if got := a.listDroplets(""); len(got) != 2 {
		t.Errorf("the next list: %v", names(got))
	}
	must.Do(t, a.sim.Inject(fault.Rule{Route: "GET *", Kind: fault.HideItems, Nth: 1, Fraction: 1}))
	if got := a.send("GET", "/v2/droplets", nil); !strings.Contains(got.body, `"droplets":[]`) || !strings.Contains(got.body, `"total":0`) {
		t.Errorf("a list that hides all: %s", got.body)
	}
	must.Do(t, a.sim.Inject(fault.Rule{Route: "GET *", Kind: fault.OmitItems, Nth: 1}))
	for i := range 98 {
		a.droplet(DropletSpec{Name: fmt.Sprintf("n%d", i)})
	}
	if got := len(a.listDroplets("?per_page=200")); got < 25 || got > 75 {
		t.Errorf("a list that misses about half of 100 has %d", got)
	}
}

func TestErrorsAsWritten(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Faults: []fault.Rule{
		{Kind: fault.Error, Nth: 1, Status: 403, Message: busyMessage}, {Kind: fault.TooManyRequests, Nth: 2, Delay: 1500 * time.Millisecond},
		{Kind: fault.Error, Nth: 3, Status: 503},
	}})
	a.refused(403, "GET", "/v2/account", nil, busyMessage)
	if got := a.send("GET", "/v2/account", nil); got.status != 429 || got.header.Get("retry-after") != "2" {
		t.Errorf("%d %v", got.status, got.header)
	}
	a.refused(503, "GET", "/v2/account", nil, "service_unavailable")
	a.want(200, "GET", "/v2/account", nil, "", nil)
	must.Do(t, a.sim.Inject(fault.Rule{Kind: fault.Error, Nth: 1, Times: -1}))
	if got := a.sim.Faults(); len(got) != 4 {
		t.Errorf("faults: %+v", got)
	}
	a.sim.ClearFaults()
	a.want(200, "GET", "/v2/account", nil, "", nil)
	if err := a.sim.Inject(fault.Rule{}); err == nil {
		t.Error("a wrong rule was accepted")
	}
}

// TestViewsThatLag: with a list that is behind, what is created is found by ID before it is listed, and what is deleted is listed after it
// is 404; with GET behind, the reverse.
func TestViewsThatLag(t *testing.T) {
	t.Parallel()
	for _, late := range []Consistency{{List: 5 * time.Second}, {Get: 5 * time.Second}} {
		a := newAPI(t, Options{Consistency: late})
		expect := func(when string, current, behind bool) {
			t.Helper()
			byID := a.send("GET", "/v2/droplets/400000001", nil).status == 200
			listed := slices.Equal(names(a.listDroplets("")), []string{"node"}) && len(a.listDroplets("?name=node")) == 1
			if late.Get > 0 {
				byID, listed = listed, byID
			}
			if byID != current || listed != behind {
				t.Errorf("%+v, %s: the current view is %v, the other %v", late, when, byID, listed)
			}
		}
		a.droplet(DropletSpec{Name: "node"})
		expect("just created", true, false)
		a.clock.Step(5 * time.Second)
		expect("created a while ago", true, true)
		must.Do(t, a.sim.Account("").DeleteDroplet("node"))
		expect("just deleted", false, true)
		a.clock.Step(5 * time.Second)
		expect("deleted a while ago", false, false)
	}
}

func TestChangesAreSeenLate(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	a.sim.SetConsistency(Consistency{List: time.Minute})
	a.create("web", nil)
	a.clock.Step(time.Hour)
	must.Do(t, a.sim.Account("").EditLoadBalancer("web", func(lb *LoadBalancer) { lb.EnableProxyProtocol = true }))
	listed := func() bool {
		var list []LoadBalancer
		a.want(200, "GET", "/v2/load_balancers", nil, "load_balancers", &list)
		return list[0].EnableProxyProtocol
	}
	if listed() {
		t.Error("a change is listed at once")
	}
	a.clock.Step(time.Minute)
	if !listed() {
		t.Error("a change is never listed")
	}
}
