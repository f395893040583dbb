// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
)

// examplePolicy is the one of docs/examples with another list of rules, in YAML, if there is one.
func examplePolicy(t *testing.T, egress string) calicov3.GlobalNetworkPolicy {
	t.Helper()
	text, err := os.ReadFile("../../../docs/examples/calico/bgp-port.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("kind: GlobalNetworkPolicy")) {
			continue
		}
		var p calicov3.GlobalNetworkPolicy
		if err := yaml.UnmarshalStrict(document, &p); err != nil {
			t.Fatal(err)
		}
		if egress != "" {
			p.Spec.Egress = nil
			if err := yaml.UnmarshalStrict([]byte(egress), &p.Spec.Egress); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	t.Fatal("there is no GlobalNetworkPolicy")
	return calicov3.GlobalNetworkPolicy{}
}

// Which policies keep Pods from port 179 of every node, and which only seem to.
func TestPoliciesForBGP(t *testing.T) {
	t.Parallel()
	with := func(change func(*calicov3.GlobalNetworkPolicySpec)) calicov3.GlobalNetworkPolicy {
		p := examplePolicy(t, "")
		change(&p.Spec)
		return p
	}
	const deny = "- {action: Deny, protocol: TCP, destination: {ports: [179]}}\n"
	for name, c := range map[string]struct {
		policy calicov3.GlobalNetworkPolicy
		closed bool
	}{
		"the example":             {examplePolicy(t, ""), true},
		"everything is denied":    {examplePolicy(t, "- {action: Deny}"), true},
		"a range":                 {examplePolicy(t, "- {action: Deny, protocol: 6, destination: {ports: ['1:1023']}}"), true},
		"UDP passes before":       {examplePolicy(t, "- {action: Allow, protocol: UDP}\n"+deny), true},
		"it is logged before":     {examplePolicy(t, "- {action: Log}\n"+deny), true},
		"the nodes' network":      {examplePolicy(t, "- {action: Deny, destination: {nets: [10.0.0.0/8]}}"), true},
		"another network":         {examplePolicy(t, "- {action: Deny, destination: {nets: [192.0.2.0/24]}}"), false},
		"another network, then":   {examplePolicy(t, "- {action: Deny, destination: {nets: [192.0.2.0/24]}}\n"+deny), true},
		"all passes before":       {examplePolicy(t, "- {action: Pass}\n"+deny), false},
		"some are allowed before": {examplePolicy(t, "- {action: Allow, source: {selector: a == 'b'}}\n"+deny), false},
		"another port":            {examplePolicy(t, "- {action: Deny, protocol: TCP, destination: {ports: [1790]}}"), false},
		"all ports but this":      {examplePolicy(t, "- {action: Deny, protocol: TCP, destination: {notPorts: [179]}}"), false},
		"some sources":            {examplePolicy(t, "- {action: Deny, source: {selector: a == 'b'}}"), false},
		"one namespace": {with(func(s *calicov3.GlobalNetworkPolicySpec) {
			s.NamespaceSelector = "projectcalico.org/name == 'a'"
		}), false},
		"some Pods":             {with(func(s *calicov3.GlobalNetworkPolicySpec) { s.Selector = "has(a)" }), false},
		"some service accounts": {with(func(s *calicov3.GlobalNetworkPolicySpec) { s.ServiceAccountSelector = "has(a)" }), false},
		"only what comes in": {with(func(s *calicov3.GlobalNetworkPolicySpec) {
			s.Types = []calicov3.PolicyType{calicov3.PolicyTypeIngress}
		}), false},
	} {
		found := portFinding(t, doctor.Evidence{Policies: []calicov3.GlobalNetworkPolicy{c.policy}})
		if got := len(found) == 1 && found[0].Severity == finding.OK; got != c.closed {
			t.Errorf("%s: closed %v, want %v: %+v", name, got, c.closed, found)
		}
	}
}

// portFinding is the finding about the port, of nine nodes with three reflectors.
func portFinding(t *testing.T, e doctor.Evidence) []finding.Finding {
	t.Helper()
	e.Nodes, e.Mesh = reflect(nodes(9), 3, shared), routereflector.Mesh{Exists: true}
	if e.Peers == nil {
		e.Peers = usual(t)
	}
	return slices.DeleteFunc(doctor.Findings(e), func(f finding.Finding) bool { return f.Check != "bgp-port" })
}

func TestBGPPort(t *testing.T) {
	t.Parallel()
	secret := func(peers []routereflector.Peer) []routereflector.Peer {
		for i := range peers {
			peers[i].PasswordSecret = "bgp"
		}
		return peers
	}
	read := []calicov3.GlobalNetworkPolicy{}
	for name, c := range map[string]struct {
		evidence doctor.Evidence
		want     string
	}{
		"nobody looked": {doctor.Evidence{}, ""},
		"passwords":     {doctor.Evidence{Peers: secret(usual(t))}, "ok: the BGP sessions of nodes have passwords"},
		"passwords of some": {
			doctor.Evidence{Peers: append(secret(usual(t)), peer(t, "more", "all()", "all()")), Policies: read},
			"note: Pods can connect to TCP port 179 of the nodes: the sessions of BGPPeers more have no password",
		},
		"nothing": {
			doctor.Evidence{Policies: read},
			"note: Pods can connect to TCP port 179 of the nodes: the sessions of BGPPeers clients, reflectors have no password",
		},
		"routers are another matter": {doctor.Evidence{Peers: []routereflector.Peer{router(t, "tor", "all()")}, Policies: read}, ""},
		"unread": {
			doctor.Evidence{NoPolicies: "forbidden"},
			"note: whether a GlobalNetworkPolicy denies Pods TCP port 179 of the nodes is unknown: forbidden",
		},
	} {
		got := ""
		for _, f := range portFinding(t, c.evidence) {
			got += fmt.Sprintf("%s: %s", f.Severity, f.What)
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if found := portFinding(t, doctor.Evidence{Policies: read}); len(found) != 1 || !strings.Contains(found[0].Do, "docs/examples/calico/bgp-port.yaml") {
		t.Errorf("the next step is missing: %+v", found)
	}
}
