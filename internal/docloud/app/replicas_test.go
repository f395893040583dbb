// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const balancerID = "kubernetes.digitalocean.com/load-balancer-id"

// service makes a Service that wants a load balancer, and takes it away at the end together with its finalizer.
func service(t *testing.T, c *controlplane.Cluster, name string) {
	t.Helper()
	services := c.Client.CoreV1().Services("default")
	must.Get(services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})).Or(t)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = services.Delete(ctx, name, metav1.DeleteOptions{})
		_, _ = services.Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
}

// heldPosts holds the first POST of a load balancer until it is let go, and counts all.
type heldPosts struct {
	http.Handler
	arrived, goOn chan struct{}
	once          sync.Once
	posts         atomic.Int64
}

func (h *heldPosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/v2/load_balancers" {
		h.posts.Add(1)
		h.once.Do(func() {
			close(h.arrived)
			<-h.goOn
		})
	}
	h.Handler.ServeHTTP(w, r)
}

// A leader that is told to end finishes the write that is under way, keeps its Lease meanwhile, and then gives it back: the other replica need not
// wait for it to run out, and nothing is made twice.
func TestReplicaTakesOverAtOnceAndNothingIsMadeTwice(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	const lease = "two-replicas"
	cloud := sim.New(sim.Options{Seed: 5})
	held := &heldPosts{Handler: cloud.Handler(), arrived: make(chan struct{}), goOn: make(chan struct{})}
	server := httptest.NewServer(held)
	t.Cleanup(server.Close)
	letGo := sync.OnceFunc(func() { close(held.goOn) })
	t.Cleanup(letGo) // the server waits for its requests
	start := func() *manager {
		return startManager(t, cloud, c.Kubeconfig, []string{"DO_OVERRIDE_URL=" + server.URL, "DO_CLUSTER_ID=two-replicas", "DEFAULT_LB_TYPE=REGIONAL"},
			"--leader-elect=true", "--leader-elect-resource-name="+lease, "--leader-elect-lease-duration=600s", "--leader-elect-renew-deadline=300s",
			"--leader-elect-retry-period=200ms")
	}
	holder := func() coordinationv1.LeaseSpec {
		l, err := c.Client.CoordinationV1().Leases("kube-system").Get(t.Context(), lease, metav1.GetOptions{})
		if err != nil {
			return coordinationv1.LeaseSpec{}
		}
		return l.Spec
	}
	first := start()
	readyFleet(t, c, cloud, "replica-node")
	leader := ptr.Deref(holder().HolderIdentity, "")
	if leader == "" {
		t.Fatal("a Node was initialized without a leader")
	}
	second := start()
	testkit.Eventually(t, "the second replica to want the Lease", func() string {
		if strings.Contains(second.Output(), "Attempting to acquire leader lease") || strings.Contains(second.Output(), "attempting to acquire leader lease") {
			return ""
		}
		return "it says " + second.Output()
	})
	service(t, c, "under-way")
	<-held.arrived
	first.Signal(syscall.SIGTERM)
	seen := map[string]bool{}
	testkit.Eventually(t, "three renewals while the write is under way", func() string {
		spec := holder()
		if got := ptr.Deref(spec.HolderIdentity, ""); got != leader {
			t.Fatalf("the Lease is %q's while the first leader still writes", got)
		}
		seen[fmt.Sprint(spec.RenewTime)] = true
		if len(seen) < 4 {
			return fmt.Sprint(len(seen))
		}
		return ""
	})
	letGo()
	testkit.Eventually(t, "the other replica to lead", func() string {
		if got := ptr.Deref(holder().HolderIdentity, ""); got == "" || got == leader {
			return fmt.Sprintf("the Lease is %q's", got)
		}
		return ""
	})
	s := must.Get(c.Client.CoreV1().Services("default").Get(t.Context(), "under-way", metav1.GetOptions{})).Or(t)
	if s.Annotations[balancerID] == "" {
		t.Error("the first leader gave the Lease back before it had noted the load balancer on the Service")
	}
	<-first.Done()
	if code := first.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	testkit.Eventually(t, "the new leader to show the address", func() string {
		s, err := c.Client.CoreV1().Services("default").Get(t.Context(), "under-way", metav1.GetOptions{})
		if err != nil || len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Sprint(err, second.Output())
		}
		return ""
	})
	if n, all := held.posts.Load(), cloud.Account("").LoadBalancers(); n != 1 || len(all) != 1 {
		t.Errorf("%d POSTs made %d load balancers", n, len(all))
	}
	second.Stop()
	if got := ptr.Deref(holder().HolderIdentity, ""); got != "" {
		t.Errorf("the Lease is still %q's after its end", got)
	}
}

// A leader that loses its Lease ends at once.
func TestLeaderWithoutItsLeaseEnds(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	const lease = "lost-lease"
	cloud := sim.New(sim.Options{Seed: 6})
	m := startManager(t, cloud, c.Kubeconfig, nil, "--leader-elect=true", "--leader-elect-resource-name="+lease,
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")
	readyFleet(t, c, cloud, "lost-lease-node")
	testkit.Eventually(t, "the Lease to be another's", func() string {
		patch := fmt.Sprintf(`{"spec":{"holderIdentity":"another","leaseDurationSeconds":3600,"renewTime":%q}}`, metav1.NowMicro().UTC().Format("2006-01-02T15:04:05.000000Z"))
		_, err := c.Client.CoordinationV1().Leases("kube-system").Patch(t.Context(), lease, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return err.Error()
		}
		select {
		case <-m.Done():
			return ""
		default:
			return "the program still runs"
		}
	})
	if code := m.ExitCode(); code != 1 || !strings.Contains(m.Output(), "error: the leader's Lease was lost: another replica may lead by now") {
		t.Errorf("exit code %d", code)
	}
}
