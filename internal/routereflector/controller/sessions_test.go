// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

func then() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) }

// However many must answer, at most eight questions are open at once, all get their turn, and each answer is renewed before it is too old.
func TestQuestionsRotate(t *testing.T) {
	t.Parallel()
	var plan routereflector.Plan
	for i := range 20 {
		plan.Witnesses = append(plan.Witnesses, fmt.Sprintf("w%02d", i))
	}
	s := sceneOf(plan.Witnesses...)
	m := &memory{}
	m.enter(s)
	for range 30 {
		s.world.Now = s.world.Now.Add(2 * time.Second)
		drop, ask := questions(s, m, plan, time.Second, time.Hour)
		for _, d := range drop {
			for i := range s.statuses {
				if s.statuses[i].Name == d.Name {
					s.statuses = append(s.statuses[:i], s.statuses[i+1:]...)
					break
				}
			}
		}
		for _, node := range ask {
			s.statuses = append(s.statuses, answerOf(node, s.moment, s.world.Now))
		}
		if len(s.statuses) > maxStatuses {
			t.Fatalf("%d questions are open", len(s.statuses))
		}
		m.enter(s)
	}
	for _, w := range plan.Witnesses {
		if age := s.world.Now.Sub(m.said.Seen[w].At); age > routereflector.Freshness {
			t.Errorf("what %s said is %s old", w, age)
		}
	}
}

// Before confd can have taken up a change nobody is asked; after a step has timed out, only now and then.
func TestQuestionsTakeTheirTime(t *testing.T) {
	t.Parallel()
	s := sceneOf("w")
	m := &memory{since: then(), moment: s.moment}
	asks := func(after time.Duration) bool {
		s.world.Now = then().Add(after)
		_, ask := questions(s, m, routereflector.Plan{Witnesses: []string{"w"}}, 5*time.Second, 3*time.Minute)
		return len(ask) > 0
	}
	for after, want := range map[time.Duration]bool{
		4 * time.Second: false, 5 * time.Second: true, 3*time.Minute + 59*time.Second: true, 4 * time.Minute: false, 7 * time.Minute: false,
		8 * time.Minute: true, 9 * time.Minute: false,
	} {
		if got := asks(after); got != want {
			t.Errorf("after %s it asks: %t, want %t", after, got, want)
		}
	}
}

// While a reflector's Node is not Ready what was said of it is asked for again after twelve seconds, and no pause is made.
func TestQuestionsAboutTroubleAreRenewedSoon(t *testing.T) {
	t.Parallel()
	troubles := []routereflector.Trouble{{Node: "r"}}
	for name, c := range map[string]struct {
		troubles []routereflector.Trouble
		age      time.Duration
		since    time.Duration
		want     bool
	}{
		"no trouble, 13 s":            {nil, 13 * time.Second, time.Minute, false},
		"no trouble, 41 s":            {nil, 41 * time.Second, time.Minute, true},
		"trouble, 12 s":               {troubles, 12 * time.Second, time.Minute, false},
		"trouble, 13 s":               {troubles, 13 * time.Second, time.Minute, true},
		"trouble, 13 s, in a pause":   {troubles, 13 * time.Second, 5 * time.Minute, true},
		"trouble, 1 s, in a pause":    {troubles, time.Second, 5 * time.Minute, false},
		"no trouble, 1 s, in a pause": {nil, time.Second, 5 * time.Minute, true},
	} {
		s := sceneOf("w")
		m := &memory{since: then().Add(-c.since), moment: s.moment}
		s.statuses = []calicov3.CalicoNodeStatus{answerOf("w", s.moment, then().Add(-c.age))}
		drop, ask := questions(s, m, routereflector.Plan{Witnesses: []string{"w"}, Troubles: c.troubles}, 5*time.Second, 3*time.Minute)
		if (len(drop) > 0) != c.want || c.troubles != nil && (len(ask) > 0) != c.want {
			t.Errorf("%s: %d go, and these are asked: %v", name, len(drop), ask)
		}
	}
}

