// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"
	"testing"
)

// Which firewall is managed: names and tags as people write them.
func TestFirewallOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		name, tags string
		want       []string // the name, then the tags; nil for none
		err        string
	}{
		"none":                {"", "", nil, ""},
		"one tag":             {"fw", "k8s:worker", []string{"fw", "k8s:worker"}, ""},
		"blanks and no tags":  {" fw ", " a, b ,,", []string{"fw", "a", "b"}, ""},
		"a name alone":        {"fw", " ,", nil, `PUBLIC_ACCESS_FIREWALL_NAME is "fw" and PUBLIC_ACCESS_FIREWALL_TAGS is " ,": set both`},
		"a blank name alone":  {" ", "a", nil, "set both to let a firewall be managed, or neither"},
		"tags without a name": {"", "a", nil, "set both to let a firewall be managed, or neither"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := map[string]string{envToken: "dop_v1_x", envFirewallName: tt.name, envFirewallTags: tt.tags}
			e, err := readEnvironment(func(name string) string { return values[name] }, "")
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			var got []string
			if e.firewallName != "" {
				got = append([]string{e.firewallName}, e.firewallTags...)
			}
			if err == nil && !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
