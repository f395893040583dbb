// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestTagsFromOutside(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	account := a.sim.Account(DefaultAccount)
	account.CreateTag("spare")
	a.droplet(DropletSpec{Name: "node"})
	must.Do(t, account.SetDropletTags("node", "b", "a", "b"))
	f, err := account.CreateFirewall(Firewall{
		Name: "fw", Tags: &[]string{"a"}, InboundRules: []InboundRule{{Protocol: "icmp", Sources: Peers{Addresses: []string{"::/0"}}}},
	})
	must.Do(t, err)
	must.Do(t, account.EditFirewall(f.ID, func(f *Firewall) { f.InboundRules[0].Sources.Addresses[0] = "::1" }))
	if got := account.Firewalls()[0].InboundRules[0].Sources.Addresses; !slices.Equal(got, []string{"::1"}) || f.InboundRules[0].Sources.Addresses[0] != "::/0" {
		t.Errorf("an edit in place: %v, and what was read before: %v", got, f.InboundRules)
	}
	account.DeleteTag("A")
	if got := account.Droplets()[0]; !slices.Equal(*got.Tags, []string{"b"}) {
		t.Errorf("tags: %v", *got.Tags)
	}
	if got := account.Firewalls()[0]; len(*got.Tags) != 0 {
		t.Errorf("tags of the firewall: %v", *got.Tags)
	}
	if got := a.sim.State().Accounts[0].Tags; !slices.Equal(got, []string{"b", "spare"}) {
		t.Errorf("all tags: %v", got)
	}
	if account.Name() != DefaultAccount {
		t.Errorf("name %q", account.Name())
	}
	if _, err := account.CreateFirewall(Firewall{Name: "fw"}); err == nil {
		t.Error("a firewall without rules was created")
	}
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{}).sim.Account("")
	for what, err := range map[string]error{
		"droplet deleted": a.DeleteDroplet("x"), "droplet off": a.SetDropletStatus("x", "off"), "networks": a.SetDropletNetworks("x", Networks{}),
		"tags": a.SetDropletTags("x"), "lb edited": a.EditLoadBalancer("x", func(*LoadBalancer) {}), "lb deleted": a.DeleteLoadBalancer("x"),
		"lb status": a.SetLoadBalancerStatus("x", "new"), "lb busy": a.MakeBusy("x", 1), "certificate": a.DeleteCertificate("x"),
		"certificate state": a.SetCertificateState("x", "error"), "wrong state": a.SetCertificateState("x", "odd"),
		"firewall": a.DeleteFirewall("x"), "firewall status": a.SetFirewallStatus("x", "failed"), "wrong status": a.SetFirewallStatus("x", "odd"),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown account is not a panic")
		}
	}()
	a.sim.Account("nobody")
}

func TestPools(t *testing.T) {
	t.Parallel()
	p := newPool(netip.MustParsePrefix("192.0.2.0/29"))
	var taken []string
	for {
		address, err := p.take()
		if err != nil {
			break
		}
		taken = append(taken, address.String())
	}
	want := []string{"192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"}
	if !slices.Equal(taken, want) {
		t.Errorf("taken: %v", taken)
	}
	p.give("192.0.2.4")
	p.give("")
	if address, err := p.take(); err != nil || address.String() != "192.0.2.4" {
		t.Errorf("after one came back: %s (%v)", address, err)
	}
	if p.gateway() != "192.0.2.1" || p.netmask() != "255.255.255.248" {
		t.Errorf("gateway %s, mask %s", p.gateway(), p.netmask())
	}
	if p.claim(netip.MustParseAddr("192.0.2.4")) {
		t.Error("an address was claimed twice")
	}
}

