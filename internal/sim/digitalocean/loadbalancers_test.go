// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestALoadBalancerBecomesActive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options LoadBalancerOptions
		want    []string // at each read, a minute apart
	}{
		"at once":                  {LoadBalancerOptions{}, []string{"active", "active"}},
		"after a time":             {LoadBalancerOptions{ActiveAfter: 90 * time.Second}, []string{"new", "new", "active"}},
		"after some reads":         {LoadBalancerOptions{ActiveAfterReads: 3}, []string{"new", "new", "active"}},
		"after a time and reads":   {LoadBalancerOptions{ActiveAfter: 90 * time.Second, ActiveAfterReads: 4}, []string{"new", "new", "new", "active"}},
		"never, if all are broken": {LoadBalancerOptions{ActiveAfter: 30 * time.Second, ErrorProbability: 1}, []string{"new", "errored"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, Options{LoadBalancers: c.options})
			lb := a.create("web", nil)
			if lb.Status != "new" || lb.IP != "" {
				t.Errorf("the answer to POST: %+v", lb)
			}
			for i, want := range c.want {
				if got := a.get(lb.ID); got.Status != want || (got.IP != "") != (want == "active") {
					t.Errorf("read %d: status %s with address %q, not %s", i, got.Status, got.IP, want)
				}
				a.clock.Step(time.Minute)
			}
		})
	}
}

func TestReadsInListsCount(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{ActiveAfterReads: 2}})
	lb := a.create("web", nil)
	var list []LoadBalancer
	a.want(200, "GET", "/v2/load_balancers", nil, "load_balancers", &list)
	if list[0].Status != "new" {
		t.Errorf("in the list: %s", list[0].Status)
	}
	if got := a.get(lb.ID); got.Status != "active" {
		t.Errorf("after a list and a GET: %s", got.Status)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	external := a.get(a.create("external", nil).ID)
	internal := a.get(a.create("internal", map[string]any{"network": "INTERNAL"}).ID)
	dual := a.get(a.create("dual", map[string]any{"network_stack": "DUALSTACK"}).ID)
	if !netip.MustParsePrefix("198.19.0.0/16").Contains(netip.MustParseAddr(external.IP)) || external.IPv6 != "" {
		t.Errorf("external: %s and %q", external.IP, external.IPv6)
	}
	var vpc VPC
	a.want(200, "GET", "/v2/vpcs/"+internal.VPCUUID, nil, "vpc", &vpc)
	if !netip.MustParsePrefix(vpc.IPRange).Contains(netip.MustParseAddr(internal.IP)) || internal.IPv6 != "" {
		t.Errorf("internal: %s and %q, not in %s", internal.IP, internal.IPv6, vpc.IPRange)
	}
	if netip.MustParseAddr(dual.IPv6).Is4() || dual.IP == external.IP {
		t.Errorf("dual stack: %s and %q", dual.IP, dual.IPv6)
	}
	own := a.get(a.create("own", map[string]any{"ip": "203.0.113.9"}).ID)
	if own.IP != "203.0.113.9" {
		t.Errorf("an address of one's own: %s", own.IP)
	}
	a.refused(422, "POST", "/v2/load_balancers", balancer("again", map[string]any{"ip": "203.0.113.9"}), "not available")
	a.want(204, "DELETE", "/v2/load_balancers/"+own.ID, nil, "", nil)
	a.create("again", map[string]any{"ip": "203.0.113.9"})
}

