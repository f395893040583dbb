// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// topologies returns a client of a cluster that serves RouteReflectorTopology.
func topologies(t *testing.T) client.Client {
	t.Helper()
	return serve(t, "routereflectortopologies", v1alpha1.AddToScheme)
}

// object is a topology as a user writes it.
func object(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return written(t, v1alpha1.GroupVersion, "RouteReflectorTopology", name, spec)
}

// What SetDefaults fills in for readers of files is what the API server fills in.
func TestDefaultsAreTheAPIServers(t *testing.T) {
	t.Parallel()
	c := topologies(t)
	for name, spec := range map[string]string{
		"empty": "{}", "zones": "{sizing: {perZone: {}}}", "some": "{mode: Flat, failure: {notReadyGrace: 90s}, topologyKeys: [rack], reflectors: {tolerations: []}}",
	} {
		created := object(t, "defaults-"+name, spec)
		must.Do(t, c.Create(t.Context(), created))
		var want, got v1alpha1.RouteReflectorTopology
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &want))
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object(t, "x", spec).Object, &got))
		v1alpha1.SetDefaults(&got)
		if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A program that leaves everything out gets the defaults as well.
func TestATypedClientGetsTheDefaults(t *testing.T) {
	t.Parallel()
	c := topologies(t)
	created := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "typed"}}
	must.Do(t, c.Create(t.Context(), created))
	var want v1alpha1.RouteReflectorTopology
	v1alpha1.SetDefaults(&want)
	if diff := cmp.Diff(want.Spec, created.Spec); diff != "" {
		t.Error(diff)
	}
}

