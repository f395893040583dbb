// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// With the rights of the list, and no others, the operator enables a topology and ends it.
func TestRights(t *testing.T) {
	t.Parallel()
	s := newRealStage(t, 5)
	rbac := s.cluster.Client.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "rr-"}, Rules: rights.Rounds(rights.Reflectors().Roles("kubernetes"))}
	role, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rr-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role.Name}},
	}
	if binding, err = rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
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
		if _, err := kubernetes.NewForConfigOrDie(limited).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
			return err.Error()
		}
		return ""
	})
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

// undeclared is a datastore whose controller does not declare that it writes Nodes.
type undeclared struct{ Datastore }

func (u undeclared) Writes() []outputs.Write {
	return slices.DeleteFunc(u.Datastore.Writes(), func(w outputs.Write) bool { return w.Kind == "nodes" })
}

// What a round writes and does not declare never reaches the API server, and the status says so.
func TestAWriteThatIsNotDeclared(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.narrow = func(d Datastore) Datastore { return undeclared{d} }
	p := s.start()
	s.create("main", "{}")
	if got := s.told(v1alpha1.ConditionDegraded, "WriteFailed"); !strings.Contains(got, outputs.ErrUndeclared.Error()) {
		t.Errorf("it says %q", got)
	}
	if i := slices.IndexFunc(p.program.Written(), func(r string) bool { return strings.Contains(r, "/nodes/") }); i >= 0 {
		t.Errorf("it was written: %s", p.program.Written()[i])
	}
}