func TestBusyLoadBalancers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{ActiveAfter: time.Minute, BusyAfterUpdate: 10 * time.Second}})
	droplet := a.droplet(DropletSpec{Name: "node"})
	lb := a.create("web", nil)
	path := "/v2/load_balancers/" + lb.ID
	a.refused(403, "PUT", path, balancer("web", nil), "can't be updated while it processes previous actions")
	a.clock.Step(time.Minute)
	a.want(200, "PUT", path, balancer("web", nil), "", nil)
	a.refused(403, "PUT", path, balancer("web", nil), "previous actions")
	a.refused(403, "POST", path+"/droplets", map[string]any{"droplet_ids": []int{droplet.ID}}, "previous actions")
	a.refused(403, "DELETE", path+"/forwarding_rules", map[string]any{}, "previous actions")
	a.want(200, "PUT", path, balancer("web", map[string]any{"validate_only": true}), "", nil)
	a.clock.Step(10 * time.Second)
	a.want(204, "POST", path+"/droplets", map[string]any{"droplet_ids": []int{droplet.ID}}, "", nil)
	a.refused(403, "PUT", path, balancer("web", nil), "previous actions")
	a.want(204, "DELETE", path, nil, "", nil)

	strict := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{ActiveAfter: time.Minute, BusyRefusesDelete: true}})
	lb = strict.create("web", nil)
	strict.refused(403, "DELETE", "/v2/load_balancers/"+lb.ID, nil, "previous actions")
	lenient := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{ActiveAfter: time.Minute, AcceptWhileBusy: true}})
	lb = lenient.create("web", nil)
	lenient.want(200, "PUT", "/v2/load_balancers/"+lb.ID, balancer("web", nil), "", nil)
}

// TestPutResetsWhatIsLeftOut: everything goes back to its default but what cannot change.
func TestPutResetsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{ResizeCooldown: -1}, Accounts: []AccountOptions{{Projects: []string{"p"}}}})
	droplet := a.droplet(DropletSpec{Name: "node"})
	crt := must.Get(a.sim.Account("").CreateCertificate(CertificateSpec{Name: "web"})).Or(t)
	plain := a.get(a.create("plain", nil).ID)
	full := a.create("full", map[string]any{
		"algorithm": "least_connections", "size_unit": 3, "redirect_http_to_https": true, "enable_proxy_protocol": true,
		"enable_backend_keepalive": true, "http_idle_timeout_seconds": 90, "disable_lets_encrypt_dns_records": true,
		"firewall": map[string]any{"allow": []string{"ip:192.0.2.1"}, "deny": []string{"cidr:198.51.100.0/24"}},
		"health_check": map[string]any{
			"protocol": "tcp", "port": 1, "check_interval_seconds": 3, "response_timeout_seconds": 4, "healthy_threshold": 9,
			"unhealthy_threshold": 8, "proxy_protocol": false,
		},
		"sticky_sessions": map[string]any{"type": "cookies", "cookie_name": "c", "cookie_ttl_seconds": 5},
		"droplet_ids":     []int{droplet.ID}, "tags": []string{"k8s:one"}, "project_id": "p", "tls_cipher_policy": "STRONG",
		"type": "REGIONAL", "network_stack": "DUALSTACK", "subnet_uuid": "s",
		"forwarding_rules": []any{rule("https", 443, "http", map[string]any{"certificate_id": crt.ID})},
	})
	full = a.get(full.ID)
	if full.Algorithm != "round_robin" {
		t.Errorf("algorithm %s", full.Algorithm)
	}
	var reset LoadBalancer
	a.want(200, "PUT", "/v2/load_balancers/"+full.ID, balancer("full", nil), "load_balancer", &reset)
	want := plain
	want.ID, want.Name, want.CreatedAt, want.IP, want.IPv6 = full.ID, full.Name, full.CreatedAt, full.IP, full.IPv6
	want.NetworkStack, want.SubnetUUID, want.ProjectID, want.Tags = full.NetworkStack, full.SubnetUUID, full.ProjectID, full.Tags
	if diff := cmp.Diff(want, reset); diff != "" {
		t.Errorf("after a PUT of little:\n%s", diff)
	}
	wantCheck := HealthCheck{
		Protocol: "http", Port: 80, Path: "/", CheckIntervalSeconds: 10, ResponseTimeoutSeconds: 5, UnhealthyThreshold: 5, HealthyThreshold: 3,
	}
	if diff := cmp.Diff(wantCheck, reset.HealthCheck); diff != "" {
		t.Errorf("the default health check:\n%s", diff)
	}
	if reset.SizeUnit != 1 || reset.HTTPIdleTimeoutSeconds != 60 || reset.Size != "lb-small" {
		t.Errorf("defaults: %+v", reset)
	}
}

