// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The tests of this file are those of docs/components/etcd-storage-compared.md that are nowhere else: each shows of one defect of etcdproxy-controller, S1
// to S21 of the facts, that it is not here.

// end is the end of the certificate in a Secret.
func (g *stage) end(namespace, name string) time.Time {
	g.t.Helper()
	data := g.secret(namespace, name).Data
	pair := must.Get(tls.X509KeyPair(data["tls.crt"], data["tls.key"])).Or(g.t)
	return pair.Leaf.NotAfter
}

// Each certificate is renewed after two thirds of the validity that its own field says (S1, S3: the old one renewed none, and went by the clients' validity
// for servers).
func TestEachCertificateIsRenewedInItsOwnTime(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns, name := g.tenant(), "own-time"
	g.storage(name, toTenant(ns, ", signingCertificateValidity: 1000h, servingCertificateValidity: 90h, clientCertificateValidity: 30h"))
	g.sync(name)
	begun := g.clock.Now()
	for _, step := range []struct {
		hours           int
		client, serving int // the ends of the certificates then, in hours since the beginning
	}{{19, 30, 90}, {20, 50, 90}, {39, 50, 90}, {59, 89, 90}, {60, 89, 150}, {78, 89, 150}} {
		g.clock.SetTime(begun.Add(time.Duration(step.hours) * time.Hour))
		g.sync(name)
		client, serving := g.end(ns, "client").Sub(begun).Hours(), g.end(g.namespace, operator.ServingName(name)).Sub(begun).Hours()
		if client != float64(step.client) || serving != float64(step.serving) {
			t.Errorf("after %d h the client's ends at %.1f h and the proxies' at %.1f h, want %d and %d", step.hours, client, serving, step.client, step.serving)
		}
	}
	if bundle := g.configMap(ns, "ca").Data[v1alpha1.ServingCAKey]; strings.Count(bundle, "BEGIN") != 1 {
		t.Errorf("the bundle grew without a new CA: %s", bundle)
	}
}

// proxyProcess is a proxy of a tenant as a process, with the flags of the Deployment; tenant and health are where it listens.
func (g *stage) proxyProcess(name string) (process *testkit.Process, tenant, health string) {
	g.t.Helper()
	tenant, health = testkit.FreeAddress(g.t), testkit.FreeAddress(g.t)
	args := g.localArgs(name, map[string]string{"--listen-address": tenant, "--health-address": health, "--metrics-address": "0", "--drain-delay": "0s"})
	process = testkit.Start(g.t, filepath.Join(g.t.TempDir(), "log"), nil, testkit.Binary(g.t, "etcd-storage-proxy"), args...)
	g.t.Cleanup(process.Kill)
	return process, tenant, health
}

// localArgs are the flags of the Deployment, with what it mounts in folders here, and other values for some.
func (g *stage) localArgs(name string, other map[string]string) []string {
	g.t.Helper()
	deployment, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Get(g.t.Context(), operator.ProxyName(name), metav1.GetOptions{})
	must.Do(g.t, err)
	pod := deployment.Spec.Template.Spec
	folders := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		folders[mount.MountPath] = g.mount(pod.Volumes[i])
	}
	var out []string
	for _, arg := range pod.Containers[0].Args {
		for mounted, folder := range folders {
			arg = strings.Replace(arg, mounted+"/", folder+"/", 1)
		}
		flag, _, _ := strings.Cut(arg, "=")
		if value, ok := other[flag]; ok {
			arg = flag + "=" + value
		}
		out = append(out, arg)
	}
	return out
}

// mount writes what a volume holds into a folder, as a kubelet does.
func (g *stage) mount(v corev1.Volume) string {
	g.t.Helper()
	folder := testkit.TLSFolder(g.t.TempDir())
	switch {
	case v.Secret != nil:
		data := g.secret(g.namespace, v.Secret.SecretName).Data
		for _, item := range v.Secret.Items {
			folder.Put(g.t, item.Path, data[item.Key])
		}
		for key, value := range data {
			if len(v.Secret.Items) == 0 {
				folder.Put(g.t, key, value)
			}
		}
	case v.ConfigMap != nil:
		for key, value := range g.configMap(g.namespace, v.ConfigMap.Name).Data {
			folder.Put(g.t, key, []byte(value))
		}
	default:
		g.t.Fatalf("a volume of an unknown kind: %s", v.Name)
	}
	return string(folder)
}

// delivered is what a client of the tenant makes of a Secret and a ConfigMap that it got.
func (g *stage) delivered(name, ns, configMap, secret string) *tls.Config {
	g.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(g.configMap(ns, configMap).Data[v1alpha1.ServingCAKey]))
	data := g.secret(ns, secret).Data
	pair := must.Get(tls.X509KeyPair(data["tls.crt"], data["tls.key"])).Or(g.t)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: operator.ProxyName(name) + "." + g.namespace + ".svc"}
}

