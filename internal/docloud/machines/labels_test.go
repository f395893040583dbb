// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const (
	listRoute = "GET /v2/droplets"
	envLabel  = "x.example/env"
	teamLabel = "x.example/team"
)

// testLabels are labels of the tags env and team.
func testLabels() instance.TagLabels { return instance.TagLabels{"env": envLabel, "team": teamLabel} }

// labels says in what a Node's labels of tags, and what is recorded of them, differ from what is wanted. Empty values are labels that must not be.
func (w *world) labels(node string, want map[string]string, record string) string {
	n, err := w.node(node)
	if err != nil {
		return err.Error()
	}
	for key, value := range want {
		if got, there := n.Labels[key]; there != (value != "") || got != value {
			return fmt.Sprintf("label %s of %s is %q (%v), want %q", key, node, got, there, value)
		}
	}
	if got := n.Annotations[instance.LabelsAnnotation]; got != record {
		return fmt.Sprintf("recorded is %q, want %q", got, record)
	}
	return ""
}

// looked waits until Kubernetes has asked what each Node's droplet is, on a list that was read since now. Only that reads lists while all Nodes are
// ready, one round after the other: the first two may be those that were under way, with GPUs and without; the third is that of a new round, and the
// fourth that of one after it.
func (w *world) looked() {
	w.T.Helper()
	before := w.Sim.Stats().Routes[listRoute].Statuses[200]
	testkit.Eventually(w.T, "new lists of droplets", func() string {
		if n := w.Sim.Stats().Routes[listRoute].Statuses[200] - before; n < 4 {
			return fmt.Sprintf("%d were read", n)
		}
		return ""
	})
}

func (w *world) tag(droplet sim.Droplet, tags ...string) {
	w.T.Helper()
	must.Do(w.T, w.Account.SetDropletTags(fmt.Sprint(droplet.ID), tags...))
}

// watchLabels notes whether a Node is ever without the taint of new ones and without a label.
func (w *world) watchLabels(node, label string) *atomic.Bool {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watcher, err := w.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		cancel()
		w.T.Fatal(err)
	}
	seen, done := &atomic.Bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok {
				continue // the watch has ended
			}
			tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
			if _, there := n.Labels[label]; !tainted && !there {
				seen.Store(true)
			}
		}
	}()
	w.T.Cleanup(func() {
		watcher.Stop()
		cancel()
		<-done
	})
	return seen
}

// A new Node has its labels before anything is scheduled to it; later they follow the tags; and what others have set stays, whatever the tags say.
func TestLabelsFollowTags(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 40}, func(t *testing.T, w *world) {
		w.config.Labels = testLabels()
		ours := w.Droplet(sim.DropletSpec{Name: w.NodeName(0), Tags: []string{"env:prod", "k8s:worker"}})
		theirs := w.Droplet(sim.DropletSpec{Name: w.NodeName(1), Tags: []string{"env:prod", "team:db", "team:web"}})
		w.join(ours.Name, true)
		w.join(theirs.Name, true, func(n *corev1.Node) { n.Labels[envLabel] = "own" })
		bare := w.watchLabels(ours.Name, envLabel)
		w.run()
		testkit.Eventually(t, "the Nodes to be initialized", func() string { return w.initialized(ours) + w.initialized(theirs) })
		const record = `{"x.example/env":"prod"}`
		testkit.Eventually(t, "the label", func() string { return w.labels(ours.Name, map[string]string{envLabel: "prod", teamLabel: ""}, record) })
		w.Reported(theirs.Name, EventTagNoLabel, `label x.example/env has the value "own" from another owner`, "the droplet has 2 tags for label x.example/team")
		if problem := w.labels(theirs.Name, map[string]string{envLabel: "own", teamLabel: ""}, ""); problem != "" {
			t.Error(problem)
		}

		w.tag(ours, "env:dev", "team:db")
		testkit.Eventually(t, "the other value", func() string {
			return w.labels(ours.Name, map[string]string{envLabel: "dev", teamLabel: "db"}, `{"x.example/env":"dev","x.example/team":"db"}`)
		})
		w.PatchNode(ours.Name, `{"metadata":{"labels":{"x.example/env":"mine"}}}`)
		testkit.Eventually(t, "the label to be somebody else's", func() string {
			return w.labels(ours.Name, map[string]string{envLabel: "mine", teamLabel: "db"}, `{"x.example/team":"db"}`)
		})
		w.tag(ours)
		w.tag(theirs, "team:db")
		testkit.Eventually(t, "what is ours to go", func() string { return w.labels(ours.Name, map[string]string{envLabel: "mine", teamLabel: ""}, "") })
		testkit.Eventually(t, "the tag that is one now", func() string {
			return w.labels(theirs.Name, map[string]string{envLabel: "own", teamLabel: "db"}, `{"x.example/team":"db"}`)
		})
		if bare.Load() {
			t.Error("the new Node had lost its taint and had no label yet")
		}
		if n := w.CountEvents(theirs.Name, EventTagNoLabel); n != 1 {
			t.Errorf("%d events about the same, want 1", n)
		}
	})
}