func TestImmutableFields(t *testing.T) {
	t.Parallel()
	for _, ignore := range []bool{false, true} {
		a := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{IgnoreImmutable: ignore}})
		a.sim.Account("").AddVPC(VPC{Region: "nyc1"}) // the default
		other := a.sim.Account("").AddVPC(VPC{Region: "nyc1"})
		lb := a.get(a.create("web", nil).ID)
		for field, value := range map[string]string{
			"type": "REGIONAL_NETWORK", "network": "INTERNAL", "network_stack": "DUALSTACK", "region": "ams3", "vpc_uuid": other.ID,
		} {
			request := balancer("web", map[string]any{field: value})
			if !ignore {
				a.refused(422, "PUT", "/v2/load_balancers/"+lb.ID, request, field+" cannot be changed")
				continue
			}
			var got LoadBalancer
			a.want(200, "PUT", "/v2/load_balancers/"+lb.ID, request, "load_balancer", &got)
			if diff := cmp.Diff(lb, got); diff != "" {
				t.Errorf("%s was not ignored:\n%s", field, diff)
			}
		}
	}
}

func TestResizing(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	lb := a.create("web", map[string]any{"size": "lb-medium"})
	path, two := "/v2/load_balancers/"+lb.ID, balancer("web", map[string]any{"size_unit": 2})
	a.refused(422, "PUT", path, two, "resized once per hour")
	a.want(200, "PUT", path, balancer("web", map[string]any{"size_unit": 3}), "", nil)
	a.clock.Step(time.Hour)
	a.want(200, "PUT", path, two, "", nil)
	a.refused(422, "PUT", path, balancer("web", nil), "resized once per hour")
	a.want(200, "PUT", path, two, "", nil)
	a.clock.Step(time.Hour)
	a.want(200, "PUT", path, balancer("web", nil), "", nil)
}

