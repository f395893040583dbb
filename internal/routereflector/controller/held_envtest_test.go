// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/gitops"
)

// onlyStatus fails if the process wrote anything but statuses of topologies. It may take back what the process before it
// asked of nodes, which died with its question.
func onlyStatus(t *testing.T, p *process) {
	t.Helper()
	for _, w := range p.program.Written() {
		takenBack := strings.HasPrefix(w, "DELETE ") && strings.Contains(w, "/caliconodestatuses/")
		if !strings.HasSuffix(w, "/status") && !takenBack {
			t.Errorf("it wrote %s", w)
		}
	}
}

// expectCondition fails unless the topology has the condition with that reason, and a message with the words.
func expectCondition(t *testing.T, topology *v1alpha1.RouteReflectorTopology, kind, reason, words string) {
	t.Helper()
	for _, c := range topology.Status.Conditions {
		if c.Type == kind {
			if c.Reason != reason || !strings.Contains(c.Message, words) {
				t.Errorf("%s is %s, %s: %q; want reason %s and the words %q", kind, c.Status, c.Reason, c.Message, reason, words)
			}
			return
		}
	}
	t.Errorf("there is no condition %s", kind)
}

// patch changes a topology.
func (s *stage) patch(name, patch string) {
	s.t.Helper()
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Patch(s.t.Context(), topology, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// expectHealth compares what Flux and Argo CD make of a topology, and that each condition is of its generation.
func expectHealth(t *testing.T, topology *v1alpha1.RouteReflectorTopology, want string) {
	t.Helper()
	if got := gitops.Health(t, "RouteReflectorTopology", topology); got != want {
		t.Errorf("Flux and Argo CD call it %s, want %s: %+v", got, want, topology.Status.Conditions)
	}
	for _, c := range topology.Status.Conditions {
		if c.ObservedGeneration != topology.Generation {
			t.Errorf("%s is of generation %d, want %d", c.Type, c.ObservedGeneration, topology.Generation)
		}
	}
}

// The page of conditions names the reasons of Stalled that there are.
func TestStalledAsDocumented(t *testing.T) {
	t.Parallel()
	want := slices.Sorted(slices.Values(stalls()))
	if got := gitops.Stalls(t, "RouteReflectorTopology"); !slices.Equal(got, want) {
		t.Errorf("documented %v, want %v", got, want)
	}
}

// Whatever holds a plan back, nothing but the topology's status is written until it is gone, and then the plan is carried out.
func TestHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec                string
		phase               v1alpha1.Phase
		kind, reason, words string
		release             func(s *stage)
		before              func(s *stage)
		// others are nodes that somebody else made reflectors.
		others int
		// health is what Flux and Argo CD make of it, if not that it failed.
		health string
	}{
		"paused": {
			health: "Failed Suspended",
			spec:   "paused: true", phase: v1alpha1.PhaseFrozen, kind: v1alpha1.ConditionFrozen, reason: "Paused", words: "spec.paused is true",
			release: func(s *stage) { s.patch("main", `{"spec":{"paused":false}}`) },
		},
		"dry run": {
			health: "Failed Suspended",
			spec:   "rollout: {mode: DryRun}", phase: v1alpha1.PhasePending, kind: v1alpha1.ConditionProgressing, reason: "DryRun", words: "spec.rollout.mode",
			release: func(s *stage) { s.patch("main", `{"spec":{"rollout":{"mode":"Auto"}}}`) },
		},
		"manual": {
			health: "Failed Suspended",
			spec:   "rollout: {mode: Manual}", phase: v1alpha1.PhasePending, kind: v1alpha1.ConditionProgressing, reason: "AwaitingApproval",
			words: "spec.rollout.approvedPlan",
			release: func(s *stage) {
				s.patch("main", `{"spec":{"rollout":{"approvedPlan":"`+s.topology("main").Status.Plan.Hash+`"}}}`)
			},
		},
		"datastore not ready": {
			health: "InProgress Progressing",
			spec:   "{}", phase: v1alpha1.PhaseFrozen, kind: v1alpha1.ConditionFrozen, reason: "DatastoreNotReady", words: "datastoreReady=false",
			before:  func(s *stage) { s.setDatastoreReady(false) },
			release: func(s *stage) { s.setDatastoreReady(true) },
		},
		"hierarchical": {
			spec: "mode: Hierarchical", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "HierarchyNotPossible", words: "spec.mode",
			release: func(s *stage) { s.patch("main", `{"spec":{"mode":"Flat"}}`) },
		},
		"a filter that is not there": {
			spec: "session: {filters: [imports]}", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "BGPFilterNotFound",
			words: "there is no BGPFilter imports",
			release: func(s *stage) {
				f := calicov3.NewBGPFilter()
				f.Name = "imports"
				if _, err := s.calico.BGPFilter().Create(s.t.Context(), f, options.SetOptions{}); err != nil {
					s.t.Fatal(err)
				}
			},
		},
		"overlapping topologies": {
			spec: "{}", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "OverlappingTopology",
			words:  "RouteReflectorTopology elder is older and has clients of this one, such as Node node-0000",
			before: func(s *stage) { s.create("elder", "{paused: true, clusterID: 244.0.0.7}") },
			release: func(s *stage) {
				if err := s.client.Delete(s.t.Context(), s.topology("elder")); err != nil {
					s.t.Fatal(err)
				}
			},
		},
		"a cluster ID that is taken": {
			spec: "{}", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "ClusterIDTaken", words: "Node node-0002 has it already",
			before:  func(s *stage) { s.annotate("node-0002", `"244.0.0.1"`) },
			release: func(s *stage) { s.annotate("node-0002", "null") },
			others:  1,
		},
		"nobody to serve": {
			health: "InProgress Progressing",
			spec:   "clientSelector: {matchLabels: {pool: none}}", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "NoClients",
			words:   "spec.clientSelector selects no node on which calico-node has set BGP up",
			release: func(s *stage) { s.patch("main", `{"spec":{"clientSelector":{"matchLabels":null}}}`) },
		},
		"foreign BGPPeer": {
			spec: "{}", phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "ForeignObject", words: "BGPPeer main-clients exists",
			before:  func(s *stage) { s.foreignPeer("main-clients") },
			release: func(s *stage) { s.deletePeer("main-clients") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 5)
			if c.before != nil {
				c.before(s)
			}
			p := s.start()
			s.create("main", c.spec)
			held := s.await("main", c.phase)
			expectCondition(t, held, c.kind, c.reason, c.words)
			expectHealth(t, held, cmp.Or(c.health, "Failed Degraded"))
			onlyStatus(t, p)
			if changes := s.sim.Changes(); len(changes) != c.others {
				t.Errorf("roles have changed: %v", changes)
			}
			c.release(s)
			expectHealth(t, s.await("main", v1alpha1.PhaseReady), "Current Healthy")
		})
	}
}

