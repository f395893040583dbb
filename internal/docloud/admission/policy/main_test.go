// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// p begins the names of most annotations.
const p = annotation.Prefix

// server is a real API server and what it has warned about.
type server struct {
	kubernetes.Interface
	mu       sync.Mutex
	warnings []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (s *server) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, text)
}

// heard returns the warnings since it was called last.
func (s *server) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.warnings
	s.warnings = nil
	return out
}

// connect returns a client of a cluster with a list of warnings of its own; user is who it is to be, empty for the administrator.
func connect(t *testing.T, cluster *controlplane.Cluster, user string) *server {
	t.Helper()
	s := &server{}
	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = s
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	s.Interface = kubernetes.NewForConfigOrDie(controlplane.Protobuf(config))
	return s
}

// install puts the policies into force, waits until they are, and returns what removes them.
func install(t *testing.T, s *server, defaultType string, defaulted ...string) (uninstall func()) {
	t.Helper()
	for _, pair := range policy.All(defaultType, defaulted...) {
		if _, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), pair.Policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), pair.Binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the policies to be in force", func() string {
		s.heard()
		err := s.try(t.Context(), service("probe", "type", "GLOBAL"))
		if !strings.Contains(fmt.Sprint(err), "denied request") {
			return fmt.Sprintf("a wrong type is answered with %v", err)
		}
		if err := s.try(t.Context(), service("probe", "unheard-of", "x")); err != nil || len(s.heard()) == 0 {
			return fmt.Sprintf("an unknown annotation is answered with %v and no warning", err)
		}
		return ""
	})
	return func() { remove(t, s) }
}

// remove removes the policies and the Services of a test, and waits until nothing is refused.
func remove(t *testing.T, s *server) {
	t.Helper()
	ctx := t.Context()
	for _, pair := range policy.All("") {
		must.Do(t, s.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, pair.Binding.Name, metav1.DeleteOptions{}))
		must.Do(t, s.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, pair.Policy.Name, metav1.DeleteOptions{}))
	}
	all := must.Get(s.CoreV1().Services("default").List(ctx, metav1.ListOptions{})).Or(t)
	for _, left := range all.Items {
		if left.Name != "kubernetes" {
			must.Do(t, s.CoreV1().Services("default").Delete(ctx, left.Name, metav1.DeleteOptions{}))
		}
	}
	testkit.Eventually(t, "the policies to be gone", func() string {
		s.heard()
		refused, warned := s.try(ctx, service("probe", "type", "GLOBAL")), s.try(ctx, service("probe", "unheard-of", "x"))
		if heard := s.heard(); refused != nil || warned != nil || len(heard) > 0 {
			return fmt.Sprint(refused, warned, heard)
		}
		return ""
	})
}

// try creates a Service in dry run.
func (s *server) try(ctx context.Context, service *corev1.Service) error {
	_, err := s.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// change updates a Service in dry run.
func (s *server) change(ctx context.Context, service *corev1.Service) error {
	_, err := s.CoreV1().Services(service.Namespace).Update(ctx, service, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// refusal returns the sentences for which the policy refuses, sorted; none for nil. Any other error ends the test.
func refusal(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	_, sentences, ok := strings.Cut(status.Status().Message, "'"+policy.Annotations+"' denied request: ")
	if !ok {
		t.Fatalf("the API server refuses something else: %v", err)
	}
	out := strings.Split(sentences, "; ")
	slices.Sort(out)
	return out
}

// service is a Service of type LoadBalancer with TCP ports 80 and 443; pairs are annotations, whose names get the prefix unless they have a slash.
func service(name string, pairs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "https", Protocol: corev1.ProtocolTCP, Port: 443},
		}},
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = p + name
		}
		s.Annotations[name] = pairs[i+1]
	}
	return s
}
