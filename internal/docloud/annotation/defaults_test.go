// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func defaults(t *testing.T, pairs ...string) annotation.Defaults {
	t.Helper()
	d, _, err := annotation.NewDefaults(with(pairs...))
	must.Do(t, err)
	return d
}

// What cannot be a default is refused at the start, in one sentence that names it.
func TestDefaultsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pairs []string
		want  string
	}{
		"the ID":                    {[]string{annotation.LoadBalancerID, "x"}, `annotation kubernetes.digitalocean.com/load-balancer-id cannot have a default: it names the load balancer of one Service`},
		"the name":                  {[]string{"name", "x"}, `annotation ` + p + `name cannot have a default: names are unique in an account`},
		"the type":                  {[]string{"type", "REGIONAL"}, `annotation ` + p + `type cannot have a default: set DEFAULT_LB_TYPE for that`},
		"an address":                {[]string{"ip", "192.0.2.1"}, `annotation ` + p + `ip cannot have a default: it is the address of one load balancer`},
		"a certificate by ID":       {[]string{"certificate-id", "x"}, `annotation ` + p + `certificate-id cannot have a default: the ID of a Let's Encrypt certificate changes whenever it is renewed, use certificate-name or certificate-domains`},
		"a host name":               {[]string{"hostname", "example.com"}, `annotation ` + p + `hostname cannot have a default: it would be the name of every load balancer`},
		"the override":              {[]string{"override-health-check", ""}, `annotation ` + p + `override-health-check cannot have a default: its presence counts, so that no Service could turn it off`},
		"letting go":                {[]string{annotation.Disown, "true"}, `annotation service.kubernetes.io/do-loadbalancer-disown cannot have a default: no load balancer would be managed`},
		"a reserved IP":             {[]string{"reserved-ip", "192.0.2.1"}, `annotation ` + p + `reserved-ip cannot have a default: no load balancer can have a reserved IP`},
		"a slip":                    {[]string{"size-unitt", "2"}, `annotation ` + p + `size-unitt is not known; did you mean ` + p + `size-unit?`},
		"a short name":              {[]string{"size-unit", "2", "example.com/x", "y"}, `annotation example.com/x is not known`},
		"a wrong value":             {[]string{"protocol", "udp"}, `annotation ` + p + `protocol is "udp", it must be one of tcp, http, https, http2 and http3`},
		"a doubtful value":          {[]string{"http-idle-timeout-seconds", "5"}, `annotation ` + p + `http-idle-timeout-seconds is "5", which DigitalOcean will refuse: it takes 30 to 600 seconds`},
		"no boolean":                {[]string{annotation.FirewallManaged, "no"}, `annotation kubernetes.digitalocean.com/firewall-managed is "no", which is neither true nor false: the firewall opens the Service's ports`},
		"two sizes":                 {[]string{"size-unit", "2", "size-slug", "lb-small"}, `annotation ` + p + `size-unit is "2", but ` + p + `size-slug is "lb-small": give one of them`},
		"certificate, passed":       {[]string{"certificate-name", "web", "tls-passthrough", "1"}, `annotation ` + p + `certificate-name is "web" and ` + p + `tls-passthrough is "1": only one of them can be a default`},
		"domains, passed":           {[]string{"certificate-domains", "a.example", "tls-passthrough", "1"}, `annotation ` + p + `certificate-domains is "a.example" and ` + p + `tls-passthrough is "1": only one of them can be a default`},
		"certificate, domains":      {[]string{"certificate-name", "web", "certificate-domains", "a.example"}, `annotation ` + p + `certificate-domains is "a.example", but ` + p + `certificate-name is "web": give one of them`},
		"internal and dual":         {[]string{"network", "INTERNAL", "network-stack", "DUALSTACK"}, `annotation ` + p + `network is "INTERNAL" and ` + p + `network-stack is "DUALSTACK": an internal load balancer has no IPv6 address`},
		"no project":                {[]string{"project-id", "mine"}, `annotation ` + p + `project-id is "mine", it must be the UUID of a project`},
		"sticky without its cookie": {[]string{"sticky-sessions-type", "cookies", "sticky-sessions-cookie-ttl", "60"}, `annotation ` + p + `sticky-sessions-cookie-name is "", it must be the name of a cookie, since ` + p + `sticky-sessions-type is cookies`},
		"two things":                {[]string{"name", "x", "hostname", "y"}, `annotation ` + p + `hostname cannot have a default: it would be the name of every load balancer; annotation ` + p + `name cannot have a default: names are unique in an account`},
	} {
		d, _, err := annotation.NewDefaults(with(tt.pairs...))
		if d != nil || err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, %v\nwant %s", name, d, err, tt.want)
		}
	}
	if _, _, err := annotation.NewDefaults(map[string]string{"size-unit": "2"}); err == nil || err.Error() != "annotation size-unit is not known; did you mean "+p+"size-unit?" {
		t.Error(err)
	}
}

