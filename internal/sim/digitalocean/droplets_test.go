// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"slices"
	"strings"
	"testing"
	"time"
)

func (a *api) listDroplets(query string) []Droplet {
	a.t.Helper()
	var list []Droplet
	a.want(200, "GET", "/v2/droplets"+query, nil, "droplets", &list)
	return list
}

func names(droplets []Droplet) []string {
	var all []string
	for _, d := range droplets {
		all = append(all, d.Name)
	}
	return all
}

func TestDropletsBootAndGetTheirAddressesLate(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Droplets: DropletOptions{BootAfter: time.Minute, NetworksAfter: 2 * time.Minute}})
	d := a.droplet(DropletSpec{Name: "node", IPv6: true})
	path := fmt.Sprintf("/v2/droplets/%d", d.ID)
	for _, want := range []struct {
		status   string
		v4, v6   int
		untilNow time.Duration
	}{{"new", 0, 0, 0}, {"active", 0, 0, time.Minute}, {"active", 2, 1, time.Minute}} {
		a.clock.Step(want.untilNow)
		var got Droplet
		a.want(200, "GET", path, nil, "droplet", &got)
		if got.Status != want.status || len(got.Networks.V4) != want.v4 || len(got.Networks.V6) != want.v6 {
			t.Errorf("after %s: %s with %+v", want.untilNow, got.Status, got.Networks)
		}
	}
}

func TestNetworksOfDroplets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	kinds := func(d Droplet) string {
		var all []string
		for _, n := range d.Networks.V4 {
			all = append(all, n.Type+"4")
		}
		for _, n := range d.Networks.V6 {
			all = append(all, n.Type+"6")
		}
		return strings.Join(all, " ")
	}
	for want, spec := range map[string]DropletSpec{
		"private4 public4":         {},
		"private4 public4 public6": {IPv6: true},
		"private4":                 {NoPublicNetwork: true, IPv6: true},
		"public4":                  {NoPrivateNetwork: true},
		"":                         {Networks: &Networks{}},
	} {
		spec.Name = "node"
		if got := kinds(a.droplet(spec)); got != want {
			t.Errorf("%+v has %q, not %q", spec, got, want)
		}
	}
	must.Do(t, a.sim.Account("").DeleteDroplet("400000001"))
	must.Do(t, a.sim.Account("").SetDropletNetworks("400000002", Networks{V4: []NetworkV4{{IPAddress: "192.0.2.1", Type: "private"}}}))
	d := must.Get(a.sim.Account("").Droplet("400000002")).Or(t)
	if kinds(d) != "private4" {
		t.Errorf("after a change of networks: %+v", d.Networks)
	}
}

func TestFiltersOfDroplets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	a.droplet(DropletSpec{Name: "Node-A", Tags: []string{"k8s:worker"}})
	a.droplet(DropletSpec{Name: "node-a"})
	a.droplet(DropletSpec{Name: "node-b"})
	a.droplet(DropletSpec{Name: "gpu", Size: "gpu-h100x1-80gb", Tags: []string{"K8S:worker"}})
	for query, want := range map[string][]string{
		"":                      {"Node-A", "node-a", "node-b"},
		"?type=droplets":        {"Node-A", "node-a", "node-b"},
		"?type=gpus":            {"gpu"},
		"?name=NODE-A":          {"Node-A", "node-a"},
		"?name=gpu":             nil,
		"?name=gpu&type=gpus":   {"gpu"},
		"?name=node":            nil,
		"?tag_name=k8s:worker":  {"Node-A", "gpu"},
		"?tag_name=k8s:unknown": nil,
	} {
		if got := names(a.listDroplets(query)); !slices.Equal(got, want) {
			t.Errorf("%q lists %v, not %v", query, got, want)
		}
	}
	a.refused(422, "GET", "/v2/droplets?tag_name=a&name=b", nil, "cannot be combined")
	a.refused(422, "GET", "/v2/droplets?tag_name=a&type=gpus", nil, "cannot be combined")
	a.refused(422, "GET", "/v2/droplets?type=cpus", nil, "type must be")
	a.want(204, "DELETE", "/v2/droplets?tag_name=k8s:worker", nil, "", nil)
	if got := names(a.listDroplets("")); !slices.Equal(got, []string{"node-a", "node-b"}) {
		t.Errorf("after a deletion by tag: %v", got)
	}
	a.refused(422, "DELETE", "/v2/droplets", nil, "tag_name is needed")
}