// TestRefusedLoadBalancers has at least one case for each rule.
func TestRefusedLoadBalancers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{LoadBalancers: LoadBalancerOptions{Limit: 1}, RateLimits: unlimited()})
	droplet := a.droplet(DropletSpec{Name: "node", Region: "ams3"})
	a.sim.Account("").AddVPC(VPC{Region: "nyc1"}) // the default
	otherVPC := a.sim.Account("").AddVPC(VPC{Region: "nyc1"})
	elsewhere := a.droplet(DropletSpec{Name: "elsewhere", VPCUUID: otherVPC.ID})
	rules := func(rules ...any) map[string]any { return map[string]any{"forwarding_rules": rules} }
	health := func(field string, value any) map[string]any {
		return map[string]any{"health_check": map[string]any{field: value}}
	}
	with := func(protocol string, changes map[string]any) map[string]any {
		return rules(rule(protocol, 443, "http", changes))
	}
	for words, changes := range map[string]map[string]any{
		"name \\\"a b\\\" is not valid":                        {"name": "a b"},
		"region \\\"mars1\\\" is not available":                {"region": "mars1"},
		"vpc_uuid":                                             {"vpc_uuid": "nobody's"},
		"type must be one of":                                  {"type": "GLOBAL"},
		"network must be one of":                               {"network": "PUBLIC"},
		"network_stack must be one of":                         {"network_stack": "IPV6"},
		"tls_cipher_policy must be":                            {"tls_cipher_policy": "WEAK"},
		"DUALSTACK is not available for network INTERNAL":      {"network_stack": "DUALSTACK", "network": "INTERNAL"},
		"size must be one of":                                  {"size": "lb-huge"},
		"only one of size and size_unit":                       {"size": "lb-small", "size_unit": 3},
		"size_unit must be between":                            {"size_unit": 101},
		"at least one forwarding rule":                         rules(),
		"entry_port must be between":                           rules(rule("tcp", 0, "tcp", nil)),
		"target_port must be between":                          rules(rule("tcp", 80, "tcp", map[string]any{"target_port": 65536})),
		"entry_port 50054 is reserved":                         rules(rule("tcp", 50054, "tcp", nil)),
		"entry_protocol must be one of":                        rules(rule("sctp", 80, "tcp", nil)),
		"target_protocol must be one of":                       rules(rule("tcp", 80, "http3", nil)),
		"entry_protocol udp cannot be forwarded as tcp":        rules(rule("udp", 80, "tcp", nil)),
		"entry_protocol must be one of tcp, udp, not":          {"type": "REGIONAL_NETWORK", "forwarding_rules": []any{rule("http", 80, "tcp", nil)}},
		"https on port 443 needs one of":                       with("https", nil),
		"http2 on port 443 needs one of":                       with("http2", map[string]any{"certificate_id": "c", "tls_passthrough": true}),
		"http on port 443 takes no certificate_id":             with("http", map[string]any{"certificate_id": "c"}),
		"entry_port 80 is used twice":                          rules(rule("tcp", 80, "tcp", nil), rule("http", 80, "http", nil)),
		"health_check.protocol must be":                        health("protocol", "udp"),
		"health_check.port must be between":                    health("port", 0),
		"health_check.check_interval_seconds must be":          health("check_interval_seconds", 2),
		"health_check.response_timeout_seconds must":           health("response_timeout_seconds", 301),
		"health_check.unhealthy_threshold must be":             health("unhealthy_threshold", 1),
		"health_check.healthy_threshold must be":               health("healthy_threshold", 11),
		"with UDP needs a health check":                        rules(rule("udp", 80, "udp", nil)),
		"sticky_sessions.type must be":                         {"sticky_sessions": map[string]any{"type": "ip"}},
		"needs cookie_name and cookie_ttl":                     {"sticky_sessions": map[string]any{"type": "cookies", "cookie_name": "c"}},
		"http_idle_timeout_seconds must be":                    {"http_idle_timeout_seconds": 29},
		"must begin with ip: or cidr:":                         {"firewall": map[string]any{"allow": []string{"192.0.2.1"}}},
		"firewall rule \\\"cidr:192.0.2.1/40\\\" is not valid": {"firewall": map[string]any{"deny": []string{"cidr:192.0.2.1/40"}}},
		"only one of tag and droplet_ids":                      {"tag": "a", "droplet_ids": []int{elsewhere.ID}},
		"droplet 7 does not exist":                             {"droplet_ids": []int{7}},
		"is in region ams3, the load balancer in nyc1":         {"droplet_ids": []int{droplet.ID}},
		"is not in VPC":                                        {"droplet_ids": []int{elsewhere.ID}, "vpc_uuid": nil},
		"tag \\\"a b\\\" contains invalid":                     {"tags": []string{"a b"}},
	} {
		status := 422
		if words == "vpc_uuid" {
			status = 404
		}
		a.refused(status, "POST", "/v2/load_balancers", balancer("web", changes), words)
		checked := maps.Clone(changes)
		checked["validate_only"] = true
		a.refused(status, "POST", "/v2/load_balancers", balancer("web", checked), words)
	}
	a.refused(404, "POST", "/v2/load_balancers", balancer("web", with("https", map[string]any{"certificate_id": "gone"})), "could not be found")
	a.refused(400, "POST", "/v2/load_balancers", "{", "error parsing request body")
	a.create("web", nil)
	a.refused(422, "POST", "/v2/load_balancers", balancer("web", nil), "name is not unique")
	a.refused(422, "POST", "/v2/load_balancers", balancer("second", nil), "limit of 1 load balancers")
	if got := len(a.sim.Account("").LoadBalancers()); got != 1 {
		t.Errorf("%d load balancers were created", got)
	}
}

func TestValidateOnlyDoesNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	var lb LoadBalancer
	a.want(202, "POST", "/v2/load_balancers", balancer("web", map[string]any{"validate_only": true, "tags": []string{"a"}}), "load_balancer", &lb)
	if state := a.sim.State().Accounts[0]; lb.ID != "" || lb.Name != "web" || len(state.LoadBalancers) != 0 || len(state.Tags) != 0 {
		t.Errorf("a POST that only validates: %+v, %+v", lb, state)
	}
	created := a.get(a.create("web", nil).ID)
	change := map[string]any{"validate_only": true, "enable_proxy_protocol": true, "tag": "web"}
	a.want(200, "PUT", "/v2/load_balancers/"+created.ID, balancer("web", change), "load_balancer", &lb)
	if !lb.EnableProxyProtocol || lb.ID != created.ID {
		t.Errorf("what a PUT would do: %+v", lb)
	}
	if diff := cmp.Diff(created, a.get(created.ID)); diff != "" {
		t.Errorf("a PUT that only validates:\n%s", diff)
	}
	a.refused(404, "PUT", "/v2/load_balancers/gone", balancer("web", change), "not_found")
	change["size_unit"] = 2
	a.refused(422, "PUT", "/v2/load_balancers/"+created.ID, balancer("web", change), "resized")
}

