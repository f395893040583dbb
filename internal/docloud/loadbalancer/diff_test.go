// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// desired is the request for a Service, which must have one.
func desired(t *testing.T, in loadbalancer.Input) loadbalancer.Request {
	t.Helper()
	result := must.Get(loadbalancer.Desired(in)).Or(t)
	return result.Request
}

func messages(all []loadbalancer.Difference) []string {
	var out []string
	for _, d := range all {
		out = append(out, string(d.Field)+", "+string(d.Remedy)+": "+d.Message)
	}
	return out
}

// Every difference there can be, in words.
func TestDiffSentences(t *testing.T) {
	t.Parallel()
	const h = " every 3 s, timeout 5 s, healthy after 5, unhealthy after 3"
	yes := true
	for name, tt := range map[string]struct {
		annotations []string
		change      func(*loadbalancer.Observed)
		want        []string
	}{
		"nothing":      {nil, func(*loadbalancer.Observed) {}, nil},
		"name":         {[]string{"name", "web"}, func(o *loadbalancer.Observed) { o.Name = "old" }, []string{"name, update: the name is old instead of web"}},
		"type":         {nil, func(o *loadbalancer.Observed) { o.Type = "GLOBAL" }, []string{"type, none: the type is GLOBAL instead of REGIONAL"}},
		"network":      {nil, func(o *loadbalancer.Observed) { o.Network = "INTERNAL" }, []string{"network, none: the network is INTERNAL instead of EXTERNAL"}},
		"stack":        {nil, func(o *loadbalancer.Observed) { o.NetworkStack = "IPV4" }, []string{"network_stack, none: the network stack is IPV4 instead of DUALSTACK"}},
		"region":       {nil, func(o *loadbalancer.Observed) { o.Region = "ams3" }, []string{"region, none: the region is ams3 instead of nyc1"}},
		"VPC":          {nil, func(o *loadbalancer.Observed) { o.VPC = "x" }, []string{"vpc_uuid, none: the VPC is x instead of vpc"}},
		"subnet":       {[]string{"subnet-uuid", "s"}, func(o *loadbalancer.Observed) { o.Subnet = "x" }, []string{"subnet_uuid, update: the subnet is x instead of s"}},
		"size":         {[]string{"size-unit", "2"}, func(o *loadbalancer.Observed) { o.SizeUnit = 1 }, []string{"size_unit, update: the size is 1 instead of 2"}},
		"size by slug": {[]string{"size-slug", "lb-large"}, func(o *loadbalancer.Observed) { o.SizeSlug, o.SizeUnit = "lb-medium", 0 }, []string{"size_unit, update: the size is 3 instead of 6"}},
		"same size":    {[]string{"size-slug", "lb-medium"}, func(o *loadbalancer.Observed) { o.SizeSlug, o.SizeUnit = "", 3 }, nil},
		"rules": {
			[]string{"certificate-id", "c"}, func(o *loadbalancer.Observed) {
				o.ForwardingRules = []loadbalancer.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 443, TargetProtocol: "tcp", TargetPort: 30443}}
			},
			[]string{
				"forwarding_rules, update: forwarding rule tcp:80 → tcp:30080 is missing",
				"forwarding_rules, update: forwarding rule https:443 → http:30443 with certificate c is missing",
				"forwarding_rules, update: forwarding rule tcp:443 → tcp:30443 is not wanted",
			},
		},
		"health check":                    {nil, func(o *loadbalancer.Observed) { o.HealthCheck.Port = 80 }, []string{"health_check, update: the health check is http:80/healthz" + h + " instead of http:10256/healthz" + h}},
		"PROXY protocol of health checks": {nil, func(o *loadbalancer.Observed) { o.HealthCheck.ProxyProtocol = &yes }, []string{"health_check, update: the PROXY protocol in health checks is on instead of off"}},
		"stickiness": {
			[]string{"sticky-sessions-type", "cookies", "sticky-sessions-cookie-name", "c", "sticky-sessions-cookie-ttl", "60"},
			func(o *loadbalancer.Observed) { o.StickySessions = nil }, []string{`sticky_sessions, update: the stickiness of sessions is none instead of cookies "c" for 60 s`},
		},
		"droplets": {nil, func(o *loadbalancer.Observed) { o.DropletIDs = []int{7, 1, 8} }, []string{
			"droplet_ids, update: droplets 2, 3 are missing", "droplet_ids, update: droplets 7, 8 are not wanted",
		}},
		"one droplet": {nil, func(o *loadbalancer.Observed) { o.DropletIDs = []int{3, 1} }, []string{"droplet_ids, update: droplet 2 is missing"}},
		"many droplets": {nil, func(o *loadbalancer.Observed) {
			o.DropletIDs = []int{1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22}
		}, []string{
			"droplet_ids, update: droplets 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 2 more are not wanted",
		}},
		"droplets by tag": {nil, func(o *loadbalancer.Observed) { o.DropletIDs, o.DropletTag = nil, "web" }, []string{
			"tag, update: droplets are assigned by tag web instead of by ID", "droplet_ids, update: droplets 1, 2, 3 are missing",
		}},
		"tag":              {nil, func(o *loadbalancer.Observed) { o.Tags = []string{"x"} }, []string{"tags, tag: tag k8s:c1 is missing"}},
		"flags":            {[]string{"redirect-http-to-https", "true"}, func(o *loadbalancer.Observed) { o.RedirectHTTPToHTTPS, o.EnableProxyProtocol = false, true }, []string{"redirect_http_to_https, update: the redirection of HTTP to HTTPS is off instead of on", "enable_proxy_protocol, update: the PROXY protocol is on instead of off"}},
		"more flags":       {nil, func(o *loadbalancer.Observed) { o.EnableBackendKeepalive, o.DisableLetsEncryptDNSRecords = true, true }, []string{"enable_backend_keepalive, update: keeping connections to droplets open is on instead of off", "disable_lets_encrypt_dns_records, update: leaving out DNS records for Let's Encrypt is on instead of off"}},
		"idle timeout":     {[]string{"http-idle-timeout-seconds", "90"}, func(o *loadbalancer.Observed) { o.HTTPIdleTimeoutSeconds = nil }, []string{"http_idle_timeout_seconds, update: the idle timeout of HTTP in seconds is 60 instead of 90"}},
		"firewall":         {[]string{"allow-rules", "ip:1.2.3.4, cidr:10.0.0.0/8"}, func(o *loadbalancer.Observed) { o.Firewall.Allow = []string{"cidr:10.0.0.0/8", "ip:9.9.9.9"} }, []string{"firewall.allow, update: allow rule ip:1.2.3.4 is missing", "firewall.allow, update: allow rule ip:9.9.9.9 is not wanted"}},
		"firewall removed": {nil, func(o *loadbalancer.Observed) { o.Firewall = &loadbalancer.Firewall{Deny: []string{"ip:9.9.9.9"}} }, []string{"firewall.deny, update: deny rule ip:9.9.9.9 is not wanted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := desired(t, input(service(tt.annotations...)))
			o := keeps(r)
			tt.change(&o)
			if diff := cmp.Diff(tt.want, messages(loadbalancer.Diff(o, r))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What means the same does not differ: an upgraded cluster sees no PUT.
func TestNoFalseDifferences(t *testing.T) {
	t.Parallel()
	zero, sixty := uint64(0), uint64(60)
	for name, tt := range map[string]struct {
		annotations []string
		change      func(*loadbalancer.Observed)
	}{
		"tags are not shown to the token": {nil, func(o *loadbalancer.Observed) { o.Tags = nil }},
		"the VPC is not shown":            {nil, func(o *loadbalancer.Observed) { o.VPC = "" }},
		"the health check is not shown":   {nil, func(o *loadbalancer.Observed) { o.HealthCheck = nil }},
		"the algorithm is ignored":        {[]string{"algorithm", "least_connections"}, func(*loadbalancer.Observed) {}},
		"no sticky sessions are none":     {nil, func(o *loadbalancer.Observed) { o.StickySessions = &loadbalancer.StickySessions{} }},
		"an empty firewall is none": {nil, func(o *loadbalancer.Observed) {
			o.Firewall = &loadbalancer.Firewall{Allow: []string{}, Deny: []string{}}
		}},
		"size 1 is the default":                   {[]string{"size-unit", "0"}, func(o *loadbalancer.Observed) { o.SizeUnit = 1 }},
		"the small size is 1":                     {[]string{"size-slug", "lb-small"}, func(o *loadbalancer.Observed) { o.SizeSlug, o.SizeUnit = "", 1 }},
		"sixty seconds are the default":           {nil, func(o *loadbalancer.Observed) { o.HTTPIdleTimeoutSeconds = &sixty }},
		"no seconds are the default":              {[]string{"http-idle-timeout-seconds", "0"}, func(o *loadbalancer.Observed) { o.HTTPIdleTimeoutSeconds = &zero }},
		"a path means nothing to TCP":             {[]string{"override-health-check", ""}, func(o *loadbalancer.Observed) { o.HealthCheck.Path = "/" }},
		"nor does a path that is asked for":       {[]string{"override-health-check", "", "healthcheck-path", "/p", "healthcheck-protocol", "tcp"}, func(*loadbalancer.Observed) {}},
		"the PROXY protocol is not shown":         {nil, func(o *loadbalancer.Observed) { o.HealthCheck.ProxyProtocol = nil }},
		"the PROXY protocol is left to it":        {[]string{"override-health-check", ""}, func(o *loadbalancer.Observed) { no := false; o.HealthCheck.ProxyProtocol = &no }},
		"figures of 0 are the API's":              {[]string{"healthcheck-check-interval-seconds", "0", "healthcheck-healthy-threshold", "0"}, func(*loadbalancer.Observed) {}},
		"the subnet is not asked for":             {nil, func(o *loadbalancer.Observed) { o.Subnet = "theirs" }},
		"the name is not shown":                   {nil, func(o *loadbalancer.Observed) { o.Name = "" }},
		"rules and droplets stand in any order":   {[]string{"certificate-id", "c", "http3-port", "443"}, func(o *loadbalancer.Observed) { slices.Reverse(o.ForwardingRules); slices.Reverse(o.DropletIDs) }},
		"somebody else's tags are not our affair": {nil, func(o *loadbalancer.Observed) { o.Tags = append(o.Tags, "a", "k8s:other") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := desired(t, input(service(tt.annotations...)))
			o := keeps(r)
			tt.change(&o)
			if got := messages(loadbalancer.Diff(o, r)); got != nil {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestRemedies(t *testing.T) {
	t.Parallel()
	r := desired(t, input(service()))
	o := keeps(r)
	o.DropletIDs, o.Tags, o.Region = []int{1, 9}, []string{}, "ams3"
	all := loadbalancer.Diff(o, r)
	if len(loadbalancer.Curable(all, loadbalancer.RemedyUpdate)) != 2 || len(loadbalancer.Curable(all, loadbalancer.RemedyTag)) != 1 ||
		len(loadbalancer.Curable(all, loadbalancer.RemedyNone)) != 1 {
		t.Errorf("%q", messages(all))
	}
	add, remove, ok := loadbalancer.OnlyTargets(all)
	if !ok || !slices.Equal(add, []int{2, 3}) || !slices.Equal(remove, []int{9}) {
		t.Errorf("%v, %v, %v", add, remove, ok)
	}
	o.EnableProxyProtocol = true
	if _, _, ok := loadbalancer.OnlyTargets(loadbalancer.Diff(o, r)); ok {
		t.Error("more than targets differs")
	}
	if _, _, ok := loadbalancer.OnlyTargets(nil); ok {
		t.Error("nothing differs")
	}
	stubborn := loadbalancer.Diff(o, r)
	o.RedirectHTTPToHTTPS = true
	if got := messages(loadbalancer.Except(loadbalancer.Diff(o, r), stubborn)); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// A PUT may replace all tags: it carries those that people have given, after ours and in a fixed order, and those of no other cluster.
func TestTagsOfOthersAreSentAlong(t *testing.T) {
	t.Parallel()
	in := input(service())
	for _, tt := range []struct{ observed, want []string }{
		{nil, []string{"k8s:c1"}}, {[]string{}, []string{"k8s:c1"}}, {[]string{"k8s:c1"}, []string{"k8s:c1"}},
		{[]string{"web", "k8s:c1", "edge", "web"}, []string{"k8s:c1", "edge", "web"}}, {[]string{"k8s:c2", "web"}, []string{"k8s:c1", "web"}},
	} {
		in.Observed = &loadbalancer.Observed{ID: "lb", Type: regional, Tags: tt.observed}
		result, err := loadbalancer.Desired(in)
		if err != nil || !slices.Equal(result.Request.Tags, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.observed, result.Request.Tags, err, tt.want)
		}
	}
	in.Cluster.ID = ""
	in.Observed.Tags = []string{"web"}
	if result, err := loadbalancer.Desired(in); err != nil || result.Request.Tags != nil {
		t.Errorf("without a cluster ID: %q, %v; want none, which changes none", result.Request.Tags, err)
	}
}