func TestPowerOfDroplets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	d := a.droplet(DropletSpec{Name: "node"})
	path := fmt.Sprintf("/v2/droplets/%d", d.ID)
	for _, step := range []struct{ action, want string }{
		{"power_off", "off"}, {"power_on", "active"}, {"shutdown", "off"}, {"reboot", "off"}, {"power_on", "active"},
	} {
		var action Action
		a.want(201, "POST", path+"/actions", map[string]any{"type": step.action}, "action", &action)
		a.want(200, "GET", fmt.Sprintf("%s/actions/%d", path, action.ID), nil, "action", &action)
		var got Droplet
		a.want(200, "GET", path, nil, "droplet", &got)
		if got.Status != step.want || action.Status != "completed" {
			t.Errorf("after %s: %s, action %s", step.action, got.Status, action.Status)
		}
	}
	a.want(201, "POST", path+"/actions", map[string]any{"type": "rename", "name": "other"}, "", nil)
	must.Do(t, a.sim.Account("").SetDropletStatus("other", "archive"))
	if got := a.listDroplets(""); got[0].Name != "other" || got[0].Status != "archive" {
		t.Errorf("an archived droplet: %+v", got)
	}
	a.refused(422, "POST", path+"/actions", map[string]any{"type": "resize"}, "not simulated")
	a.refused(404, "GET", path+"/actions/99", nil, "could not be found")
	if err := a.sim.Account("").SetDropletStatus("other", "asleep"); err == nil {
		t.Error("a droplet can be asleep")
	}
}

func TestRefusedDroplets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Accounts: []AccountOptions{{Name: "one", DropletLimit: 3}}})
	body := func(changes ...any) map[string]any {
		request := map[string]any{"name": "node", "region": "nyc1", "size": "s-2vcpu-4gb", "image": "ubuntu"}
		for i := 0; i < len(changes); i += 2 {
			request[fmt.Sprint(changes[i])] = changes[i+1]
		}
		return request
	}
	for words, request := range map[string]map[string]any{
		"valid hostname":        body("name", "no_underscore"),
		"one of name and names": body("names", []string{"a"}),
		"at most ten":           body("name", "", "names", make([]string, 11)),
		"size and image":        body("image", nil),
		"region":                body("region", "mars1"),
		"size":                  body("size", "huge"),
		"invalid characters":    body("tags", []string{"a b"}),
		"droplet limit of 3":    body("name", "", "names", []string{"a", "b", "c", "d"}),
	} {
		a.refused(422, "POST", "/v2/droplets", request, words)
	}
	if got := a.sim.Account("").Droplets(); len(got) != 0 {
		t.Errorf("all or none are created: %v", names(got))
	}
	a.want(202, "POST", "/v2/droplets", body("name", "", "names", []string{"a", "b", "c"}), "", nil)
	for _, id := range []string{"abc", "1", "-"} {
		a.refused(404, "GET", "/v2/droplets/"+id, nil, "not_found")
		a.refused(404, "DELETE", "/v2/droplets/"+id, nil, "not_found")
	}
}

