// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// heard keeps the Events of a process.
type heard struct {
	mu     sync.Mutex
	events []string
}

// Eventf implements events.EventRecorder.
func (h *heard) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf("%s %s ", kind, reason)+fmt.Sprintf(note, args...))
}

// with counts the Events of a reason that contain a text.
func (h *heard) with(reason, text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, e := range h.events {
		if strings.Contains(e, " "+reason+" ") && strings.Contains(e, text) {
			count++
		}
	}
	return count
}

// kubelet writes as the kubelet of a node does, by the Node authorizer and NodeRestriction.
func (s *stage) kubelet(node string) client.Client {
	s.t.Helper()
	config := rest.CopyConfig(s.cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	c, err := client.New(config, client.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// mark labels a Node as a reflector that shall stay, as its kubelet may.
func mark(t *testing.T, c client.Client, node, id string) error {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"main"},"annotations":{%q:%q,%q:"true"}}}`, v1alpha1.ReflectorLabel, routereflector.ClusterIDAnnotation, id, v1alpha1.KeepAnnotation)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return c.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func recorded(t *v1alpha1.RouteReflectorTopology) []string {
	var out []string
	if t.Status.Record != nil {
		for _, e := range t.Status.Record.Reflectors {
			out = append(out, e.Node)
		}
	}
	return out
}

// Where no policy refuses it, kubelets make their own Nodes reflectors, with the topology's cluster ID. It is reported, and nothing is done by it: no reflector
// goes, none of those becomes one when another dies, and the topology stays Ready.
func TestAKubeletsMarkHasNoEffect(t *testing.T) {
	t.Parallel()
	s := newRealStage(t, 9)
	told := &heard{}
	p := s.start(func(r *Reconciler, _ *cluster.Program) { r.Events = told })
	s.create("main", "{}")
	is := s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	honest := s.reflectors()
	if got := recorded(is); !slices.Equal(got, honest) {
		t.Fatalf("the record has %v, the reflectors are %v", got, honest)
	}
	bad, calicos := s.ordinary(9)[:2], s.ordinary(9)[2]
	if err := mark(t, s.kubelet(bad[0]), bad[1], "244.0.0.1"); !apierrors.IsForbidden(err) {
		t.Fatalf("NodeRestriction is not in force: %v", err)
	}
	before := p.program.Count()
	for i, id := range []string{"244.0.0.1", "244.7.7.7"} {
		if err := mark(t, s.kubelet(bad[i]), bad[i], id); err != nil {
			t.Fatal(err)
		}
	}
	// Calico gives its Node this label, too, and NodeRestriction does not know of it.
	text := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"%s\":\"main\"}"}}}`, routereflector.LabelsAnnotation,
		strings.Replace(v1alpha1.ReflectorLabel, "/", `\\/`, 1))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: calicos}}
	if err := s.kubelet(calicos).Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all labels to be reported", func() string {
		c := s.condition("main", v1alpha1.ConditionForeignMarks)
		if c.Status == metav1.ConditionTrue && strings.Contains(c.Message, bad[0]) &&
			strings.Contains(c.Message, bad[1]) && strings.Contains(c.Message, "annotation projectcalico.org/labels gives Node "+calicos) {
			return ""
		}
		return c.Message
	})
	testkit.Eventually(t, "an Event", func() string { // it comes after the status
		if told.with(reasonForeignMarks, bad[0])+told.with(reasonForeignMarks, bad[1]) > 0 {
			return ""
		}
		return fmt.Sprint(told.events)
	})
	for _, request := range p.program.Since(before) {
		asks := strings.HasSuffix(request, "/caliconodestatuses") // what BIRD knows, as ever: on a slow machine anew
		if !strings.HasPrefix(request, "GET ") && !strings.HasSuffix(request, "/status") && !asks {
			t.Errorf("it wrote: %s", request)
		}
	}
	if is = s.await("main", v1alpha1.PhaseReady); is.Status.DesiredReflectors != 3 || !slices.Equal(recorded(is), honest) {
		t.Errorf("%+v, record %v", is.Status.Reflectors, recorded(is))
	}
	s.deleteNode(honest[0])
	testkit.Eventually(t, "another reflector to be recorded", func() string {
		is = s.topology("main")
		if got := recorded(is); is.Status.Phase == v1alpha1.PhaseReady && len(got) == 3 && !slices.Contains(got, honest[0]) {
			return ""
		}
		return fmt.Sprint(is.Status.Phase, recorded(is))
	})
	for _, node := range append(bad, calicos) {
		if slices.Contains(recorded(is), node) {
			t.Errorf("%s has become a reflector", node)
		}
		s.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:null}}}`,
			v1alpha1.ReflectorLabel, routereflector.ClusterIDAnnotation, routereflector.LabelsAnnotation))
	}
	s.told(v1alpha1.ConditionForeignMarks, reasonNoForeignMarks)
	if got := s.await("main", v1alpha1.PhaseReady).Status.Clients; got != 5 {
		t.Errorf("%d clients, want all other nodes", got)
	}
}

// A process that finds no record, as after an upgrade, records the reflectors that the status names, and says so; a label that it does not name is
// foreign. No reflector is written for it.
func TestTheRecordOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	s := newRealStage(t, 7)
	p := s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	p.stop()
	honest, bad := s.reflectors(), s.ordinary(7)[0]
	old := s.topology("main")
	old.Status.Record = nil
	if err := s.client.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := mark(t, s.kubelet(bad), bad, "244.0.0.1"); err != nil {
		t.Fatal(err)
	}
	told := &heard{}
	p = s.start(func(r *Reconciler, _ *cluster.Program) { r.Events = told })
	if message := s.told(v1alpha1.ConditionForeignMarks, reasonForeignMarks); !strings.Contains(message, bad) {
		t.Error(message)
	}
	if got := recorded(s.await("main", v1alpha1.PhaseReady)); !slices.Equal(got, honest) {
		t.Errorf("the record has %v, the reflectors were %v", got, honest)
	}
	testkit.Eventually(t, "the Event", func() string {
		if told.with(eventRecorded, strings.Join(honest, ", ")) == 1 {
			return ""
		}
		return fmt.Sprint(told.events)
	})
	onlyStatus(t, p)
}

// A Node that its kubelet deletes and registers again with the label of a reflector is another one, and none of the topology's.
func TestARegisteredReflectorIsForeign(t *testing.T) {
	t.Parallel()
	s := newRealStage(t, 7)
	s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	honest := s.reflectors()
	again := &corev1.Node{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: honest[0]}, again); err != nil {
		t.Fatal(err)
	}
	s.deleteNode(honest[0])
	again.ResourceVersion, again.UID = "", ""
	status := again.Status
	if err := s.kubelet(honest[0]).Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	again.Status = status
	if err := s.client.Status().Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if message := s.told(v1alpha1.ConditionForeignMarks, reasonForeignMarks); !strings.Contains(message, honest[0]) {
		t.Error(message)
	}
	testkit.Eventually(t, "another reflector to be recorded", func() string {
		is := s.topology("main")
		if got := recorded(is); is.Status.Phase == v1alpha1.PhaseReady && len(got) == 3 && !slices.Contains(got, honest[0]) {
			return ""
		}
		return fmt.Sprint(is.Status.Phase, recorded(is))
	})
}
