// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

func rangeSeeds() []string {
	return []string{
		"10.0.0.0/8", " 198.51.100.7/32", "192.0.2.1", "192.0.2.9/24", "010.001.0.0/16", "10.0.0.0/08", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8",
		"2001:db8::/32", "2001:DB8:0:0::1/64", "::/0", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/90", "::ffff:a00:0/120", "fe80::1%eth0/64", "/8", "10.0.0.0/",
		"1.2.3/8", "1.2.3.4.5/8", "::1::/8", "00001::/16", "\t10.0.0.0/8\n", "0::010.0.0.1/128", "10.0.0.0/8/8", "..../8", "0.0.0.0/0", "256.0.0.0/8", "::g/8",
	}
}

// The second judge is Kubernetes' own parser, which the upstream project uses.
func compareRange(t *testing.T, s string) {
	t.Helper()
	var want string
	sets, err := utilnet.ParseIPNets(s)
	for key := range sets {
		want = key
	}
	got, ok := parseRange(s)
	if ok != (err == nil) || ok && got.String() != want {
		t.Errorf("%q: %s, %v; Kubernetes says %s, %v", s, got, ok, want, err)
	}
}

func TestParseRange(t *testing.T) {
	t.Parallel()
	for _, s := range rangeSeeds() {
		compareRange(t, s)
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range rangeSeeds() {
		f.Add(s)
	}
	f.Fuzz(compareRange)
}

// However the ranges are written and ordered, the rules are the same.
func TestSourceRangesAreStable(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{Spec: corev1.ServiceSpec{LoadBalancerSourceRanges: []string{" 198.51.100.7/32", "192.0.2.9/24", "192.0.2.0/24", "2001:DB8::/32"}}}
	f, _, err := firewallOf(s, annotation.Settings{Allow: []string{"ip:1.2.3.4"}, Deny: []string{"x"}})
	want := []string{"cidr:192.0.2.0/24", "cidr:198.51.100.7/32", "cidr:2001:db8::/32"}
	if err != nil || len(f.Allow) != 3 || f.Allow[0] != want[0] || f.Allow[1] != want[1] || f.Allow[2] != want[2] || len(f.Deny) != 1 {
		t.Errorf("%v, %v", f, err)
	}
}
