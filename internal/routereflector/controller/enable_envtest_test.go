// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// The whole of it: an empty spec on a running mesh ends with three reflectors in three zones, two BGPPeers, the mesh off, and nothing left over.
// Roles change one at a time, each after the one before has all its sessions.
func TestEnable(t *testing.T) {
	t.Parallel()
	inBoth(t, testEnable)
}

func testEnable(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 9)
	p := s.start()
	s.create("main", "{}")
	topology := s.await("main", v1alpha1.PhaseReady)
	if got := s.reflectors(); len(got) != 3 {
		t.Errorf("the reflectors are %v, want three", got)
	}
	if s.mesh() {
		t.Error("the mesh is still on")
	}
	if is := topology.Status; is.ReadyReflectors != 3 || is.Sessions.Summary != "18/18" || is.Mesh != v1alpha1.MeshOff || is.Clients != 6 {
		t.Errorf("the status is %+v", is)
	}
	changes := s.sim.Changes()
	if len(changes) != 4 || changes[3].What != "mesh off" {
		t.Errorf("the changes were %+v, want three promotions and then the mesh off", changes)
	}
	s.expectOneAtATime()
	s.expectOnlyStanding()
	before := p.program.Count()
	// Rounds go on in a steady state; what they need is in memory.
	rounds := 0
	testkit.Eventually(t, "several resyncs", func() string {
		if rounds++; rounds < 60 {
			return "not yet"
		}
		return ""
	})
	if requests := p.program.Since(before); len(requests) > 0 {
		t.Errorf("in a steady state there were requests: %v", requests)
	}
}

// expectOnlyStanding waits until no CalicoNodeStatus is left but those that stand: answered ones on a few nodes, without routes; none without a topology.
func (s *stage) expectOnlyStanding() {
	s.t.Helper()
	testkit.Eventually(s.t, "all CalicoNodeStatuses but standing ones to be gone", func() string {
		statuses := &calicov3.CalicoNodeStatusList{}
		var err error
		if s.etcd != nil {
			statuses, err = s.calico.CalicoNodeStatus().List(s.t.Context(), options.ListOptions{})
		} else {
			err = s.client.List(s.t.Context(), statuses)
		}
		if err != nil {
			return err.Error()
		}
		var topologies v1alpha1.RouteReflectorTopologyList
		if err := s.client.List(s.t.Context(), &topologies); err != nil {
			return err.Error()
		}
		if most := mostStanding * len(topologies.Items); len(statuses.Items) > most {
			return fmt.Sprintf("%d are there", len(statuses.Items))
		}
		for i := range topologies.Items {
			if t := &topologies.Items[i]; t.Status.Phase == v1alpha1.PhaseReady && len(t.Status.Reflectors) > 1 && len(statuses.Items) < 2 {
				return "the witnesses of " + t.Name + " have not been asked yet"
			}
		}
		for i := range statuses.Items {
			if q := &statuses.Items[i]; q.Status.LastUpdated.IsZero() || asksRoutes(q) {
				return q.Name + " is there"
			}
		}
		return ""
	})
}

// mostStanding is how many status requests of a topology stand: three, and in a hierarchy two on spines and four on reflectors.
const mostStanding = 6

// Roles change one at a time, each after the one before has all its sessions.
func (s *stage) expectOneAtATime() {
	s.t.Helper()
	for _, c := range s.sim.Changes() {
		if c.Unsettled != 0 {
			s.t.Errorf("%s %s came while %d sessions of other reflectors were not Established", c.What, c.Node, c.Unsettled)
		}
	}
}

// A process that dies after each of its writes, or before each second one, is followed by one that goes on where it stopped: the end is the same,
// and so are the reflectors and the order of what changes roles.
func TestKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	inBoth(t, testKilledAtEveryWrite)
}

func testKilledAtEveryWrite(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 6)
	living := s.start()
	undisturbed := s.roles(func() { s.create("main", "{}") }, "main")
	living.stop()
	for name, configure := range map[string]func(*Reconciler, *cluster.Program){
		"after": func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 1, After: true}) },
		// A first write is allowed, or nothing would ever happen.
		"before": func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 6)
			processes := 0
			roles := s.roles(func() {
				s.create("main", "{}")
				for !s.ended("main") {
					p := s.start(configure)
					processes++
					s.awaitDeathOr(p, "main")
					p.stop()
				}
			}, "main")
			if diff := cmp.Diff(undisturbed, roles); diff != "" {
				t.Errorf("the changes differ from those of a process that lives (-lives +dies):\n%s", diff)
			}
			t.Logf("%d processes", processes)
			if processes < 10 {
				t.Errorf("%d processes died on the way, which is too few to show anything", processes)
			}
			s.expectOneAtATime()
			p := s.start()
			s.await("main", v1alpha1.PhaseReady)
			s.expectOnlyStanding()
			p.stop()
		})
	}
}

// While the mesh is off the topology is not Ready before the last reflector has been seen with all its sessions; and a program that starts while all
// is well writes nothing at all.
func TestReadyMeansSeen(t *testing.T) {
	t.Parallel()
	inBoth(t, testReadyMeansSeen)
}