// What can be one, with what is to be said of it.
func TestDefaultsThatCanBe(t *testing.T) {
	t.Parallel()
	for _, e := range annotation.Table() {
		if e.PerService != "" {
			continue
		}
		if d, _, err := annotation.NewDefaults(map[string]string{e.Name: right(e.Name)}); err != nil || d[e.Name] != right(e.Name) {
			t.Errorf("%s: %v, %v", e.Name, d, err)
		}
	}
	_, warnings, err := annotation.NewDefaults(with("algorithm", "least_connections", "healthcheck-path", "/ok", "size-unit", "0"))
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0].Message, "algorithm") || !strings.Contains(warnings[1].Message, "size-unit") {
		t.Errorf("%q, %v", warnings, err)
	}
	if d, warnings, err := annotation.NewDefaults(nil); len(d) != 0 || warnings != nil || err != nil {
		t.Errorf("%v, %v, %v", d, warnings, err)
	}
}

// right is a value that an annotation takes without a doubt.
func right(name string) string {
	switch form := annotation.FormOf(name); form.Kind {
	case annotation.KindChoice:
		return form.Choices[0]
	case annotation.KindBoolean:
		return "true"
	case annotation.KindUUID:
		return "4de7ac8b-495b-4884-9a69-1050c6793cd6"
	case annotation.KindDomains:
		return "example.com,*.example.com"
	case annotation.KindSeconds:
		return "60"
	case annotation.KindText, annotation.KindInteger, annotation.KindCount, annotation.KindPorts:
	}
	switch name {
	case annotation.AllowRules, annotation.DenyRules:
		return "cidr:10.0.0.0/8"
	case annotation.SubnetUUID:
		return "3d6f6fdc-8b7e-49fd-a3c2-0d73ec4e40b4"
	case annotation.FirewallManaged:
		return "false"
	case annotation.HealthCheckPath:
		return "/ok"
	}
	return "3"
}