// Every rule of the kind: what it accepts, what it rejects, and in which words.
func TestRules(t *testing.T) {
	t.Parallel()
	c := topologies(t)
	rules := []struct{ accepted, rejected, message string }{
		{"{redundancy: 2}", "{redundancy: 1}", "spec.redundancy: Invalid value: 1: spec.redundancy in body should be greater than or equal to 2"},
		{"{redundancy: 6}", "{redundancy: 7}", "spec.redundancy: Invalid value: 7: spec.redundancy in body should be less than or equal to 6"},
		{"{sizing: {perZone: {}}}", "{redundancy: 3, sizing: {perZone: {}}}", "spec.redundancy and spec.sizing.perZone: set one of them, since each says how many reflectors there are"},
		{"{sizing: {perZone: {}}, topologyKeys: [zone]}", "{sizing: {perZone: {}}, topologyKeys: []}", "spec.sizing.perZone: needs spec.topologyKeys, whose first key names the zones"},
		{"{sizing: {perZone: {min: 2, max: 2}}}", "{sizing: {perZone: {min: 3, max: 2}}}", "spec.sizing.perZone: min must not be greater than max"},
		{"{rollout: {maxUnavailable: 1}}", "{rollout: {maxUnavailable: 2}}", "spec.rollout.maxUnavailable: must be 1, since this version changes reflectors one at a time"},
		{"{rollout: {mode: Manual, approvedPlan: 0123456789ab}}", "{rollout: {approvedPlan: 0123456789ab}}", "spec.rollout.approvedPlan: only with spec.rollout.mode Manual"},
		{"{rollout: {mode: DryRun}}", "{rollout: {mode: Perhaps}}", `supported values: "Auto", "Manual", "DryRun"`},
		{"{clusterID: 10.0.0.1}", "{clusterID: 10.0.0.256}", "spec.clusterID: must be an IPv4 address other than 0.0.0.0, such as 244.0.0.1"},
		{"{clusterID: 1.0.0.0}", "{clusterID: 0.0.0.0}", "spec.clusterID: must be an IPv4 address other than 0.0.0.0"},
		{"{clusterID: 255.255.255.254}", `{clusterID: "fd00::1"}`, "spec.clusterID: must be an IPv4 address other than 0.0.0.0"},
		{"{clusterIDRange: 10.0.0.0/24}", "{clusterIDRange: 10.0.0.0/25}", "spec.clusterIDRange: must be an IPv4 network of 256 addresses or more, such as 244.0.0.0/16"},
		{"{clusterIDRange: 10.0.0.0/8}", `{clusterIDRange: "fd00::/8"}`, "spec.clusterIDRange: must be an IPv4 network"},
		{"{clusterIDRange: 100.100.0.0/16}", "{clusterIDRange: 10.0.0.1}", "spec.clusterIDRange: must be an IPv4 network"},
		{"{failure: {notReadyGrace: 10s}}", "{failure: {notReadyGrace: 9s}}", "spec.failure.notReadyGrace: must be from 10s to 24h"},
		{"{failure: {unreachableGrace: 24h}}", "{failure: {unreachableGrace: 25h}}", "spec.failure.unreachableGrace: must be from 10s to 24h"},
		{"{failure: {stabilization: 0s}}", "{failure: {stabilization: -1s}}", "spec.failure.stabilization: must be from 0s to 24h"},
		{"{failure: {promoteAfter: 0s, spares: 0}}", "{failure: {promoteAfter: 25h}}", "spec.failure.promoteAfter: must be from 0s to 24h"},
		{"{failure: {spares: 16}}", "{failure: {spares: 17}}", "spec.failure.spares in body should be less than or equal to 16"},
		{"{rollout: {sessionTimeout: 1h}}", "{rollout: {sessionTimeout: 61m}}", "spec.rollout.sessionTimeout: must be from 10s to 1h"},
		{"{session: {maxRestartTime: 1s}}", "{session: {maxRestartTime: 0s}}", "spec.session.maxRestartTime: must be from 1s to 1h"},
		{"{session: {ttlSecurity: 254}}", "{session: {ttlSecurity: 255}}", "spec.session.ttlSecurity in body should be less than or equal to 254"},
		{"{session: {sourceAddress: None}}", "{session: {sourceAddress: Some}}", `supported values: "UseNodeIP", "None"`},
		{"{mesh: Ignore}", "{mesh: Forget}", `supported values: "Manage", "Observe", "Ignore"`},
		{"{mode: Hierarchical}", "{mode: Star}", `supported values: "Flat", "Hierarchical", "Auto"`},
		{"{reflectors: {preferred: [{weight: 100, selector: {}}]}}", "{reflectors: {preferred: [{weight: 101, selector: {}}]}}", "should be less than or equal to 100"},
		{"{sizing: {maxClientsPerReflector: 5000}}", "{sizing: {maxClientsPerReflector: 5001}}", "should be less than or equal to 5000"},
		{"{sizing: {hysteresisPercent: 0}}", "{sizing: {hysteresisPercent: 91}}", "should be less than or equal to 90"},
		{"{topologyKeys: [a, b]}", "{topologyKeys: [a, a]}", `Duplicate value: "a"`},
		{"{ipFamilies: [IPv6]}", "{ipFamilies: [IPv6, IPv6]}", "Duplicate value"},
		{"{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-*, a, a*]}}", "{adopt: {nodes: {}, bgpPeers: [a]}}",
			"spec.adopt.nodes: must say by which labels the reflectors are known, such as matchLabels route-reflector: \"true\""},
		{"{adopt: {nodes: {matchExpressions: [{key: a, operator: Exists}]}, bgpPeers: [a.b-c]}}", "{adopt: {nodes: {matchLabels: {}, matchExpressions: []}, bgpPeers: [a]}}",
			"spec.adopt.nodes: must say by which labels the reflectors are known"},
		{"{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [a]}}", "{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: []}}", "should have at least 1 items"},
		{"{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [a, b]}}", "{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [a, a]}}", `Duplicate value: "a"`},
		{"{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [0*]}}", `{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: ["*"]}}`, "should match"},
		{"{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: [a-*]}}", `{adopt: {nodes: {matchLabels: {a: b}}, bgpPeers: ["a*b"]}}`, "should match"},
		{"{session: {filters: [a, b]}}", "{session: {filters: [a, a]}}", `Duplicate value: "a"`},
	}
	for i, rule := range rules {
		name := fmt.Sprintf("rule-%d", i)
		if err := c.Create(t.Context(), object(t, name+"-a", rule.accepted), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", rule.accepted, err)
		}
		err := c.Create(t.Context(), object(t, name+"-r", rule.rejected), client.DryRunAll)
		if err == nil || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule.message) {
			t.Errorf("%s: %v, want\n%s", rule.rejected, err, rule.message)
		}
	}
	for _, message := range messages(t) {
		if !slices.ContainsFunc(rules, func(r struct{ accepted, rejected, message string }) bool {
			return strings.HasPrefix(message, r.message)
		}) &&
			!strings.HasPrefix(message, "metadata.name: ") && !strings.HasPrefix(message, "spec.clusterID: cannot be changed") { // which follow
			t.Errorf("no case is rejected with %q", message)
		}
	}
	long := object(t, strings.Repeat("x", 41), "{}")
	if err := c.Create(t.Context(), long, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "metadata.name: at most 40 characters, since the names of BGPPeers are made of it") {
		t.Errorf("a long name: %v", err)
	}
	if err := c.Create(t.Context(), object(t, strings.Repeat("x", 40), "{}"), client.DryRunAll); err != nil {
		t.Errorf("a name of 40 characters: %v", err)
	}
}

// messages are those of all CEL rules of the kind.
func messages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "config", "crd", "bases", v1alpha1.GroupVersion.Group+"_routereflectortopologies.yaml"))
	must.Do(t, err)
	var crd any
	must.Do(t, yaml.Unmarshal(text, &crd))
	var out []string
	var walk func(at any)
	walk = func(at any) {
		switch is := at.(type) {
		case map[string]any:
			validations, _ := is["x-kubernetes-validations"].([]any)
			for _, v := range validations {
				if rule, ok := v.(map[string]any); ok {
					message, _ := rule["message"].(string)
					out = append(out, message)
				}
			}
			for _, below := range is {
				walk(below)
			}
		case []any:
			for _, below := range is {
				walk(below)
			}
		}
	}
	walk(crd)
	if len(out) < 10 {
		t.Fatalf("there are only %d rules: %q", len(out), out)
	}
	return out
}

// A cluster ID is for good, since to change it resets the sessions of every reflector.
func TestTheClusterIDIsForGood(t *testing.T) {
	t.Parallel()
	c := topologies(t)
	o := object(t, "id", "{}")
	must.Do(t, c.Create(t.Context(), o))
	must.Do(t, unstructured.SetNestedField(o.Object, "244.0.0.9", "spec", "clusterID"))
	want := "spec.clusterID: cannot be changed, since each reflector would lose its sessions; delete the topology, which brings the mesh back, and create it with the new ID"
	if err := c.Update(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
