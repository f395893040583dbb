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
	"github.com/mooring-dev/mooring/internal/testkit/must"
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
			all := must.Get(list.all(t.Context(), list.Stamp(), time.Minute)).Or(t)
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

func TestMemoryOfAServiceIsItsOwn(t *testing.T) {
	t.Parallel()
	c := &Controller{memories: map[string]memory{}, endpoints: newEndpoints(clock.RealClock{}, nil)}
	of := func(uid types.UID) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a", UID: uid}}
	}
	must.Do(t, c.remember(t.Context(), memory{"d/a", "1", loadbalancer.Memory{Holds: "lb"}}))
	if first, second := c.recall(of("1")).Holds, c.recall(of("3")).Holds; first != "lb" || second != "" {
		t.Errorf("remembered %q and %q, want lb and nothing: another Service of the same name", first, second)
	}
	if c.forget("d/a"); c.recall(of("1")).Holds != "" {
		t.Error("a Service that is gone is remembered")
	}
}