func TestDropletsWithoutAddressesLeft(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Addresses: AddressOptions{Public: netip.MustParsePrefix("192.0.2.0/30")}})
	a.droplet(DropletSpec{Name: "first"})
	_, err := a.sim.Account("").CreateDroplet(DropletSpec{Name: "second"})
	if err == nil || !strings.Contains(err.Error(), "all addresses of 192.0.2.0/30 are taken") {
		t.Errorf("error: %v", err)
	}
	must.Do(t, a.sim.Account("").DeleteDroplet("first"))
	if d := a.droplet(DropletSpec{Name: "third"}); d.Networks.V4[1].IPAddress != "192.0.2.2" || d.Networks.V4[0].IPAddress != "10.100.0.4" {
		t.Errorf("addresses: %+v", d.Networks)
	}
}

func TestJournalOfASimulator(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	a.create("web", nil)
	mark := a.sim.Mark()
	a.send("POST", "/v2/tags", "not JSON")
	a.send("GET", "/v2/tags?page=2", nil)
	got := a.sim.Requests(journal.Filter{After: mark})
	if len(got) != 2 || got[0].Route != "POST /v2/tags" || string(got[0].Body) != `"not JSON"` || got[0].Status != 400 || got[0].Applied ||
		got[1].URL != "/v2/tags?page=2" || got[1].Body != nil || !got[1].Applied || !got[1].Time.Equal(start()) {
		t.Errorf("journal: %+v", got)
	}
	if first := a.sim.Requests(journal.Filter{})[0]; !strings.Contains(string(first.Body), `"name":"web"`) {
		t.Errorf("the body of a write: %s", first.Body)
	}
	a.sim.ResetJournal()
	if stats := a.sim.Stats(); stats.Total != 0 {
		t.Errorf("after a reset: %+v", stats)
	}
}

// TestManyClients: names stay unique and no request is lost when many come at once, over real connections.
func TestManyClients(t *testing.T) {
	t.Parallel()
	s := New(Options{RateLimits: unlimited()})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	const clients, each = 8, 20
	var running sync.WaitGroup
	for n := range clients {
		running.Go(func() {
			for i := range each {
				body := fmt.Sprintf(`{"name":"lb-%d","region":"nyc1","forwarding_rules":[{"entry_protocol":"tcp","entry_port":80,`+
					`"target_protocol":"tcp","target_port":80}]}`, i)
				request, err := http.NewRequest(http.MethodPost, server.URL+"/v2/load_balancers", bytes.NewReader([]byte(body)))
				if err != nil {
					t.Error(n, err)
					return
				}
				request.Header.Set("Authorization", "Bearer "+DefaultToken)
				response, err := server.Client().Do(request)
				if err != nil {
					t.Error(n, err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	running.Wait()
	if got := len(s.Account("").LoadBalancers()); got != each {
		t.Errorf("%d load balancers, not %d", got, each)
	}
	stats := s.Stats()
	statuses := stats.Routes["POST /v2/load_balancers"].Statuses
	if stats.Total != clients*each || statuses[202] != each || statuses[422] != (clients-1)*each || stats.MaxInFlight < 1 || stats.MaxInFlight > clients {
		t.Errorf("stats: %+v", stats)
	}
}

// TestCostOfAPage: a page of a list twice as long costs about as much, since only the page is made.
func TestCostOfAPage(t *testing.T) {
	cost := func(droplets int) float64 {
		s := New(Options{RateLimits: unlimited(), JournalKeep: -1})
		for i := range droplets {
			must.Get(s.Account("").CreateDroplet(DropletSpec{Name: fmt.Sprintf("n%d", i)})).Or(t)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/v2/droplets?per_page=50&page=2", nil)
		must.Do(t, err)
		request.Header.Set("Authorization", "Bearer "+DefaultToken)
		return testing.AllocsPerRun(20, func() {
			response, err := s.Transport().RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			must.Do(t, err)
		})
	}
	if small, large := cost(500), cost(1000); large > 1.5*small {
		t.Errorf("a page costs %.0f allocations with 500 droplets and %.0f with 1000", small, large)
	}
}