// TestPagesHaveEverythingOnce: whatever the size of pages, each droplet is on one of them while nothing changes, and links lead there.
func TestPagesHaveEverythingOnce(t *testing.T) {
	t.Parallel()
	for _, newest := range []bool{false, true} {
		a := newAPI(t, Options{NewestFirst: newest, RateLimits: unlimited()})
		var want []string
		for i := range 45 {
			want = append(want, a.droplet(DropletSpec{Name: fmt.Sprintf("node-%02d", i)}).Name)
		}
		if newest {
			slices.Reverse(want)
		}
		for _, size := range []int{0, 1, 7, 20, 45, 46, 200} {
			query := "?type=droplets"
			if size > 0 {
				query += fmt.Sprintf("&per_page=%d", size)
			}
			if got := a.walk(query); !slices.Equal(got, want) {
				t.Errorf("pages of %d: %v", size, got)
			}
		}
	}
}

// walk follows links from page to page and returns the names of droplets.
func (a *api) walk(query string) []string {
	a.t.Helper()
	var all []string
	for query != "" {
		got := a.send("GET", "/v2/droplets"+query, nil)
		var page struct {
			Droplets []Droplet `json:"droplets"`
			Links    struct {
				Pages map[string]string `json:"pages"`
			} `json:"links"`
			Meta struct {
				Total int `json:"total"`
			} `json:"meta"`
		}
		if err := json.Unmarshal([]byte(got.body), &page); err != nil || page.Meta.Total != 45 || len(page.Droplets) == 0 {
			a.t.Fatalf("%s: %d %s", query, got.status, got.body)
		}
		all = append(all, names(page.Droplets)...)
		_, query, _ = strings.Cut(page.Links.Pages["next"], "?")
		if query != "" {
			if !strings.Contains(query, "type=droplets") {
				a.t.Fatalf("the link %s lost the filter", query)
			}
			query = "?" + query
		}
	}
	return all
}

// TestItemsShiftBetweenPages: a deletion before the place where a client is makes it miss one; with the newest first, a creation
// makes it see one twice.
func TestItemsShiftBetweenPages(t *testing.T) {
	t.Parallel()
	for _, newest := range []bool{false, true} {
		a := newAPI(t, Options{NewestFirst: newest})
		for i := range 4 {
			a.droplet(DropletSpec{Name: fmt.Sprintf("node-%d", i)})
		}
		seen := names(a.listDroplets("?per_page=2"))
		if newest {
			a.droplet(DropletSpec{Name: "node-4"})
		} else {
			must.Do(t, a.sim.Account("").DeleteDroplet("node-0"))
		}
		seen = append(seen, names(a.listDroplets("?per_page=2&page=2"))...)
		want := []string{"node-0", "node-1", "node-3"}
		if newest {
			want = []string{"node-3", "node-2", "node-2", "node-1"}
		}
		if !slices.Equal(seen, want) {
			t.Errorf("seen: %v, not %v", seen, want)
		}
	}
}

func TestWrongPages(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	a.droplet(DropletSpec{Name: "node"})
	for _, query := range []string{"page=0", "page=x", "per_page=0", "per_page=201", "per_page=-1"} {
		a.refused(422, "GET", "/v2/droplets?"+query, nil, "must be between")
	}
	if got := a.send("GET", "/v2/droplets?page=5", nil); !strings.Contains(got.body, `"droplets":[]`) || !strings.Contains(got.body, "page=1") {
		t.Errorf("a page beyond the last: %s", got.body)
	}
}

func TestTwoDropletsOfOneName(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	first, second := a.droplet(DropletSpec{Name: "twin"}), a.droplet(DropletSpec{Name: "twin"})
	if got := a.listDroplets("?name=twin"); len(got) != 2 || first.ID == second.ID {
		t.Errorf("twins: %v", got)
	}
	if err := a.sim.Account("").DeleteDroplet("twin"); err == nil || !strings.Contains(err.Error(), "belongs to 2 droplets") {
		t.Errorf("deleting one of two by name: %v", err)
	}
	if _, err := a.sim.Account("").CreateDroplet(DropletSpec{Name: "x", ID: first.ID}); err == nil {
		t.Error("an ID was given twice")
	}
}