// In mode report an operator logs every step of its plan, with the reason, and writes nothing: neither Calico's objects nor
// the topology, its status included.
func TestReportWritesNothing(t *testing.T) {
	t.Parallel()
	inBoth(t, testReportWritesNothing)
}

func testReportWritesNothing(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 5)
	var mu sync.Mutex
	var lines []string
	s.log = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	p := s.start(func(r *Reconciler, _ *cluster.Program) { r.Mode = outputs.Report })
	created := s.create("main", "{}")
	would := func() (out []string) {
		mu.Lock()
		defer mu.Unlock()
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, "Would apply step") })
	}
	testkit.Eventually(t, "the plan in the log", func() string {
		all := strings.Join(would(), "\n")
		for _, kind := range []string{"Promote", "EnsurePeer", "MeshOff"} {
			if !strings.Contains(all, `"would"="`+kind+" ") {
				return "no " + kind + " in " + all
			}
		}
		return ""
	})
	if all := would(); len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("a step was logged twice: %s", strings.Join(all, "\n"))
	}
	if written := p.program.Written(); len(written) > 0 {
		t.Errorf("it wrote %v", written)
	}
	if now := s.topology("main"); now.ResourceVersion != created.ResourceVersion {
		t.Errorf("the topology was written: %+v", now.Status)
	}
}