func TestReservedPorts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	for port, status := range map[int]int{50052: 202, 50053: 422, 50054: 422, 50055: 422, 50056: 202, 65535: 202} {
		request := balancer("web", map[string]any{"forwarding_rules": []any{rule("tcp", port, "tcp", nil)}, "validate_only": true})
		a.want(status, "POST", "/v2/load_balancers", request, "", nil)
	}
}

func TestHTTP3SharesAPortWithHTTPS(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	crt := must.Get(a.sim.Account("").CreateCertificate(CertificateSpec{Name: "web"})).Or(t)
	certificate := map[string]any{"certificate_id": crt.ID}
	a.create("web", map[string]any{"forwarding_rules": []any{
		rule("https", 443, "http", certificate), rule("http3", 443, "http", certificate),
	}})
}

func TestBackends(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	first, second := a.droplet(DropletSpec{Name: "a"}), a.droplet(DropletSpec{Name: "b", Tags: []string{"Web"}})
	lb := a.create("web", map[string]any{"droplet_ids": []int{second.ID, first.ID, second.ID}})
	if !slices.Equal(lb.DropletIDs, []int{first.ID, second.ID}) {
		t.Errorf("droplets are not sorted and unique: %v", lb.DropletIDs)
	}
	path := "/v2/load_balancers/" + lb.ID + "/droplets"
	a.want(204, "DELETE", path, map[string]any{"droplet_ids": []int{first.ID, 7}}, "", nil)
	a.refused(422, "POST", path, map[string]any{"droplet_ids": []int{}}, "droplet_ids is needed")
	a.refused(422, "POST", path, map[string]any{"droplet_ids": []int{7}}, "does not exist")
	a.want(204, "POST", path, map[string]any{"droplet_ids": []int{first.ID}}, "", nil)
	must.Do(t, a.sim.Account("").DeleteDroplet("b"))
	if got := a.get(lb.ID).DropletIDs; !slices.Equal(got, []int{first.ID}) {
		t.Errorf("after a droplet is gone: %v", got)
	}
	tagged := a.create("tagged", map[string]any{"tag": "web"})
	a.refused(422, "POST", "/v2/load_balancers/"+tagged.ID+"/droplets", map[string]any{"droplet_ids": []int{first.ID}}, "has a tag")
	if len(tagged.DropletIDs) != 0 {
		t.Errorf("nobody carries the tag, but: %v", tagged.DropletIDs)
	}
	later := a.droplet(DropletSpec{Name: "c", Tags: []string{"WEB"}})
	if got := a.get(tagged.ID).DropletIDs; !slices.Equal(got, []int{later.ID}) {
		t.Errorf("a droplet that carries the tag is not assigned: %v", got)
	}
}

func TestForwardingRules(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	lb := a.create("web", nil)
	path := "/v2/load_balancers/" + lb.ID + "/forwarding_rules"
	body := func(port int) map[string]any {
		return map[string]any{"forwarding_rules": []any{rule("tcp", port, "tcp", map[string]any{"target_port": 30080})}}
	}
	a.want(204, "POST", path, body(81), "", nil)
	a.refused(422, "POST", path, body(81), "used twice")
	a.refused(422, "POST", path, body(50053), "reserved")
	a.want(204, "DELETE", path, body(80), "", nil)
	a.refused(422, "DELETE", path, body(81), "at least one")
	if got := a.get(lb.ID).ForwardingRules; len(got) != 1 || got[0].EntryPort != 81 {
		t.Errorf("rules: %+v", got)
	}
}

func TestFiltersOfLoadBalancers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	first := a.create("a", nil)
	a.create("b", nil)
	a.create("c", nil)
	for query, want := range map[string]int{"": 3, "?names=a&names=c": 2, "?uuids=" + first.ID: 1, "?names=d": 0} {
		var list []LoadBalancer
		a.want(200, "GET", "/v2/load_balancers"+query, nil, "load_balancers", &list)
		if len(list) != want {
			t.Errorf("%q lists %d, not %d", query, len(list), want)
		}
	}
}