// A Service's own word counts, and so does all that it says on the same subject.
func TestDefaultsGiveWay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ defaults, own, want []string }{
		"nothing of its own":            {[]string{"size-unit", "2"}, nil, []string{"size-unit", "2"}},
		"its own value":                 {[]string{"size-unit", "2"}, []string{"size-unit", "3"}, []string{"size-unit", "3"}},
		"its own emptiness":             {[]string{"size-unit", "2"}, []string{"size-unit", ""}, []string{"size-unit", ""}},
		"another":                       {[]string{"size-unit", "2"}, []string{"protocol", "http"}, []string{"size-unit", "2", "protocol", "http"}},
		"the other kind of size":        {[]string{"size-unit", "2"}, []string{"size-slug", "lb-small"}, []string{"size-slug", "lb-small"}},
		"a certificate by ID":           {[]string{"certificate-name", "web"}, []string{"certificate-id", "c"}, []string{"certificate-id", "c"}},
		"a certificate by domains":      {[]string{"certificate-name", "web"}, []string{"certificate-domains", "a.example"}, []string{"certificate-domains", "a.example"}},
		"passed through":                {[]string{"certificate-domains", "a.example"}, []string{"tls-passthrough", "true"}, []string{"tls-passthrough", "true"}},
		"not passed through":            {[]string{"certificate-name", "web"}, []string{"tls-passthrough", "false"}, []string{"certificate-name", "web", "tls-passthrough", "false"}},
		"a certificate, by default not": {[]string{"tls-passthrough", "true"}, []string{"certificate-name", "web"}, []string{"certificate-name", "web"}},
		"an internal network":           {[]string{"network-stack", "DUALSTACK"}, []string{"network", "INTERNAL"}, []string{"network", "INTERNAL"}},
		"an internal network and stack": {[]string{"network", "INTERNAL"}, []string{"network-stack", "DUALSTACK"}, []string{"network", "INTERNAL", "network-stack", "DUALSTACK"}},
	} {
		if diff := cmp.Diff(with(tt.want...), defaults(t, tt.defaults...).Over(with(tt.own...))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	own := with("name", "x")
	if got := annotation.Defaults(nil).Over(own); cmp.Diff(own, got) != "" {
		t.Errorf("without defaults: %q", got)
	}
}

// Anyone who reads the events of a Service has not written the defaults: no warning is about them, and an error says whose the value is.
func TestWhoseTheValueIs(t *testing.T) {
	t.Parallel()
	o := regional()
	o.Defaults = defaults(t, "http-ports", "80", "size-unit", "0", "healthcheck-path", "/ok", "certificate-domains", "b.example,A.example,b.example")
	s, warnings, err := annotation.Parse(nil, o)
	if err != nil || len(warnings) > 0 || len(s.HTTPPorts) != 1 {
		t.Errorf("%+v, %q, %v", s, warnings, err)
	}
	if diff := cmp.Diff([]string{"a.example", "b.example"}, s.CertificateDomains); diff != "" {
		t.Error(diff)
	}
	_, warnings, _ = annotation.Parse(with("size-unit", "0"), o)
	if len(warnings) != 1 {
		t.Errorf("its own: %q", warnings)
	}
	o.Defaults = defaults(t, "http2-ports", "443")
	_, _, err = annotation.Parse(with("tls-ports", "443"), o)
	want := `annotation ` + p + `http2-ports is "443" by the cluster's default, but port 443 is in ` + p + `tls-ports as well: it can have one protocol only`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	o.DefaultType = annotation.TypeRegionalNetwork
	if _, warnings, err = annotation.Parse(nil, o); err != nil || len(warnings) > 0 {
		t.Errorf("a type that does not use it: %q, %v", warnings, err)
	}
}

// A Service that is right by itself is right with every default that can be.
func TestDefaultsMakeNoServiceWrong(t *testing.T) {
	t.Parallel()
	var names []string
	for _, e := range annotation.Table() {
		names = append(names, e.Name)
	}
	values := []string{"", "true", "false", "443", "80", "8443", "http", "https", "cookies", "INTERNAL", "DUALSTACK", "lb-small", "2", "a.example", "web", "60"}
	lists := []string{annotation.HTTPPorts, annotation.TLSPorts, annotation.HTTP2Ports} // of those one port can be in one
	cases.Check(t, func(t *rapid.T) {
		draw := func(what string, from []string) map[string]string {
			out := map[string]string{}
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(from), 0, 5).Draw(t, what) {
				out[name] = rapid.SampledFrom(values).Draw(t, name)
			}
			return out
		}
		d, _, err := annotation.NewDefaults(draw("defaults", names))
		if err != nil {
			return
		}
		for _, name := range lists {
			delete(d, name)
		}
		own := draw("own", names)
		o := regional()
		if _, _, err := annotation.Parse(own, o); err != nil {
			return
		}
		o.Defaults = d
		if _, _, err := annotation.Parse(own, o); err != nil {
			t.Errorf("%q with defaults %q: %v", own, d, err)
		}
	})
}
