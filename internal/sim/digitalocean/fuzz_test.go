// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequest sends anything to any route: there is always an answer in JSON, and never a 5xx.
func FuzzRequest(f *testing.F) {
	for i := range routes() {
		f.Add(i, "1", "page=1&per_page=2", `{"name":"a"}`)
	}
	for _, body := range []string{
		`{"name":"web","region":"nyc1","forwarding_rules":[{"entry_protocol":"tcp","entry_port":80,"target_protocol":"tcp","target_port":80}]}`,
		`{"name":"fw","inbound_rules":[{"protocol":"tcp","ports":"80-90","sources":{"addresses":["::/0"]}}]}`,
		`{"resources":[{"resource_id":"400000001","resource_type":"droplet"}]}`, `{"type":"rename","name":"x"}`, `[]`, `nul`, `{"size_unit":-1}`,
		`{"names":["a","b"],"size":"c-2","image":1,"tags":["t"]}`,
	} {
		f.Add(13, "400000001", "", body)
		f.Add(26, "t", "name=a", body)
		f.Add(34, "t", "tag_name=t", body)
	}
	f.Fuzz(func(t *testing.T, n int, param, query, body string) {
		all := routes()
		r := all[(n%len(all)+len(all))%len(all)]
		a := newAPI(t, Options{RateLimits: unlimited()})
		a.droplet(DropletSpec{Name: "node", Tags: []string{"t"}})
		a.create("lb", nil)
		var segments []string
		for _, segment := range r.segments {
			if strings.HasPrefix(segment, "{") {
				segment = url.PathEscape(param)
			}
			segments = append(segments, segment)
		}
		if _, err := url.ParseQuery(query); err != nil || !printable(query) {
			t.Skip("not a query")
		}
		got := a.send(r.method, strings.Join(segments, "/")+"?"+query, body)
		if got.err != nil || got.status < 200 || got.status >= 500 {
			t.Fatalf("%s: %d %s (%v)", r.name(), got.status, got.body, got.err)
		}
		if got.status != 204 && !json.Valid([]byte(got.body)) {
			t.Fatalf("%s: %s is not JSON", r.name(), got.body)
		}
	})
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' })
}

// FuzzNormalPorts: what is accepted is normal already, or a word for everything.
func FuzzNormalPorts(f *testing.F) {
	for _, ports := range []string{"all", "0", "", "80", "80-90", "90-80", "-", "1-", "65536", "٣"} {
		f.Add(ports)
	}
	f.Fuzz(func(t *testing.T, ports string) {
		normal, refused := normalPorts("tcp", ports)
		if refused != nil {
			return
		}
		again, refused := normalPorts("tcp", normal)
		if refused != nil || again != normal {
			t.Errorf("%q became %q, which becomes %q (%v)", ports, normal, again, refused)
		}
	})
}