// A second Secret and a renewed certificate are admitted by proxies that run since before, since one CA signs for all of them (S4: the old one made a CA for
// each, which proxies learned at their start alone). What proxies say of themselves is theirs: the endpoint, and no metrics of the core's (S19, S21).
func TestProxiesAreNotRestartedForCertificates(t *testing.T) {
	t.Parallel()
	m := newDeathStage(t, server(t), false)
	ns, name := m.tenantOf(), "delivered-twice"
	m.storage(name, toTenant(ns, ", clientCertificateValidity: 3h"))
	m.sync(name)
	process, address, _ := m.proxyProcess(name)
	before := m.args(name)
	m.patch(name, fmt.Sprintf(`{"spec":{"clientCertSecret":[{"name":"client","namespace":%[1]q},{"name":"client-2","namespace":%[1]q}],`+
		`"caCertConfigMap":[{"name":"ca","namespace":%[1]q},{"name":"ca-2","namespace":%[1]q}]}}`, ns))
	m.sync(name)
	first, second := m.delivered(name, ns, "ca", "client"), m.delivered(name, ns, "ca-2", "client-2")
	m.clock.Step(2 * time.Hour)
	m.sync(name)
	renewed := m.delivered(name, ns, "ca", "client")
	if first.Certificates[0].Leaf.Equal(renewed.Certificates[0].Leaf) {
		t.Error("the certificate was not renewed")
	}
	if !slices.Equal(before, m.args(name)) {
		t.Errorf("the proxies are restarted: %v", m.args(name))
	}
	for what, config := range map[string]*tls.Config{"the first": first, "the second": second} {
		c := must.Get(clientv3.New(clientv3.Config{Endpoints: []string{"https://" + address}, TLS: config})).Or(t)
		t.Cleanup(func() { _ = c.Close() })
		testkit.Eventually(t, what, func() string {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			list, err := c.MemberList(ctx)
			if err != nil {
				return err.Error() + process.Output()
			}
			if want := "https://" + operator.ProxyName(name) + "." + m.namespace + ".svc:2379"; len(list.Members) != 1 || !slices.Equal(list.Members[0].ClientURLs, []string{want}) {
				t.Errorf("%s: %v, want %s", what, list.Members, want)
			}
			return ""
		})
	}
	m.noMetrics(address, first)
}

// noMetrics asks the tenant's port for what etcd's gRPC proxy serves there.
func (g *stage) noMetrics(address string, config *tls.Config) {
	g.t.Helper()
	for _, protocol := range []string{"h2", "http/1.1"} {
		own := config.Clone()
		own.NextProtos = []string{protocol}
		transport := &http.Transport{TLSClientConfig: own, ForceAttemptHTTP2: protocol == "h2"}
		request, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		must.Do(g.t, err)
		answer, err := transport.RoundTrip(request)
		if err == nil {
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if strings.Contains(string(body), "# HELP") || strings.Contains(string(body), "etcd_") {
				g.t.Errorf("%s: %d %s", protocol, answer.StatusCode, body)
			}
		}
		transport.CloseIdleConnections()
	}
}

// The probes of the Deployment are answered as they should be: while the core is away a proxy is alive and not ready (S18: the old one's liveness probe
// spoke plaintext to a port with TLS).
func TestTheProbesOfTheDeploymentAnswer(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "probed"
	g.storage(name, "{}")
	g.sync(name)
	process, _, health := g.proxyProcess(name)
	deployment, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Get(t.Context(), operator.ProxyName(name), metav1.GetOptions{})
	must.Do(t, err)
	c := deployment.Spec.Template.Spec.Containers[0]
	if port := c.Ports[slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == c.LivenessProbe.HTTPGet.Port.StrVal })]; !slices.Contains(c.Args,
		fmt.Sprintf("--health-address=:%d", port.ContainerPort)) || c.ReadinessProbe.HTTPGet.Port != c.LivenessProbe.HTTPGet.Port {
		t.Errorf("the probes ask %v, and the flags are %v", port, c.Args)
	}
	answers := func(when string, probe *corev1.Probe, code int) {
		t.Helper()
		testkit.Eventually(t, when+": "+probe.HTTPGet.Path, func() string {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+probe.HTTPGet.Path, nil)
			must.Do(t, err)
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return err.Error() + process.Output()
			}
			_ = answer.Body.Close()
			if answer.StatusCode != code {
				return answer.Status
			}
			return ""
		})
	}
	answers("in order", c.ReadinessProbe, http.StatusOK)
	answers("in order", c.LivenessProbe, http.StatusOK)
	g.etcd.Kill()
	answers("the core is away", c.ReadinessProbe, http.StatusServiceUnavailable)
	answers("the core is away", c.LivenessProbe, http.StatusOK)
	g.etcd.Restart(t)
	answers("the core is back", c.ReadinessProbe, http.StatusOK)
}

// A proxy holds no more than it needs: of the core's credentials the pair alone, no token of Kubernetes, no rights (S17).
func TestWhatAProxyHolds(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "holds"
	data := g.secret(g.namespace, "etcd-coreserving-cert").Data
	data["password-of-somebody"] = []byte("secret")
	g.setSecret("etcd-coreserving-cert", data)
	g.storage(name, "{}")
	g.sync(name)
	deployment, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Get(t.Context(), operator.ProxyName(name), metav1.GetOptions{})
	must.Do(t, err)
	pod := deployment.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "" && pod.ServiceAccountName != "default" {
		t.Errorf("it has a token of %q", pod.ServiceAccountName)
	}
	var mounted []string
	for _, v := range pod.Volumes {
		switch {
		case v.Secret != nil && v.Secret.SecretName == "etcd-coreserving-cert":
			for _, item := range v.Secret.Items {
				mounted = append(mounted, item.Key)
			}
		case v.Secret != nil:
			mounted = append(mounted, v.Secret.SecretName)
		}
	}
	slices.Sort(mounted)
	if want := []string{"client-key.pem", "client.pem", operator.ServingName(name)}; !slices.Equal(mounted, want) {
		t.Errorf("it holds %v, want %v", mounted, want)
	}
}