// A token that may not see tags takes no label away, and neither does a cluster in which nothing differs get any write.
func TestLabelsStayWhereTagsCannotBeSeen(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 41}, func(t *testing.T, w *world) {
		w.config.Labels = testLabels()
		droplet := w.Droplet(sim.DropletSpec{Name: w.NodeName(0), Tags: []string{"env:prod"}})
		w.join(droplet.Name, true)
		w.run()
		const record = `{"x.example/env":"prod"}`
		labeled := func() string { return w.labels(droplet.Name, map[string]string{envLabel: "prod"}, record) }
		testkit.Eventually(t, "the label", labeled)
		testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(droplet) })
		w.looked()
		before := must.Get(w.node(droplet.Name)).Or(t)
		w.looked()
		after := must.Get(w.node(droplet.Name)).Or(t)
		if before.ResourceVersion != after.ResourceVersion {
			t.Errorf("the Node was written although nothing differs:\n%s", cmp.Diff(before, after))
		}
		w.Account.AddToken(sim.Token{Value: "blind", Scopes: []string{"account:read", "droplet:read"}})
		w.useToken("blind")
		w.Account.RevokeToken(sim.DefaultToken)
		testkit.Eventually(t, "the other token to be in use", func() string {
			if err := w.machines.Trusted(t.Context()); err != nil {
				return err.Error()
			}
			if w.machines.snapshot.Latest().tagged {
				return "tags are visible"
			}
			return ""
		})
		w.looked()
		if problem := labeled(); problem != "" {
			t.Error(problem)
		}
	})
}

// The labels are written to the Node that was looked at, as it is, and to no other: what has changed meanwhile is looked at again.
func TestLabelsAreWrittenToWhatIsThere(t *testing.T) {
	both(t, sim.Options{Seed: 42}, func(t *testing.T, w *world) {
		w.config.Labels = testLabels()
		w.join(w.NodeName(0), true)
		m := New(nil, NewSnapshot(nil, clock.RealClock{}), w.config, clock.RealClock{}, prometheus.NewRegistry())
		m.client = w.Client
		ended, end := context.WithCancel(t.Context())
		end()
		m.waiting.loop.Run(ended) // nothing else would end its queue
		stale := must.Get(w.node(w.NodeName(0))).Or(t)
		w.PatchNode(stale.Name, `{"metadata":{"labels":{"x.example/env":"mine","x.example/other":"1"}}}`)
		tags := instance.LabelWorld{Tags: []string{"env:prod", "team:db"}, Complete: true}
		wrote, problems, err := m.writeLabels(t.Context(), stale, tags)
		if err != nil || !wrote || len(problems) != 1 || !strings.Contains(problems[0], `"mine" from another owner`) {
			t.Errorf("%v, %q, %v", wrote, problems, err)
		}
		const record = `{"x.example/team":"db"}`
		if problem := w.labels(stale.Name, map[string]string{envLabel: "mine", teamLabel: "db", "x.example/other": "1"}, record); problem != "" {
			t.Error(problem)
		}
		nodes := w.Client.CoreV1().Nodes()
		must.Do(t, nodes.Delete(t.Context(), stale.Name, metav1.DeleteOptions{}))
		if _, _, err := m.writeLabels(t.Context(), stale, tags); err == nil {
			t.Error("a Node that is gone was written")
		}
		w.join(stale.Name, true)
		if _, _, err := m.writeLabels(t.Context(), stale, tags); err == nil || !strings.Contains(err.Error(), "is another one by now") {
			t.Errorf("the Node that came after it: %v", err)
		}
		if problem := w.labels(stale.Name, map[string]string{envLabel: "", teamLabel: ""}, ""); problem != "" {
			t.Error(problem)
		}
	})
}
