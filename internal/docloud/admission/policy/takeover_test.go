// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An author of Services may not name a load balancer that the namespace does not hand over; who may change the namespace may, and what is named stays.
func handOver(t *testing.T, cluster *controlplane.Cluster, admin *server) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"team", "handed"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "handed" {
			ns.Annotations = map[string]string{loadbalancer.TakeOverAnnotation: "x, given", loadbalancer.DomainsAnnotation: "a.example, *.B.example"}
		}
		_, err := admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		must.Do(t, err)
		_, err = admin.RbacV1().Roles(name).Create(ctx, &rbacv1.Role{ // as of the ClusterRole edit, which the controller manager aggregates
			ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "create", "update", "patch", "delete"},
			}},
		}, metav1.CreateOptions{})
		must.Do(t, err)
		_, err = admin.RbacV1().RoleBindings(name).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "edit"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edit"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "author"}},
		}, metav1.CreateOptions{})
		must.Do(t, err)
	}
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "author"}
	author := &server{Interface: kubernetes.NewForConfigOrDie(controlplane.Protobuf(config))}
	naming := func(namespace, name, id string) *corev1.Service {
		s := service(name)
		s.Namespace = namespace
		if id != "" {
			s.Annotations = map[string]string{annotation.LoadBalancerID: id}
		}
		return s
	}
	testkit.Eventually(t, "a refusal, by an author who may write Services", func() string {
		err := author.try(ctx, naming("team", "thief", "theirs"))
		if err != nil && strings.Contains(err.Error(), "kubectl annotate namespace team "+loadbalancer.TakeOverAnnotation+"=theirs") {
			return ""
		}
		if err == nil {
			return "it is let through"
		}
		return err.Error()
	})
	for what, allowed := range map[string]error{
		"none is named":                 author.try(ctx, naming("team", "plain", "")),
		"the namespace hands it over":   author.try(ctx, naming("handed", "given", "given")),
		"an administrator may name any": admin.try(ctx, naming("team", "admins", "theirs")),
	} {
		if allowed != nil {
			t.Errorf("%s: %v", what, allowed)
		}
	}
	if err := author.try(ctx, naming("handed", "more", "theirs")); err == nil {
		t.Error("the namespace hands over another one")
	}
	// What is there may be changed otherwise, and comes from nowhere else: not by way of a Service of another type.
	_, err := admin.CoreV1().Services("team").Create(ctx, naming("team", "has", "theirs"), metav1.CreateOptions{})
	must.Do(t, err)
	has := must.Get(author.CoreV1().Services("team").Get(ctx, "has", metav1.GetOptions{})).Or(t)
	has.Labels = map[string]string{"a": "b"}
	has.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	must.Do(t, author.change(ctx, has))
	quiet := naming("team", "quiet", "theirs")
	quiet.Spec.Type = corev1.ServiceTypeNodePort
	made := must.Get(author.CoreV1().Services("team").Create(ctx, quiet, metav1.CreateOptions{})).Or(t)
	made.Spec.Type = corev1.ServiceTypeLoadBalancer
	if err := author.change(ctx, made); err == nil {
		t.Error("a Service that becomes a load balancer brings an ID along")
	}
	// Likewise domains for certificates.
	secured := func(namespace, name, domains string) *corev1.Service {
		s := service(name, "type", "REGIONAL", "certificate-domains", domains)
		s.Namespace = namespace
		return s
	}
	for domains, allowed := range map[string]bool{
		"a.example": true, "A.example,c.b.example": true, "*.b.example": true, "b.example": false, "a.example,c.example": false, "ab.example": false,
	} {
		err := author.try(ctx, secured("handed", "secured", domains))
		switch {
		case allowed && err != nil:
			t.Errorf("%s: %v", domains, err)
		case !allowed && (err == nil || !strings.Contains(err.Error(), "kubectl annotate namespace handed "+loadbalancer.DomainsAnnotation+"=")):
			t.Errorf("%s is answered with %v", domains, err)
		}
	}
	if err := author.try(ctx, secured("team", "secured", "a.example")); err == nil {
		t.Error("what one namespace may have another has, too")
	}
	must.Do(t, admin.try(ctx, secured("team", "secured", "a.example")))
	_, err = admin.CoreV1().Services("team").Create(ctx, secured("team", "certified", "a.example"), metav1.CreateOptions{})
	must.Do(t, err)
	certified := must.Get(author.CoreV1().Services("team").Get(ctx, "certified", metav1.GetOptions{})).Or(t)
	certified.Labels = map[string]string{"a": "b"}
	certified.Annotations[annotation.SizeUnit] = "2"
	must.Do(t, author.change(ctx, certified))
	certified.Annotations[annotation.CertificateDomains] = "a.example,d.example"
	if err := author.change(ctx, certified); err == nil {
		t.Error("a domain is added to a Service that has another")
	}
}