// What was said in another moment is forgotten and its object goes; what still holds stays, and is not asked for again.
func TestAnotherMoment(t *testing.T) {
	t.Parallel()
	s := sceneOf("r", "w")
	promote(s, "r")
	asked := s.moment
	s.statuses = []calicov3.CalicoNodeStatus{answerOf("r", asked, then()), answerOf("w", asked, then())}
	s.world.Now = then().Add(time.Second)
	m := &memory{}
	m.enter(s)
	if len(s.world.Sightings) != 2 {
		t.Fatalf("of two answers %d count", len(s.world.Sightings))
	}
	promote(s, "other")
	m.enter(s)
	if len(s.world.Sightings) != 1 || s.world.Sightings[0].Node != "r" {
		t.Errorf("after a promotion these count: %v", s.world.Sightings)
	}
	drop, ask := questions(s, m, routereflector.Plan{Witnesses: []string{"r", "w"}}, 0, time.Hour)
	if len(drop) != 1 || drop[0].Spec.Node != "w" || len(ask) != 1 || ask[0] != "w" {
		t.Errorf("%d go, and these are asked: %v", len(drop), ask)
	}
}

// A client that was asked for its sessions alone is asked again for its routes, and one object for each node is enough.
func TestQuestionsAboutRoutes(t *testing.T) {
	t.Parallel()
	s := sceneOf("w", "v")
	m := &memory{}
	m.enter(s)
	s.statuses = []calicov3.CalicoNodeStatus{answerOf("w", s.moment, then()), answerOf("v", s.moment, then()), answerOf("v", s.moment, then())}
	plan := routereflector.Plan{Witnesses: []string{"v", "w"}, Samples: []string{"w"}}
	drop, ask := questions(s, m, plan, 0, time.Hour)
	if len(drop) != 2 || drop[0].Spec.Node != "w" || drop[1].Spec.Node != "v" || len(ask) != 1 || ask[0] != "w" {
		t.Errorf("%v go, and these are asked: %v", drop, ask)
	}
	s.statuses[0].Spec.Classes = append(s.statuses[0].Spec.Classes, calicov3.NodeStatusClassTypeRoutes)
	if drop, ask = questions(s, m, plan, 0, time.Hour); len(drop) != 1 || len(ask) != 0 {
		t.Errorf("%v go, and these are asked: %v", drop, ask)
	}
}

// A renewed question has another name, since calico-node could take one of the same name for an update of the old one.
func TestRenewedQuestionsHaveAnotherName(t *testing.T) {
	t.Parallel()
	s := sceneOf("w")
	name := func(after time.Duration) string {
		return statusName("main", "w", s.moment, renewal/2, then().Add(after))
	}
	for after := range 20 {
		at := time.Duration(after) * time.Second
		if name(at) == name(at+renewal) {
			t.Errorf("%s and %s later the name is the same", at, renewal)
		}
	}
}

// sceneOf is a scene with clients of these names.
func sceneOf(names ...string) *scene {
	s := &scene{}
	s.world.Now = then()
	s.world.Topology.Name = "main"
	for _, name := range names {
		s.world.Nodes = append(s.world.Nodes, routereflector.Node{Name: name})
	}
	s.moment = s.world.Present()
	return s
}

// promote makes a node of the scene, or a new one, a reflector.
func promote(s *scene, name string) {
	s.world.Nodes = slices.DeleteFunc(slices.Clone(s.world.Nodes), func(n routereflector.Node) bool { return n.Name == name })
	s.world.Nodes = append(s.world.Nodes, routereflector.Node{Name: name, ClusterID: "244.0.0.1", Labels: map[string]string{v1alpha1.ReflectorLabel: "main"}})
	s.moment = s.world.Present()
}

func answerOf(node string, asked routereflector.Moment, at time.Time) calicov3.CalicoNodeStatus {
	status := calicov3.CalicoNodeStatus{ObjectMeta: metav1.ObjectMeta{
		Name: node, CreationTimestamp: metav1.NewTime(at), Annotations: map[string]string{MomentAnnotation: asked.String()},
	}}
	status.Spec.Node, status.Spec.Classes = node, []calicov3.NodeStatusClassType{calicov3.NodeStatusClassTypeBGP}
	status.Status.LastUpdated = metav1.NewTime(at)
	return status
}

