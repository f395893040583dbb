// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// reasons are those of the Events about an EtcdStorage.
func (s *site) reasons(name string) []string {
	s.t.Helper()
	list := must.Get(s.cluster.Client.EventsV1().Events("default").List(s.t.Context(), metav1.ListOptions{})).Or(s.t)
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			out = append(out, e.Type+" "+e.Reason)
		}
	}
	return out
}

// A write that fails ends nothing: the program lives, the status says what failed, nothing is told that was not done, the tenant alongside
// it is served, and it is tried again soon, not after the ten minutes of a resync. (S8, S9, S10: the old controller panicked, forgot the
// object until the next resync, and told of success where there was failure.)
func TestAFailedWriteIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	role := &rbacv1.Role{}
	must.Do(t, s.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "operator"}, role))
	whole := role.DeepCopy()
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, "deployments") {
			role.Rules[i].Verbs = []string{"get", "list", "watch", "create", "delete"}
		}
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"etcd-beside"}, Verbs: []string{"patch"},
	})
	must.Do(t, s.admin.Update(t.Context(), role))
	program := s.start()
	create := func(name string) {
		o := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
		v1alpha1.SetDefaults(o)
		s.create(o)
	}
	testkit.Eventually(t, "the kind to be served", func() string {
		if err := s.admin.List(t.Context(), &v1alpha1.EtcdStorageList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	create("stuck")
	testkit.Eventually(t, "the failure to be reported", func() string {
		conditions, _ := s.status("stuck")
		if ready := conditions["Ready"]; strings.HasPrefix(ready, "False") && strings.Contains(fmt.Sprint(conditions), "deployments.apps") {
			return ""
		}
		return fmt.Sprint(conditions) + program.Output()
	})
	conditions, _ := s.status("stuck")
	if !strings.HasPrefix(conditions[v1alpha1.ConditionDeployed], "False") {
		t.Errorf("it is said to be deployed: %v", conditions)
	}
	create("beside")
	deployed := func(name string) {
		t.Helper()
		testkit.Eventually(t, "the Deployment of "+name, func() string {
			if _, err := s.cluster.Client.AppsV1().Deployments(namespace).Get(t.Context(), "etcd-"+name, metav1.GetOptions{}); err != nil {
				return err.Error() + program.Output()
			}
			return ""
		})
	}
	deployed("beside")
	for _, told := range s.reasons("stuck") {
		if strings.Contains(told, "Deployed") || strings.Contains(told, "Available") {
			t.Errorf("an Event tells of %s", told)
		}
	}
	select {
	case <-program.Done():
		t.Fatalf("it ended: %s", program.Output())
	default:
	}
	whole.ResourceVersion = role.ResourceVersion
	must.Do(t, s.admin.Update(t.Context(), whole))
	deployed("stuck")
}