func (s *stage) setDatastoreReady(ready bool) {
	s.t.Helper()
	info, err := s.calico.ClusterInformation().Get(s.t.Context(), "default", options.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	info.Spec.DatastoreReady = &ready
	if _, err := s.calico.ClusterInformation().Update(s.t.Context(), info, options.SetOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// annotate sets the cluster ID of a Node as its owner does by hand, with a value as JSON.
func (s *stage) annotate(node, id string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, routereflector.ClusterIDAnnotation, id)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := s.client.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// foreignPeer creates a BGPPeer with a router outside, as users do.
func (s *stage) foreignPeer(name string) *calicov3.BGPPeer {
	s.t.Helper()
	p := calicov3.NewBGPPeer()
	p.Name = name
	p.Spec = calicov3.BGPPeerSpec{PeerIP: "192.0.2.1", ASNumber: 64999, NodeSelector: "rack == 'a'"}
	p, err := s.calico.BGPPeers().Create(s.t.Context(), p, options.SetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *stage) deletePeer(name string) {
	s.t.Helper()
	if _, err := s.calico.BGPPeers().Delete(s.t.Context(), name, options.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// Somebody else's BGPPeers are as they were after everything that a topology goes through.
func TestForeignPeers(t *testing.T) {
	t.Parallel()
	inBoth(t, testForeignPeers)
}

func testForeignPeers(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 5)
	want := s.foreignPeer("to-the-rack")
	s.start()
	topology := s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	if err := s.client.Delete(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	s.awaitGone("main")
	got, err := s.calico.BGPPeers().Get(t.Context(), "to-the-rack", options.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("it has changed: %s", diff)
	}
}

// A session that does not come up holds the next step back for ever, and after the timeout the topology says so. When it comes up, all goes on.
func TestSessionTimeout(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	p := s.start()
	for i := range 6 {
		for j := range i {
			s.sim.Cut(nodeName(i), nodeName(j), nodeName(i) == nodeName(5))
		}
	}
	// node-0005 has no session with anybody.
	s.create("main", "rollout: {sessionTimeout: 10s}\nreflectors: {excluded: {matchLabels: {kubernetes.io/hostname: node-0005}}}")
	topology := s.await("main", v1alpha1.PhaseDegraded)
	expectCondition(t, topology, v1alpha1.ConditionDegraded, "SessionTimeout", "no Established session with node-0005")
	if got := s.reflectors(); len(got) != 1 {
		t.Errorf("the reflectors are %v: the second must wait for the first", got)
	}
	if !s.mesh() {
		t.Error("the mesh is off")
	}
	for i := range 5 {
		s.sim.Cut(nodeName(5), nodeName(i), false)
	}
	s.await("main", v1alpha1.PhaseReady)
	p.stop()
}

// A reflector that never answers holds the next step back.
func TestSilentReflector(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.start()
	for i := range 4 {
		s.sim.Silence(nodeName(i), true)
	}
	s.create("main", "redundancy: 2\nrollout: {sessionTimeout: 10s}")
	topology := s.await("main", v1alpha1.PhaseDegraded)
	expectCondition(t, topology, v1alpha1.ConditionDegraded, "SessionTimeout", "has not reported its sessions")
	expectHealth(t, topology, "Failed Degraded")
	if got := s.reflectors(); len(got) != 1 {
		t.Errorf("the reflectors are %v, want the first alone", got)
	}
}

// What was said before a step is not evidence for the next: statuses of another moment are not believed, however well they look.
func TestStaleEvidence(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	p := s.start()
	s.create("main", "redundancy: 2")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding() // an answer to one that is left would be good evidence
	p.stop()
	for i := range 4 {
		s.sim.Silence(nodeName(i), true)
	}
	// Statuses of the reflectors with everything Established, written now, but asked for in another moment.
	for _, node := range s.reflectors() {
		status := calicov3.NewCalicoNodeStatus()
		period := uint32(2)
		status.Name, status.Labels = "main-"+node, map[string]string{v1alpha1.TopologyLabel: "main"}
		status.Annotations = map[string]string{MomentAnnotation: "0123456789ab.none"}
		status.Spec = calicov3.CalicoNodeStatusSpec{Node: node, Classes: []calicov3.NodeStatusClassType{calicov3.NodeStatusClassTypeBGP}, UpdatePeriodSeconds: &period}
		status.Status.LastUpdated = metav1.Now()
		for i := range 4 {
			status.Status.BGP.PeersV4 = append(status.Status.BGP.PeersV4, calicov3.CalicoNodePeer{
				PeerIP: "10.1.0." + string(rune('0'+i)), Type: calicov3.BGPPeerTypeNodePeer, State: calicov3.BGPSessionStateEstablished,
			})
		}
		if _, err := s.calico.CalicoNodeStatus().Create(t.Context(), status, options.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	s.patch("main", `{"spec":{"redundancy":3,"rollout":{"sessionTimeout":"10s"}}}`)
	expectCondition(t, s.await("main", v1alpha1.PhaseDegraded), v1alpha1.ConditionDegraded, "SessionTimeout", "has not reported its sessions")
	if got := s.reflectors(); len(got) != 2 {
		t.Errorf("the reflectors are %v, want two", got)
	}
}

// One reflector is replaced by another before it goes.
func TestReplace(t *testing.T) {
	t.Parallel()
	inBoth(t, testReplace)
}

func testReplace(t *testing.T, newStage stageMaker) {
	t.Helper()
	s := newStage(t, 9)
	s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	leaver := s.reflectors()[0]
	host := strings.TrimPrefix(leaver, "calico-") // by its name in Kubernetes
	s.patch("main", `{"spec":{"reflectors":{"excluded":{"matchLabels":{"`+corev1.LabelHostname+`":"`+host+`"}}}}}`)
	testkit.Eventually(t, "the replacement", func() string {
		changes := s.sim.Changes()
		if len(changes) == 6 {
			return ""
		}
		text, _ := yaml.Marshal(s.topology("main").Status)
		return fmt.Sprintf("%v\n%s", changes, text)
	})
	s.await("main", v1alpha1.PhaseReady)
	changes := s.sim.Changes()[4:]
	if changes[0].What != "promote" || changes[1].What != "demote" || changes[1].Node != leaver {
		t.Errorf("the changes were %+v, want a promotion and then the demotion of %s", changes, leaver)
	}
	s.expectOneAtATime()
}

// A cluster without Calico, one without our kind, and one that does not respond: a sentence each.
func TestMissing(t *testing.T) {
	t.Parallel()
	bare := controlplane.New(t)
	_, err := calico.OpenBGP(t.Context(), bare.Config)
	if !errors.Is(err, calico.ErrNoBGPKinds) || !strings.Contains(err.Error(), "install Calico") {
		t.Errorf("without Calico the error is %v", err)
	}
	bare.InstallCalicoCRDs(t)
	b, err := calico.OpenBGP(t.Context(), bare.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := Preflight(t.Context(), bare.Config, schemeOf(b), Informers()); err == nil || err.Error() != "the API server does not serve RouteReflectorTopology: apply config/crd first" {
		t.Errorf("without the CRD the error is %v", err)
	}
	bare.InstallCRDs(t, controlplane.OwnKind(t, "routereflectortopologies"))
	if err := Preflight(t.Context(), bare.Config, schemeOf(b), Informers()); err != nil {
		t.Errorf("with everything the error is %v", err)
	}
	nobody := rest.CopyConfig(bare.Config)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	if err := Preflight(t.Context(), nobody, schemeOf(b), Informers()); err == nil || !strings.Contains(err.Error(), "a right is missing, apply the operator's ClusterRole: routereflectortopologies") {
		t.Errorf("without rights the error is %v", err)
	}
	away := &rest.Config{Host: "https://127.0.0.1:1"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := calico.OpenBGP(ctx, away); err == nil || !strings.Contains(err.Error(), "asking API server https://127.0.0.1:1 whether it serves") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without an API server the error is %v", err)
	}
}

// A client whose port for BGP is blocked holds nobody up, and is named with the reason until its sessions are there; without it nobody is
// asked any more.
func TestASilentClientIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 7)
	s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	dark := s.ordinary(7)[0]
	cut := func(cut bool) {
		for i := range 7 {
			if other := nodeName(i); other != dark {
				s.sim.Cut(dark, other, cut)
			}
		}
	}
	cut(true)
	s.patchNode(s.reflectors()[0], `{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]}}`)
	if message := s.told(v1alpha1.ConditionDegraded, reasonSilentClients); !strings.Contains(message, dark) || !strings.Contains(message, "port 179") {
		t.Error(message)
	}
	is := s.topology("main").Status
	if len(is.SilentClients) != 1 || is.SilentClients[0].Node != dark || is.Sessions.SilentClients != 1 || is.SilentClients[0].Since.IsZero() {
		t.Errorf("%+v, %+v", is.SilentClients, is.Sessions)
	}
	cut(false)
	if is := s.await("main", v1alpha1.PhaseReady).Status; len(is.SilentClients) > 0 || is.Sessions.SilentClients != 0 {
		t.Errorf("%+v, %+v", is.SilentClients, is.Sessions)
	}
	s.expectOnlyStanding()
}
