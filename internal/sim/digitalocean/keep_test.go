// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	clocktesting "k8s.io/utils/clock/testing"
)

// reopened is another simulator that goes on where this one is, at the same time.
func (a *api) reopened(t *testing.T, options Options) *api {
	t.Helper()
	document := must.Get(a.sim.Image()).Or(t)
	clock := clocktesting.NewFakeClock(a.clock.Now())
	options.Clock = clock
	next := must.Get(Open(options, document)).Or(t)
	again := must.Get(next.Image()).Or(t)
	if diff := cmp.Diff(string(document), string(again)); diff != "" {
		t.Errorf("the image of what an image made is another one:\n%s", diff)
	}
	return &api{t: t, sim: next, clock: clock, token: a.token}
}

// busyAccount has one of everything, some of it half made.
func busyAccount(t *testing.T, options Options) *api {
	t.Helper()
	a := newAPI(t, options)
	first := a.droplet(DropletSpec{Name: "first", Tags: []string{"k8s", "a"}, IPv6: true, UserData: "#!/bin/sh"})
	gone := a.droplet(DropletSpec{Name: "gone"})
	a.droplet(DropletSpec{Name: "slow", BootAfter: new(time.Hour), NetworksAfter: new(2 * time.Hour)})
	account := a.sim.Account("")
	crt := must.Get(account.CreateCertificate(CertificateSpec{Name: "web", DNSNames: []string{"example.com"}})).Or(t)
	a.create("plain", map[string]any{"droplet_ids": []int{first.ID, gone.ID}, "tags": []string{"k8s:x"}, "network_stack": "DUALSTACK"})
	a.create("tagged", map[string]any{"tag": "a", "forwarding_rules": []any{rule("https", 443, "http", map[string]any{"certificate_id": crt.ID})}})
	a.create("inner", map[string]any{"network": "INTERNAL", "firewall": map[string]any{"allow": []string{"cidr:10.0.0.0/8"}}})
	must.Do(t, account.SetLoadBalancerStatus("inner", "errored"))
	must.Do(t, account.MakeBusy("plain", time.Minute))
	a.want(202, "POST", "/v2/firewalls", map[string]any{
		"name": "fw", "tags": []string{"k8s"}, "droplet_ids": []int{first.ID},
		"inbound_rules": []any{map[string]any{"protocol": "tcp", "ports": "80", "sources": map[string]any{"addresses": []string{"0.0.0.0/0"}}}},
	}, "", nil)
	must.Do(t, account.DeleteDroplet("gone"))
	must.Do(t, account.SetDropletStatus("first", "off"))
	account.SetStatus("warning", "pay")
	return a
}

// A simulator that is killed goes on in another process: the same is true, and the same happens next.
func TestImageGoesOn(t *testing.T) {
	t.Parallel()
	options := Options{Seed: 7, RateLimits: unlimited(), LoadBalancers: LoadBalancerOptions{ActiveAfter: time.Minute}}
	a := busyAccount(t, options)
	b := a.reopened(t, options)
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(a.sim.State(), b.sim.State()); diff != "" {
			t.Fatalf("%s:\n%s", when, diff)
		}
	}
	same("at once")
	for _, one := range []*api{a, b} {
		one.clock.Step(90 * time.Second)
		one.droplet(DropletSpec{Name: "next"})
		one.create("next", nil)
		one.want(201, "POST", "/v2/droplets/400000001/actions", map[string]any{"type": "power_on"}, "", nil)
		must.Do(t, one.sim.Account("").DeleteLoadBalancer("tagged"))
		must.Do(t, one.sim.Account("").DeleteDroplet("first"))
		one.droplet(DropletSpec{Name: "last", IPv6: true})
	}
	same("after more of the same")
	b.refused(422, "POST", "/v2/load_balancers", balancer("plain", nil), "not unique")
	b.clock.Step(time.Hour)
	if slow, err := b.sim.Account("").Droplet("slow"); err != nil || slow.Status != "active" || len(slow.Networks.V4) != 0 {
		t.Errorf("the droplet that boots slowly: %+v (%v)", slow, err)
	}
}

// Anyone who has an answer to a change can rely on it that the change was told before, with an image that has it; a read is none.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	told, last := 0, ""
	a := busyAccount(t, Options{RateLimits: unlimited(), Changed: func(image func() ([]byte, error)) {
		document := must.Get(image()).Or(t)
		told, last = told+1, string(document)
	}})
	for name, do := range map[string]func(){
		"reads": func() {
			a.sim.Account("").Droplets()
			a.sim.State()
			a.want(200, "GET", "/v2/load_balancers", nil, "", nil)
		},
		"refused": func() { a.refused(422, "POST", "/v2/load_balancers", balancer("plain", nil), "not unique") },
	} {
		before := told
		if do(); told != before {
			t.Errorf("%s: %d changes were told", name, told-before)
		}
	}
	for name, do := range map[string]func(){
		"api-made":   func() { a.create("api-made", nil) },
		"admin-made": func() { a.droplet(DropletSpec{Name: "admin-made"}) },
		"warned":     func() { a.sim.Account("").SetStatus("locked", "warned") },
		"shutdown": func() {
			a.want(201, "POST", "/v2/droplets/400000003/actions", map[string]any{"type": "shutdown"}, "", nil)
		},
	} {
		before := told
		if do(); told != before+1 || !strings.Contains(last, name) {
			t.Errorf("%s: %d changes were told, and the last image has it: %t", name, told-before, strings.Contains(last, name))
		}
	}
}

func TestBadImagesAreRefused(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"":               "reading the kept state",
		"{":              "reading the kept state",
		`{"version": 9}`: "has version 9, this program reads version 1",
	} {
		if _, err := Open(Options{}, []byte(document)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", document, err)
		}
	}
	document := must.Get(busyAccount(t, Options{}).sim.Image()).Or(t)
	for old, c := range map[string]struct{ replacement, want string }{
		`"name":"default"`: {`"name":"other"`, `account "other" does not exist`},
		`"region":"nyc1"`:  {`"region":"moon"`, "of which one does not exist"},
	} {
		if _, err := Open(Options{}, []byte(strings.Replace(string(document), old, c.replacement, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.replacement, err)
		}
	}
}

// FuzzImage opens anything: it is refused, or it works as a simulator.
func FuzzImage(f *testing.F) {
	a := New(Options{})
	for _, name := range []string{"a", "b"} {
		must.Get(a.Account("").CreateDroplet(DropletSpec{Name: name, Tags: []string{"t"}})).Or(f)
	}
	document := must.Get(a.Image()).Or(f)
	f.Add(string(document))
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, document string) {
		s, err := Open(Options{}, []byte(document))
		if err != nil {
			return
		}
		s.State()
		_, _ = s.Account("").CreateDroplet(DropletSpec{Name: "more"})
		_ = s.Account("").DeleteDroplet("a")
		if _, err := s.Image(); err != nil {
			t.Error(err)
		}
	})
}
