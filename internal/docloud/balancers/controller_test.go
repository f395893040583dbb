// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

func TestReasonsOfBalancersAreAContract(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		loadbalancer.ReasonConfig: "LoadBalancerConfigError", loadbalancer.ReasonNoNodes: "UnAvailableLoadBalancer", loadbalancer.ReasonFailed: "UpdateLoadBalancerFailed",
		loadbalancer.ReasonForeign: "LoadBalancerForeign", loadbalancer.ReasonNotDeleted: "LoadBalancerNotDeleted", loadbalancer.ReasonDoubt: "DigitalOceanAccountInDoubt",
		loadbalancer.ReasonLeftOut: "LoadBalancerNodesLeftOut", loadbalancer.ReasonRepaired: "LoadBalancerRepaired", loadbalancer.ReasonRecreated: "LoadBalancerRecreated",
		loadbalancer.ReasonLeftOver: "LoadBalancerLeftOver", loadbalancer.ReasonPending: "LoadBalancerPending", loadbalancer.ReasonEnsured: "EnsuredLoadBalancer",
	} {
		if got != want {
			t.Errorf("reason %q, want %q: alerts select by it", got, want)
		}
	}
}

// stubList counts readings, which take a second.
type stubList struct {
	mu    sync.Mutex
	reads int
	epoch uint64
	fails error
	lbs   []loadbalancer.Observed
}

func (s *stubList) read(context.Context) ([]loadbalancer.Observed, error) {
	<-time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return slices.Clone(s.lbs), s.fails
}

func (s *stubList) current() uint64 { return s.epoch }

func TestOwnWritesCountMoreThanListsThatLagBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stub := &stubList{lbs: []loadbalancer.Observed{{ID: "a", Name: "old"}, {ID: "b"}}}
		list := &balancerList{List: cached.New(stub.read, stub.current, clock.RealClock{}), clock: clock.RealClock{}, settle: 15 * time.Second, writes: map[string]learned{}}
		names := func() (out []string) {
			t.Helper()
			all, err := list.all(t.Context(), list.Stamp(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, lb := range all {
				out = append(out, lb.ID+lb.Name)
			}
			return out
		}
		list.learn(loadbalancer.Observed{ID: "a", Name: "new"}, stub.current())
		list.learn(loadbalancer.Observed{ID: "c", Status: loadbalancer.StatusNew}, stub.current())
		list.gone("b", stub.current())
		if got := names(); !slices.Equal(got, []string{"a" + "new", "c"}) {
			t.Errorf("right after writes: %v", got)
		}
		stub.lbs = append(stub.lbs, loadbalancer.Observed{ID: "c", Name: "listed", Status: loadbalancer.StatusActive})
		if got := names(); !slices.Equal(got, []string{"a" + "new", "clisted"}) {
			t.Errorf("when it is active: %v", got)
		}
		list.forget("a")
		if got := names(); !slices.Equal(got, []string{"aold", "clisted"}) {
			t.Errorf("when the outcome is not known: %v", got)
		}
		<-time.After(15 * time.Second)
		if got := names(); !slices.Equal(got, []string{"aold", "b", "clisted"}) {
			t.Errorf("when lists have caught up: %v", got)
		}
	})
}

func TestWhatMattersOfANode(t *testing.T) {
	t.Parallel()
	base := func() *corev1.Node {
		n := &corev1.Node{}
		n.Spec.ProviderID = "digitalocean://1"
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
		return n
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"heartbeat":   {func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, true},
		"other label": {func(n *corev1.Node) { n.Labels = map[string]string{"x": "y"} }, false}, // a Service may select by it
		"other taint": {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, true},
		"address":     {func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.2" }, false},
		"provider ID": {func(n *corev1.Node) { n.Spec.ProviderID = "" }, false},
		"label":       {func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }, false},
		"taint":       {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}} }, false},
		"another":     {func(n *corev1.Node) { n.UID = "2" }, false},
	} {
		changed := base()
		c.change(changed)
		if got := sameTarget(base(), changed); got != c.same {
			t.Errorf("%s: sameTarget is %t, want %t", name, got, c.same)
		}
	}
}

func TestOneServiceIsPassedOverAtATimeAndItsMemoryIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{memories: map[string]*remembered{}}
		of := func(name string, uid types.UID) *corev1.Service {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
		}
		a, end := c.turn(of("a", "1"))
		a.memory.Holds = "lb"
		_, endOther := c.turn(of("b", "2"))
		endOther()
		holds := make(chan string, 2)
		for _, uid := range []types.UID{"1", "3"} {
			go func() {
				r, done := c.turn(of("a", uid))
				defer done()
				holds <- string(uid) + r.memory.Holds
			}()
			synctest.Wait()
		}
		if len(holds) != 0 {
			t.Error("two passes over one Service at a time")
		}
		end()
		synctest.Wait()
		if first, second := <-holds, <-holds; first != "1lb" || second != "3" {
			t.Errorf("remembered %s and %s, want 1lb and 3: another Service of the same name", first, second)
		}
	})
}
