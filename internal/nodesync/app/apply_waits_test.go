// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// What may change by itself is worth waiting for. That a machine lives is an answer.
func TestApplyDoesNotWaitForAMachineThatLives(t *testing.T) {
	t.Parallel()
	gone := nodesync.Lookup{Node: "b", Verdict: nodesync.VerdictGone}
	for name, test := range map[string]struct {
		kubernetes []string
		named      []string
		lookups    []nodesync.Lookup
		pods       int
		domains    []string
		waits      string
	}{
		"its Kubernetes Node is listed":         {kubernetes: []string{"a", "b"}, named: []string{"b"}},
		"it is listed under its full name":      {kubernetes: []string{"a", "b.example.com"}, named: []string{"b"}, domains: []string{"example.com"}},
		"a live read finds it":                  {kubernetes: []string{"a"}, named: []string{"b"}, lookups: []nodesync.Lookup{{Node: "b", Verdict: nodesync.VerdictAlive}}},
		"a live read finds it, nobody named it": {kubernetes: []string{"a"}, lookups: []nodesync.Lookup{{Node: "b", Verdict: nodesync.VerdictAlive}}},
		"a live read fails": {
			kubernetes: []string{"a"}, named: []string{"b"}, lookups: []nodesync.Lookup{{Node: "b", Verdict: nodesync.VerdictUnknown, Detail: "timeout"}}, waits: "b",
		},
		"its pods run":                    {kubernetes: []string{"a"}, named: []string{"b"}, lookups: []nodesync.Lookup{gone}, pods: 1, waits: "b"},
		"another lives, and its pods run": {kubernetes: []string{"a"}, named: []string{"a", "b"}, lookups: []nodesync.Lookup{gone}, pods: 1, waits: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := nodesync.DefaultConfig()
			c.OneShot, c.Named, c.Domains, c.Grace = true, test.named, test.domains, 0
			w := nodesync.World{
				Now: time.Unix(1000, 0), Kubernetes: nodesync.Kubernetes{Synced: true, ClusterUID: "u", Lookups: test.lookups},
				Calico: nodesync.Calico{Ready: true, Binding: nodesync.Binding{ClusterUID: "u"}, Hosts: []nodesync.Host{{Name: "b"}}},
			}
			for _, name := range []string{"a", "b"} {
				w.Calico.Nodes = append(w.Calico.Nodes, nodesync.CalicoNode{
					Name: name, Revision: 1, OrchRefs: []nodesync.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: name}},
				})
			}
			for _, name := range test.kubernetes {
				w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, nodesync.KubernetesNode{Name: name})
			}
			w.Kubernetes.RunningPods = []nodesync.RunningPods{{Node: "b", Count: test.pods, Example: "ns/p"}}
			var out bytes.Buffer
			e := &errand{config: c, last: nodesync.MakePlan(w, c), account: newAccount(&out, &out, screen.Text), patience: time.Minute}
			e.shown = map[string]bool{"a": true, "b": true}
			wait := (&waits{}).next(e, w.Now)
			if (wait > 0) != (test.waits != "") || test.waits != "" && !strings.Contains(out.String(), "for 1 machine at most") {
				t.Errorf("waits %s, want for %q: %s%s", wait, test.waits, &out, e.last)
			}
			if e.more(e.last) != (test.waits != "") {
				t.Errorf("goes on trying: %t:\n%s", e.more(e.last), e.last)
			}
			if test.waits == "" && !nodesync.Held(e.leftAlone()) {
				t.Errorf("it is not said that it is left alone:\n%s", e.last)
			}
		})
	}
}