// Pods of DaemonSets and static ones are not workloads; each of the others counts once, until it is gone.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	w := NewWorkloads(nil)
	pod := func(uid, owner string, static bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n"}}
		yes := true
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: &yes}}
		}
		if static {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}
		return p
	}
	if _, synced := w.Counts(); synced {
		t.Error("nothing has been read, and it says so not")
	}
	if err := w.Replace([]any{pod("1", "ReplicaSet", false), pod("2", "DaemonSet", false), pod("3", "Node", true), pod("4", "", false)}, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(pod("1", "ReplicaSet", false)); err != nil {
		t.Fatal(err)
	}
	if counts, synced := w.Counts(); counts["n"] != 2 || !synced {
		t.Errorf("the count is %v, synced %t, want 2", counts, synced)
	}
	for range 2 {
		if err := w.Delete(pod("1", "ReplicaSet", false)); err != nil {
			t.Fatal(err)
		}
	}
	if counts, _ := w.Counts(); counts["n"] != 1 {
		t.Errorf("the count is %v, want 1", counts)
	}
}

// A request that nobody needs any more remains while its reflector was last seen without a session, as long as a step may
// wait: the status would show that for ever. What one that is deleted says last does not count.
func TestARequestIsClosedWithAllSessions(t *testing.T) {
	t.Parallel()
	s := sceneOf("c")
	promote(s, "r")
	for i := range s.world.Nodes {
		s.world.Nodes[i].Ready = corev1.ConditionTrue
		s.world.Nodes[i].IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
	}
	s.moment = s.world.Present()
	s.world.Topology.Spec.ClusterID = "244.0.0.1"
	s.world.Topology.Spec.Rollout.SessionTimeout = metav1.Duration{Duration: time.Minute}
	m := &memory{since: then().Add(-time.Hour), moment: s.moment}
	dropped := func(age time.Duration, state calicov3.BGPSessionState) []calicov3.CalicoNodeStatus {
		status := answerOf("r", s.moment, then().Add(-age))
		status.UID = "1"
		status.Status.BGP.PeersV4 = []calicov3.CalicoNodePeer{
			{PeerIP: s.world.Nodes[0].IPv4.String(), Type: calicov3.BGPPeerTypeNodePeer, State: state},
		}
		s.statuses = []calicov3.CalicoNodeStatus{status}
		m.enter(s)
		drop, _ := questions(s, m, routereflector.Plan{}, 5*time.Second, time.Minute)
		return drop
	}
	const up, down = calicov3.BGPSessionStateEstablished, calicov3.BGPSessionStateConnect
	for name, c := range map[string]struct {
		age   time.Duration
		state calicov3.BGPSessionState
		want  int
	}{
		"with its session": {time.Second, up, 1}, "without": {time.Second, down, 0},
		"for longer than a step may wait": {61 * time.Second, down, 1},
	} {
		m = &memory{since: then().Add(-time.Hour), moment: s.moment}
		if got := dropped(c.age, c.state); len(got) != c.want {
			t.Errorf("%s: %d are closed, want %d", name, len(got), c.want)
		}
	}
	m = &memory{since: then().Add(-time.Hour), moment: s.moment}
	dropped(2*time.Second, up)
	m.dropped[types.UID("1")] = true
	dropped(time.Second, down)
	if established, expected, _ := s.world.Sessions("r"); established != 1 || expected != 1 {
		t.Errorf("a request that is deleted changes what was seen to %d of %d", established, expected)
	}
}

