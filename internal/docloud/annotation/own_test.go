// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// The annotations that the upstream project does not know: what is refused, in one sentence each.
func TestOwnAnnotations(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	long := strings.Repeat(label+".", 3) + strings.Repeat("a", 61)
	const domains = p + `certificate-domains is "`
	const must = `", it must be domain names separated by commas, without blanks, each such as example.com or *.example.com`
	for name, tt := range map[string]struct {
		pairs   []string
		domains []string
		want    string
	}{
		"one":                 {pairs: []string{"certificate-domains", "example.com"}, domains: []string{"example.com"}},
		"some":                {pairs: []string{"certificate-domains", "www.Example.com,*.example.com,example.com,www.example.com"}, domains: []string{"*.example.com", "example.com", "www.example.com"}},
		"in punycode":         {pairs: []string{"certificate-domains", "xn--bcher-kva.example"}, domains: []string{"xn--bcher-kva.example"}},
		"as long as can be":   {pairs: []string{"certificate-domains", long}, domains: []string{long}},
		"none":                {pairs: []string{"certificate-domains", ""}},
		"too long":            {pairs: []string{"certificate-domains", "a" + long}, want: "annotation " + domains + ("a" + long)[:100] + "…" + must},
		"too long a label":    {pairs: []string{"certificate-domains", "a" + label + ".example"}, want: "annotation " + domains + "a" + label + ".example" + must},
		"a single label":      {pairs: []string{"certificate-domains", "localhost"}, want: "annotation " + domains + "localhost" + must},
		"an address":          {pairs: []string{"certificate-domains", "192.0.2.1"}, want: "annotation " + domains + "192.0.2.1" + must},
		"a blank":             {pairs: []string{"certificate-domains", "a.example, b.example"}, want: "annotation " + domains + "a.example, b.example" + must},
		"an empty element":    {pairs: []string{"certificate-domains", "a.example,"}, want: "annotation " + domains + "a.example," + must},
		"a wildcard inside":   {pairs: []string{"certificate-domains", "a.*.example"}, want: "annotation " + domains + "a.*.example" + must},
		"a URL":               {pairs: []string{"certificate-domains", "https://a.example"}, want: "annotation " + domains + "https://a.example" + must},
		"beside an ID":        {pairs: []string{"certificate-domains", "a.example", "certificate-id", "c"}, want: "annotation " + domains + `a.example", but ` + p + `certificate-id is "c": give one of them`},
		"beside a name":       {pairs: []string{"certificate-domains", "a.example", "certificate-name", "n"}, want: "annotation " + domains + `a.example", but ` + p + `certificate-name is "n": give one of them`},
		"no project":          {pairs: []string{"project-id", ""}},
		"a name of a project": {pairs: []string{"project-id", "web"}, want: "annotation " + p + `project-id is "web", it must be the UUID of a project`},
		"a reserved IP": {
			pairs: []string{"reserved-ip", "192.0.2.1"},
			want:  "annotation " + p + `reserved-ip is "192.0.2.1", it must be left out: DigitalOcean gives reserved IPs to droplets only, and a load balancer its address when it is made`,
		},
	} {
		s, warnings, err := annotation.Parse(with(tt.pairs...), regional())
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || cmp.Diff(tt.domains, s.CertificateDomains) != "" || len(warnings) > 0 {
			t.Errorf("%s: %q, %q, %s\nwant %s", name, s.CertificateDomains, warnings, got, tt.want)
		}
	}
}