func testReadyMeansSeen(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 9)
	p := s.start()
	s.create("main", "redundancy: 2")
	s.await("main", v1alpha1.PhaseReady)
	topology := s.topology("main")
	three := int32(3)
	topology.Spec.Redundancy = &three
	if err := s.client.Update(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	if is := s.await("main", v1alpha1.PhaseReady).Status; is.ReadyReflectors != 3 || is.Sessions.Summary != "18/18" || len(is.Reflectors) != 3 {
		t.Errorf("it is Ready with %d reflectors of 3 and sessions %s", is.ReadyReflectors, is.Sessions.Summary)
	}
	s.expectOnlyStanding()
	count, same := 0, 0
	testkit.Eventually(t, "the program to write no more", func() string {
		is := p.program.Count()
		if same++; is != count {
			count, same = is, 0
		}
		if same < 20 {
			return fmt.Sprintf("%d writes", is)
		}
		return ""
	})
	p.stop()
	next := s.start()
	rounds := 0
	testkit.Eventually(t, "several resyncs", func() string {
		if rounds++; rounds < 60 {
			return "not yet"
		}
		return ""
	})
	if written := next.program.Written(); len(written) > 0 {
		t.Errorf("after a start with all in order it wrote %v", written)
	}
}

// ended reports that the topology is Ready, and nothing is left to be done.
func (s *stage) ended(name string) bool { return s.topology(name).Status.Phase == v1alpha1.PhaseReady }

// awaitDeathOr waits until the process is dead or the topology has ended.
func (s *stage) awaitDeathOr(p *process, name string) {
	s.t.Helper()
	testkit.Eventually(s.t, "the process to die or the topology to end", func() string {
		select {
		case <-p.done:
			return ""
		default:
		}
		if s.ended(name) {
			return ""
		}
		return "neither"
	})
}

// roles runs something and returns the changes of roles and mesh that it made.
func (s *stage) roles(run func(), name string) []string {
	s.t.Helper()
	run()
	s.await(name, v1alpha1.PhaseReady)
	var out []string
	for _, c := range s.sim.Changes() {
		out = append(out, c.What+" "+c.Node)
	}
	return out
}

// Two that both believe to lead do each thing once.
func TestTwoLeaders(t *testing.T) {
	t.Parallel()
	inBoth(t, testTwoLeaders)
}

func testTwoLeaders(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 9)
	a, b := s.start(), s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	if got := len(s.sim.Changes()); got != 4 {
		t.Errorf("there were %d changes, want three promotions and the mesh: %+v", got, s.sim.Changes())
	}
	s.expectOneAtATime()
	if len(a.program.Written()) == 0 || len(b.program.Written()) == 0 {
		t.Error("one of the two was idle, so that nothing was shown")
	}
}

// A topology that is deleted brings the mesh back before the first reflector goes, and leaves nothing behind; what was stashed of the mesh returns.
func TestExit(t *testing.T) {
	t.Parallel()
	inBoth(t, testExit)
}

func testExit(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 6)
	before := s.configure(func(c *calicov3.BGPConfiguration) {
		c.Spec.NodeMeshMaxRestartTime = &metav1.Duration{Duration: 77 * time.Second}
		c.Spec.NodeMeshPassword = &calicov3.BGPPassword{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "bgp"}, Key: "mesh",
		}}
	})
	s.start()
	topology := s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	off := s.configuration()
	if off.Spec.NodeMeshPassword != nil || off.Spec.NodeMeshMaxRestartTime != nil || off.Annotations[v1alpha1.MeshAnnotation] == "" {
		t.Errorf("while the mesh is off its options must be stashed: %+v", off)
	}
	// Somebody edits it with Calico's own tools meanwhile, which moves the annotation.
	off.Spec.LogSeverityScreen = "Debug"
	if _, err := s.calico.BGPConfigurations().Update(t.Context(), off, options.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	s.awaitGone("main")
	if got := s.reflectors(); len(got) != 0 {
		t.Errorf("these are still reflectors: %v", got)
	}
	if peers := s.peers(); len(peers) != 0 {
		t.Errorf("BGPPeers left: %v", peers)
	}
	s.expectOnlyStanding()
	after := s.configuration()
	if diff := cmp.Diff(before.Spec.NodeMeshPassword, after.Spec.NodeMeshPassword); diff != "" || !s.mesh() {
		t.Errorf("the mesh is on: %t; its password differs: %s", s.mesh(), diff)
	}
	if diff := cmp.Diff(before.Spec.NodeMeshMaxRestartTime, after.Spec.NodeMeshMaxRestartTime); diff != "" {
		t.Errorf("the mesh's restart time differs: %s", diff)
	}
	if after.Annotations[v1alpha1.MeshAnnotation] != "" {
		t.Error("the annotation is still there")
	}
	changes := s.changes(8)
	if len(changes) != 8 || changes[4].What != "mesh on" {
		t.Errorf("the changes were %+v, want the mesh on before the first reflector goes", changes)
	}
}

func (s *stage) awaitGone(name string) {
	s.t.Helper()
	testkit.Eventually(s.t, "the topology to be gone", func() string {
		topology := &v1alpha1.RouteReflectorTopology{}
		err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, topology)
		if apierrors.IsNotFound(err) {
			return ""
		}
		text, _ := yaml.Marshal(topology.Status)
		return string(text)
	})
}

// configure creates BGPConfiguration default as a user does with Calico's tools.
func (s *stage) configure(change func(*calicov3.BGPConfiguration)) *calicov3.BGPConfiguration {
	s.t.Helper()
	c := calicov3.NewBGPConfiguration()
	c.Name = "default"
	on := true
	c.Spec.NodeToNodeMeshEnabled = &on
	change(c)
	c, err := s.calico.BGPConfigurations().Create(s.t.Context(), c, options.SetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