// Requests that stand are made as far as there is room, are renewed one after the other when they are old, or when another witness has lost a reflector since
// they were answered; and a node that leaves one unanswered for a minute is remembered.
func TestStandingRequests(t *testing.T) {
	t.Parallel()
	standing := []string{"a", "b", "c"}
	s := sceneOf(append([]string{"w0", "w1", "w2", "w3", "w4", "w5", "w6"}, standing...)...)
	m := &memory{since: then().Add(-time.Hour), moment: s.moment}
	ask := func(plan routereflector.Plan) (drop []calicov3.CalicoNodeStatus, ask []string) {
		return questions(s, m, plan, 5*time.Second, 3*time.Minute)
	}
	m.talk(then(), []string{"w0"})
	busy := routereflector.Plan{Standing: standing, Witnesses: []string{"w0", "w1", "w2", "w3", "w4", "w5", "w6"}}
	if _, asked := ask(busy); len(asked) != maxStatuses || !slices.Contains(asked, "a") || slices.Contains(asked, "b") {
		t.Errorf("beside seven that a step needs these are asked: %v", asked)
	}
	plan := routereflector.Plan{Standing: standing}
	if _, asked := ask(plan); !slices.Equal(asked, standing) {
		t.Errorf("these are asked: %v", asked)
	}
	for name, c := range map[string]struct {
		age, recheck time.Duration
		want         int
	}{
		"ten minutes old":            {standingRenewal, time.Hour, 0},
		"older":                      {standingRenewal + time.Second, time.Hour, 1},
		"a loss since, a moment ago": {time.Minute, 4 * time.Second, 0},
		"a loss since":               {time.Minute, 5 * time.Second, 1},
		"a loss before":              {time.Minute, 2 * time.Minute, 0},
	} {
		s.statuses = nil
		for _, node := range standing {
			s.statuses = append(s.statuses, answerOf(node, s.moment, then().Add(-c.age)))
		}
		plan.Recheck = then().Add(-c.recheck)
		if drop, asked := ask(plan); len(drop) != c.want || len(asked) != c.want {
			t.Errorf("%s: %d go, and these are asked: %v", name, len(drop), asked)
		}
	}
	for name, c := range map[string]struct {
		age  time.Duration
		want []string
	}{"59 s": {59 * time.Second, nil}, "a minute": {time.Minute, []string{"a"}}} {
		m = &memory{since: then().Add(-time.Hour), moment: s.moment}
		empty := answerOf("a", s.moment, then().Add(-c.age))
		empty.Status.LastUpdated = metav1.Time{}
		s.statuses = []calicov3.CalicoNodeStatus{empty, answerOf("b", s.moment, then().Add(-c.age))}
		if m.enter(s); !slices.Equal(s.world.Unresponsive, c.want) {
			t.Errorf("empty for %s: unresponsive are %v", name, s.world.Unresponsive)
		}
	}
}

// In a large cluster a request that only stands has a longer period, since calico-node may write its report in each period, and every calico-node learns of it.
// One that a step needs, or that is made while a reflector is lost, has not; it is renewed when that is over.
func TestStandingRequestsOfALargeCluster(t *testing.T) {
	t.Parallel()
	standing := []string{"a", "b", "c"}
	lost := []v1alpha1.LostReflector{{Node: "r"}}
	for name, c := range map[string]struct {
		nodes int
		plan  routereflector.Plan
		want  time.Duration
	}{
		"650 nodes":                {650, routereflector.Plan{Standing: standing}, 2 * time.Second},
		"1,000 nodes":              {1000, routereflector.Plan{Standing: standing}, 3 * time.Second},
		"5,000 nodes":              {5000, routereflector.Plan{Standing: standing}, 15 * time.Second},
		"15,000 nodes":             {15000, routereflector.Plan{Standing: standing}, 30 * time.Second},
		"5,000 nodes, a step":      {5000, routereflector.Plan{Standing: standing, Witnesses: []string{"a"}}, 2 * time.Second},
		"5,000 nodes, one is lost": {5000, routereflector.Plan{Standing: standing, Lost: lost}, 2 * time.Second},
		"5,000 nodes, by one":      {5000, routereflector.Plan{Standing: standing, Recheck: then().Add(-time.Second)}, 2 * time.Second},
		"5,000 nodes, long ago":    {5000, routereflector.Plan{Standing: standing, Recheck: then().Add(-time.Hour)}, 15 * time.Second},
	} {
		s := sceneOf(standing...)
		s.world.Nodes[0].IPv4 = netip.MustParseAddr("10.0.0.1")
		for i := len(s.world.Nodes); i < c.nodes; i++ {
			s.world.Nodes = append(s.world.Nodes, routereflector.Node{Name: fmt.Sprint("n", i)})
		}
		if got := s.period("a", c.plan); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		m := &memory{since: then().Add(-time.Hour), moment: s.moment}
		for age, calm := range map[time.Duration]bool{calmAfter: false, calmAfter + time.Second: true} {
			hurried, seconds := answerOf("a", s.moment, then().Add(-age)), uint32(2)
			hurried.Spec.UpdatePeriodSeconds = &seconds
			s.statuses = []calicov3.CalicoNodeStatus{hurried}
			renewed := calm && c.want > 2*time.Second
			if drop, _ := questions(s, m, c.plan, 5*time.Second, 3*time.Minute); (len(drop) == 1) != renewed {
				t.Errorf("%s: one with a period of 2 s that is %s old goes: %t, want %t", name, age, len(drop) == 1, renewed)
			}
		}
	}
}
