// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// manager is the field manager of tests.
const manager = client.FieldOwner("mooring-test")

// A Server is the package's real kube-apiserver, and what it has warned about.
type Server struct {
	// Client is the administrator's.
	Client client.Client

	mu       sync.Mutex
	warnings []string // guarded by mu
}

// Connect returns the control plane that the tests of a package share. Its TestMain calls testkit.Main.
func Connect(tb testing.TB) *Server {
	tb.Helper()
	return ConnectTo(tb, controlplane.Shared(tb))
}

// ConnectTo is Connect for a cluster that a test has for itself.
func ConnectTo(tb testing.TB, cluster *controlplane.Cluster) *Server {
	tb.Helper()
	s := &Server{}
	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = s
	c := must.Get(client.New(config, client.Options{})).Or(tb)
	s.Client = c
	return s
}

// HandleWarningHeader keeps a warning; kubectl would print it. It implements rest.WarningHandler.
func (s *Server) HandleWarningHeader(_ int, _ string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, text)
}

// Warnings are those so far.
func (s *Server) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.warnings)
}

// Apply sends the object as kubectl apply --server-side does, with every field checked. It returns the server's error as it is.
func (s *Server) Apply(ctx context.Context, u *unstructured.Unstructured, options ...client.ApplyOption) error {
	strict := client.WithFieldValidation(s.Client, metav1.FieldValidationStrict)
	return strict.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), append(options, manager, client.ForceOwnership)...)
}

// DryRun has the server judge all objects, and a pod from each Deployment's template, which the namespace's own admission judges. Their
// namespace and service accounts must be there.
func (s *Server) DryRun(tb testing.TB, source string, all []*unstructured.Unstructured) {
	tb.Helper()
	for _, u := range all {
		if err := s.Apply(tb.Context(), u, client.DryRunAll); err != nil {
			tb.Errorf("%s: dry run of %s %s: %v", source, u.GetKind(), u.GetName(), err)
		}
	}
	for _, d := range OfKind[appsv1.Deployment](tb, all, "Deployment") {
		s.admitPod(tb, source, d)
	}
}

// DefaultAccount makes the account of pods that name none, as a controller does in a whole cluster.
func (s *Server) DefaultAccount(tb testing.TB, namespace string) {
	tb.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := s.Client.Create(tb.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
}

// admitPod waits for the priority classes that a new API server makes itself, then creates the template's pod in dry run.
func (s *Server) admitPod(tb testing.TB, source string, d *appsv1.Deployment) {
	tb.Helper()
	testkit.Eventually(tb, source+": admission of the pod of "+d.Name, func() string {
		pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
		pod.GenerateName, pod.Namespace = d.Name+"-", d.Namespace
		if err := s.Client.Create(tb.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}
