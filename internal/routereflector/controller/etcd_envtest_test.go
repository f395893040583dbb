// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// editInformation changes ClusterInformation with Calico's client.
func (s *stage) editInformation(change func(*calicov3.ClusterInformation)) {
	s.t.Helper()
	testkit.Eventually(s.t, "ClusterInformation to be changed", func() string {
		info, err := s.calico.ClusterInformation().Get(s.t.Context(), "default", options.GetOptions{})
		if err != nil {
			return err.Error()
		}
		change(info)
		if _, err := s.calico.ClusterInformation().Update(s.t.Context(), info, options.SetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// editNode changes a Calico Node with Calico's client.
func (s *stage) editNode(name string, change func(*libapiv3.Node)) {
	s.t.Helper()
	testkit.Eventually(s.t, "Calico Node "+name+" to be changed", func() string {
		n, err := s.calico.Nodes().Get(s.t.Context(), name, options.GetOptions{})
		if err != nil {
			return err.Error()
		}
		change(n)
		if _, err := s.calico.Nodes().Update(s.t.Context(), n, options.SetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// boundTo is the cluster that Calico's etcd says it belongs to.
func (s *stage) boundTo() string {
	s.t.Helper()
	info, err := s.calico.ClusterInformation().Get(s.t.Context(), "default", options.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Annotations[routereflector.BindingAnnotation]
}

// What holds a plan back in an etcd: nothing is written there before it is gone. Then the first write binds the etcd to this cluster.
func TestHeldInEtcd(t *testing.T) {
	t.Parallel()
	bind := func(uid string) func(s *stage) {
		return func(s *stage) {
			s.editInformation(func(c *calicov3.ClusterInformation) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, routereflector.BindingAnnotation, uid)
				if uid == "" {
					delete(c.Annotations, routereflector.BindingAnnotation)
				}
			})
		}
	}
	rename := func(to string) func(s *stage) {
		return func(s *stage) {
			for i := range 3 {
				name, kubernetes := s.calicoName(i), nodeName(i)
				s.editNode(name, func(n *libapiv3.Node) { n.Spec.OrchRefs[0].NodeName = to + kubernetes })
			}
		}
	}
	id := func(id string) func(s *stage) {
		return func(s *stage) {
			s.editNode(s.calicoName(2), func(n *libapiv3.Node) { n.Spec.BGP.RouteReflectorClusterID = id })
		}
	}
	for name, c := range map[string]struct {
		phase               v1alpha1.Phase
		kind, reason, words string
		before, release     func(s *stage)
		others              int
	}{
		"another cluster's": {
			phase: v1alpha1.PhaseFrozen, kind: v1alpha1.ConditionFrozen, reason: "ForeignDatastore", words: "belongs to the cluster whose namespace kube-system has UID elsewhere",
			before: bind("elsewhere"), release: bind(""),
		},
		"few of its nodes are ours": {
			phase: v1alpha1.PhaseFrozen, kind: v1alpha1.ConditionFrozen, reason: "ForeignDatastore", words: "of 5 Calico Nodes that name a Kubernetes Node, 2 name one that there is",
			before: rename("elsewhere-"), release: rename(""),
		},
		"datastore not ready": {
			phase: v1alpha1.PhaseFrozen, kind: v1alpha1.ConditionFrozen, reason: "DatastoreNotReady", words: "datastoreReady=false",
			before: func(s *stage) { s.setDatastoreReady(false) }, release: func(s *stage) { s.setDatastoreReady(true) },
		},
		"a cluster ID that is taken": {
			phase: v1alpha1.PhaseRefused, kind: v1alpha1.ConditionAccepted, reason: "ClusterIDTaken", words: "Node calico-node-0002 has it already",
			before: id("244.0.0.1"), release: id(""), others: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEtcdStage(t, 5)
			c.before(s)
			revision := s.etcd.Revision(t)
			p := s.start()
			s.create("main", "{}")
			expectCondition(t, s.await("main", c.phase), c.kind, c.reason, c.words)
			onlyStatus(t, p)
			if now := s.etcd.Revision(t); now != revision {
				t.Errorf("%d writes went to etcd", now-revision)
			}
			c.release(s)
			s.await("main", v1alpha1.PhaseReady)
			if got, want := s.boundTo(), s.clusterUID(t.Context()); got != want {
				t.Errorf("the etcd is bound to %q, not to this cluster, %q", got, want)
			}
			if got := len(s.sim.Changes()); got != 4+2*c.others {
				t.Errorf("there were %d changes: %+v", got, s.sim.Changes())
			}
		})
	}
}

// A reflector whose machine is gone, and whose Kubernetes Node somebody has deleted, makes room for another when the grace period is over. Its Calico Node
// is for calico-node-sync or kube-controllers to remove.
func TestKubernetesNodeGone(t *testing.T) {
	t.Parallel()
	s := newEtcdStage(t, 7)
	s.start()
	s.create("main", "failure: {unreachableGrace: 10s, notReadyGrace: 10s}")
	s.await("main", v1alpha1.PhaseReady)
	gone := s.reflectors()[0]
	for i := range 7 {
		if other := s.calicoName(i); other != gone {
			s.sim.Cut(gone, other, true)
		}
	}
	begun := s.now()
	if err := s.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(gone, "calico-")}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "another reflector in its place", func() string {
		if got := s.reflectors(); len(got) == 3 && !slices.Contains(got, gone) {
			return ""
		}
		return fmt.Sprint(s.reflectors())
	})
	if took := s.now().Sub(begun); took < 10*time.Second {
		t.Errorf("it was given up after %s, before the grace period was over", took)
	}
	changes := s.changes(6)[4:]
	if len(changes) != 2 || changes[0].What != "promote" || changes[1].What != "demote" || changes[1].Node != gone {
		t.Errorf("the changes were %+v", changes)
	}
}

// Nobody is harmed who writes Calico Nodes at the same time: what kube-controllers and calico-node write stays, and the roles are as wanted in the end.
func TestOthersWriteCalicoNodes(t *testing.T) {
	t.Parallel()
	s := newEtcdStage(t, 5)
	s.start()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		written := 0
		for i := 0; ctx.Err() == nil; i++ {
			n, err := s.calico.Nodes().Get(ctx, s.calicoName(i%5), options.GetOptions{})
			if err != nil {
				continue
			}
			metav1.SetMetaDataLabel(&n.ObjectMeta, "written", fmt.Sprint(i))
			if _, err := s.calico.Nodes().Update(ctx, n, options.SetOptions{}); err == nil {
				written++
			}
			select {
			case <-ctx.Done():
			case <-s.pause():
			}
		}
		done <- written
	}()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	cancel()
	if written := <-done; written < 5 {
		t.Errorf("the others wrote %d times, which shows nothing", written)
	}
	if got := s.reflectors(); len(got) != 3 {
		t.Errorf("the reflectors are %v", got)
	}
	for _, n := range s.calicoNodes() {
		if n.Labels["written"] == "" || n.Spec.OrchRefs[0].NodeName == "" {
			t.Errorf("what others wrote on %s is gone: %v", n.Name, n.Labels)
		}
	}
	s.expectOneAtATime()
}

// With the rights of the list, and no others, the operator enables a topology and ends it; and Kubernetes' Nodes it may not write.
func TestEtcdRights(t *testing.T) {
	t.Parallel()
	s := etcdStageOn(t, cluster.Real(t)).with(5)
	rbac := s.cluster.Client.RbacV1()
	role, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rr-"}, Rules: rights.Rounds(rights.Reflectors().Roles("etcdv3")),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rr-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = rbac.ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})
	})
	limited := rest.CopyConfig(s.cluster.Config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: role.Name}
	testkit.Eventually(t, "the rights to be known", func() string {
		if _, err := kubernetes.NewForConfigOrDie(limited).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := Preflight(t.Context(), limited, etcdScheme(), EtcdInformers()); err != nil {
		t.Fatal(err)
	}
	s.config = limited
	s.start(func(r *Reconciler, _ *cluster.Program) {
		r.Workloads = NewWorkloads(kubernetes.NewForConfigOrDie(limited))
	})
	topology := s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	if err := s.client.Delete(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	s.awaitGone("main")
}
