// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxyapp"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// proxyExample is the proxy that people make by hand.
const proxyExample = "config/etcd-storage-proxy/example/team-a.yaml"

func proxyObjects(t *testing.T) ([]*unstructured.Unstructured, *appsv1.Deployment) {
	t.Helper()
	content := must.Get(os.ReadFile("../../" + proxyExample)).Or(t)
	all := objects.Parse(t, proxyExample, content)
	return all, objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
}

// The pods of the example meet the restricted standard, hold no token, write nowhere, and get all the time that their flags ask for.
func TestEtcdProxyExampleIsHardened(t *testing.T) {
	t.Parallel()
	all, d := proxyObjects(t)
	if objects.CheckPods(t, proxyExample, all) == 0 {
		t.Error("no Deployment was judged")
	}
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod gets a token of the Kubernetes API, which it never talks to")
	}
	if container.SecurityContext.ReadOnlyRootFilesystem == nil || !*container.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("the root file system is writable")
	}
	if container.LivenessProbe.HTTPGet.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes must tell a process that hangs from a core that is away")
	}
	for _, m := range container.VolumeMounts {
		if !m.ReadOnly || m.SubPath != "" {
			t.Errorf("%s is writable or a subPath, which is never updated", m.Name)
		}
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			t.Errorf("the Secret %s is readable by everybody in the pod", v.Secret.SecretName)
		}
	}
	spaces := objects.OfKind[corev1.Namespace](t, all, "Namespace")
	if len(spaces) != 1 || spaces[0].Labels[api.EnforceLevelLabel] != string(api.LevelRestricted) || d.Namespace != spaces[0].Name {
		t.Error("the namespace does not enforce the restricted standard")
	}
	if len(objects.OfKind[corev1.Secret](t, all, "Secret"))+len(objects.OfKind[corev1.ConfigMap](t, all, "ConfigMap")) > 0 {
		t.Error("applying the example again would overwrite certificates")
	}
}

// The flags of the example are flags of the program, and fit the ports, the volumes and the time that the pod has.
func TestEtcdProxyExampleFitsTheFlags(t *testing.T) {
	t.Parallel()
	_, d := proxyObjects(t)
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	flags := proxyapp.NewCommand().Flags()
	must.Do(t, flags.Parse(container.Args))
	value := func(name string) string { return flags.Lookup(name).Value.String() }
	for flag, port := range map[string]string{"listen-address": "etcd", "health-address": "health", "metrics-address": "metrics"} {
		i := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
		if i < 0 || !strings.HasSuffix(value(flag), ":"+strconv.Itoa(int(container.Ports[i].ContainerPort))) {
			t.Errorf("--%s=%s fits no port called %s", flag, value(flag), port)
		}
	}
	for _, flag := range []string{"core-ca-file", "core-cert-file", "core-key-file", "tls-cert-file", "tls-private-key-file", "client-ca-file"} {
		if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(value(flag)) }) {
			t.Errorf("--%s=%s is in no volume", flag, value(flag))
		}
	}
	delay := must.Get(flags.GetDuration("drain-delay")).Or(t)
	timeout := must.Get(flags.GetDuration("drain-timeout")).Or(t)
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; delay <= 0 || grace <= delay+timeout {
		t.Errorf("the pod has %s to end, its flags ask for %s and %s", grace, delay, timeout)
	}
}

// Service, budget and network policy are about the Deployment's pods.
func TestEtcdProxyExampleHangsTogether(t *testing.T) {
	t.Parallel()
	all, d := proxyObjects(t)
	pods := labels.Set(d.Spec.Template.Labels)
	about := func(what string, selector *metav1.LabelSelector) {
		t.Helper()
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(pods) {
			t.Errorf("the %s selects %v (%v), not the pods %v", what, s, err, pods)
		}
	}
	service := objects.OfKind[corev1.Service](t, all, "Service")[0]
	about("Service", &metav1.LabelSelector{MatchLabels: service.Spec.Selector})
	about("PodDisruptionBudget", objects.OfKind[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget")[0].Spec.Selector)
	about("NetworkPolicy", &objects.OfKind[networkingv1.NetworkPolicy](t, all, "NetworkPolicy")[0].Spec.PodSelector)
	about("Deployment", d.Spec.Selector)
	advertised := "--advertise-client-url=https://" + service.Name + "." + service.Namespace + ".svc:" + strconv.Itoa(int(service.Spec.Ports[0].Port))
	if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, advertised) {
		t.Errorf("the Service is not what clients are told: %s", advertised)
	}
}

// A real API server takes every object, and the admission of its namespace the pods.
func TestServerAcceptsTheEtcdProxyExample(t *testing.T) {
	t.Parallel()
	all, _ := proxyObjects(t)
	server := objects.Connect(t)
	for _, u := range all {
		if u.GetKind() == "Namespace" {
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	controlplane.Shared(t).AllowPods(t, "etcd-storage", "default")
	server.DryRun(t, proxyExample, all)
	if heard := server.Warnings(); len(heard) > 0 {
		t.Errorf("the API server warns: %q", heard)
	}
}
