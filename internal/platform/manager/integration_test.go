// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const component = "manager-test"

// site is a namespace of the cluster, and a client of a manager's endpoints.
type site struct {
	*controlplane.Cluster
	namespace string
	http      *http.Client
}

func newSite(t *testing.T) site {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is looked at, not trusted
	t.Cleanup(transport.CloseIdleConnections)
	cluster := controlplane.Shared(t)
	namespace := must.Get(cluster.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "manager-"}}, metav1.CreateOptions{})).Or(t)
	return site{cluster, namespace.Name, &http.Client{Transport: transport}}
}

// account makes a service account and returns a token of it.
func (s site) account(t *testing.T, name string) string {
	t.Helper()
	accounts := s.Client.CoreV1().ServiceAccounts(s.namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.Do(t, err)
	return token.Status.Token
}

// grant lets an account do what the rules say.
func (s site) grant(t *testing.T, account, role string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac := s.Client.RbacV1()
	meta := metav1.ObjectMeta{Name: s.namespace + "-" + role}
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.namespace}},
	}
	must.Get(rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})).Or(t)
}

// kubeconfig writes a file with which the token's owner reaches the cluster.
func (s site) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	config := must.Get(clientcmd.LoadFromFile(s.Kubeconfig)).Or(t)
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"account": {Token: token}}
	config.Contexts[config.CurrentContext].AuthInfo = "account"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, clientcmd.WriteToFile(*config, path))
	return path
}

// answer is what a GET got.
type answer struct {
	code  int
	body  string
	proto int
	leaf  *x509.Certificate
}

// get asks once; an endpoint that is not there yet is answer 0 with the reason.
func (s site) get(t *testing.T, url, token string) answer {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)).Or(t)
	req.Close = true // each answer has a handshake of its own
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	out := answer{code: resp.StatusCode, body: string(body), proto: resp.ProtoMajor}
	if resp.TLS != nil {
		out.leaf = resp.TLS.PeerCertificates[0]
	}
	return out
}

// eventually waits until a GET is answered with code, and returns that answer.
func (s site) eventually(t *testing.T, url, token string, code int) answer {
	t.Helper()
	var last answer
	testkit.Eventually(t, fmt.Sprintf("%s to answer %d", url, code), func() string {
		if last = s.get(t, url, token); last.code == code {
			return ""
		}
		return fmt.Sprintf("%d %s", last.code, last.body)
	})
	return last
}

func writeCertificate(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	must.Do(t, err)
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	block, _ := pem.Decode(cert)
	leaf := must.Get(x509.ParseCertificate(block.Bytes)).Or(t)
	return leaf
}

// options are those of a manager with everything on, running as a service account that may do what
// every manager needs, and nothing more.
func (s site) options(t *testing.T, account string) manager.Options {
	t.Helper()
	token := s.account(t, account)
	s.grant(t, account, account,
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	)
	o := manager.DefaultOptions(account)
	o.Kubeconfig = s.kubeconfig(t, token)
	o.MetricsBindAddress, o.HealthProbeBindAddress = testkit.FreeAddress(t), testkit.FreeAddress(t)
	o.MetricsCertPath = t.TempDir()
	o.LeaderElect, o.LeaderElectionNamespace = true, s.namespace
	return o
}

func build(t *testing.T, o manager.Options) (*manager.Manager, error) {
	t.Helper()
	must.Do(t, o.Validate())
	config := must.Get(o.RESTConfig(component + "/test")).Or(t)
	return manager.New(t.Context(), o, config, manager.Config{
		Component: component, Scheme: scheme.Scheme, Informers: []client.Object{&corev1.ConfigMap{}},
	})
}

// start runs the manager; the returned function stops it and reports how it ended.
func start(t *testing.T, m *manager.Manager) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestManagerAgainstAPIServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const account = "manager"
	o := s.options(t, account)
	firstLeaf := writeCertificate(t, o.MetricsCertPath)
	m := must.Get(build(t, o)).Or(t)
	var reachable atomic.Bool
	must.Do(t, m.Readiness.Add("dependency", func(context.Context) error {
		if !reachable.Load() {
			return fmt.Errorf("dependency is down")
		}
		return nil
	}))
	stop := start(t, m)
	readyz, metrics := "http://"+o.HealthProbeBindAddress+"/readyz", "https://"+o.MetricsBindAddress+"/metrics"

	s.readinessFollows(t, readyz, account, &reachable)
	s.healthzIsIndependent(t, "http://"+o.HealthProbeBindAddress+"/healthz")
	s.metricsAreGuarded(t, metrics, o.MetricsBindAddress)
	s.certificateIsReloaded(t, metrics, o.MetricsCertPath, firstLeaf)
	s.cacheIsLean(t, m.GetClient())

	if _, err := build(t, o); err == nil || !strings.Contains(err.Error(), "--metrics-bind-address") || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second process on the same ports: New() = %v", err)
	}

	if holder := s.holder(t, account); holder == "" {
		t.Error("nobody holds the lease while the manager runs")
	}
	if err := stop(); err != nil {
		t.Errorf("Start() = %v", err)
	}
	if holder := s.holder(t, account); holder != "" {
		t.Errorf("%s still holds the lease after an orderly stop", holder)
	}
}

// readinessFollows first the informers, which cannot list until they are allowed to, and then the
// dependency.
func (s site) readinessFollows(t *testing.T, readyz, account string, reachable *atomic.Bool) {
	t.Helper()
	s.eventually(t, readyz, "", http.StatusInternalServerError)
	if got := s.get(t, readyz, ""); !strings.Contains(got.body, "[-]"+manager.CacheSyncedCheck) || !strings.Contains(got.body, "[-]dependency") {
		t.Errorf("before everything: %s", got.body)
	}
	reachable.Store(true)
	s.eventually(t, readyz+"/dependency", "", http.StatusOK)
	if got := s.get(t, readyz, ""); got.code != http.StatusInternalServerError || !strings.Contains(got.body, "[+]dependency") {
		t.Errorf("without synced informers: %d %s", got.code, got.body)
	}
	s.grant(t, account, account+"-configmaps",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	s.eventually(t, readyz, "", http.StatusOK)
	reachable.Store(false)
	s.eventually(t, readyz, "", http.StatusInternalServerError)
}

func (s site) healthzIsIndependent(t *testing.T, healthz string) {
	t.Helper()
	if got := s.get(t, healthz, ""); got.code != http.StatusOK {
		t.Errorf("healthz while not ready: %d %s", got.code, got.body)
	}
}

func (s site) metricsAreGuarded(t *testing.T, metrics, addr string) {
	t.Helper()
	stranger, scraper := s.account(t, "stranger"), s.account(t, "scraper")
	s.grant(t, "scraper", "scraper", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
	s.eventually(t, metrics, "", http.StatusUnauthorized)
	if got := s.get(t, metrics, stranger); got.code != http.StatusForbidden || strings.Contains(got.body, "mooring_") {
		t.Errorf("a token without the right: %d %s", got.code, got.body)
	}
	// The library answers an invalid token with 500, and plain HTTP with 400 or a closed connection; what
	// matters is that it does not respond with metrics.
	for name, got := range map[string]answer{
		"an invalid token": s.get(t, metrics, "nonsense"),
		"without TLS":      s.get(t, "http://"+addr+"/metrics", scraper),
	} {
		if got.code == http.StatusOK || strings.Contains(got.body, "mooring_") {
			t.Errorf("%s: %d %s", name, got.code, got.body)
		}
	}
	got := s.eventually(t, metrics, scraper, http.StatusOK)
	if !strings.Contains(got.body, `mooring_build_info{commit=`) || !strings.Contains(got.body, `component="`+component+`"`) {
		t.Errorf("the metrics lack mooring_build_info:\n%.2000s", got.body)
	}
	if got.proto != 1 {
		t.Errorf("HTTP/%d is spoken, though HTTP/2 is off", got.proto)
	}
}

func (s site) certificateIsReloaded(t *testing.T, metrics, dir string, first *x509.Certificate) {
	t.Helper()
	if got := s.get(t, metrics, ""); got.leaf == nil || !got.leaf.Equal(first) {
		t.Error("the given certificate is not served")
	}
	second := writeCertificate(t, dir)
	testkit.Eventually(t, "the new certificate", func() string {
		if got := s.get(t, metrics, ""); got.leaf == nil || !got.leaf.Equal(second) {
			return "the old one is served"
		}
		return ""
	})
}

func (s site) cacheIsLean(t *testing.T, cached client.Client) {
	t.Helper()
	created, err := s.Client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lean"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must.Do(t, err)
	if len(created.ManagedFields) == 0 {
		t.Fatal("the API server keeps no managedFields, so this proves nothing")
	}
	var got corev1.ConfigMap
	testkit.Eventually(t, "the object in the cache", func() string {
		if err := cached.Get(t.Context(), client.ObjectKeyFromObject(created), &got); err != nil {
			return err.Error()
		}
		return ""
	})
	if len(got.ManagedFields) > 0 || got.Data["a"] != "b" {
		t.Errorf("cached object: %v", got)
	}
}

// holder is who holds the lease; empty when it has been given back.
func (s site) holder(t *testing.T, lease string) string {
	t.Helper()
	got := must.Get(s.Client.CoordinationV1().Leases(s.namespace).Get(t.Context(), lease, metav1.GetOptions{})).Or(t)
	if got.Spec.HolderIdentity == nil {
		return ""
	}
	return *got.Spec.HolderIdentity
}

// A manager that may not list what it is to watch ends when it is told to.
func TestAManagerThatNeverSyncsEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.options(t, "blind")
	o.MetricsCertPath = ""
	m := must.Get(build(t, o)).Or(t)
	stop := start(t, m)
	s.eventually(t, "http://"+o.HealthProbeBindAddress+"/readyz", "", http.StatusInternalServerError)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}

// A process waits for the API server at its start, ends while it waits when it is told to, and does not wait for one that cannot be trusted.
func TestTheAPIServerIsAwaited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	away := s.options(t, "early")
	away.MetricsCertPath, away.MetricsBindAddress, away.HealthProbeBindAddress = "", manager.Disabled, manager.Disabled
	address := testkit.FreeAddress(t)
	config := must.Get(clientcmd.LoadFromFile(away.Kubeconfig)).Or(t)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	upstream := must.Get(url.Parse(cluster.Server)).Or(t)
	cluster.Server, cluster.TLSServerName = "https://"+address, upstream.Hostname()
	must.Do(t, clientcmd.WriteToFile(*config, away.Kubeconfig))
	built := make(chan error, 1)
	go func() {
		_, err := build(t, away)
		built <- err
	}()
	select {
	case err := <-built:
		t.Fatalf("without an API server: %v", err)
	case <-time.After(3 * time.Second):
	}
	forward(t, address, upstream.Host)
	if err := <-built; err != nil {
		t.Errorf("when it is there: %v", err)
	}

	restConfig := must.Get(away.RESTConfig("test")).Or(t)
	restConfig.Host = "https://" + testkit.FreeAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := manager.New(ctx, away, restConfig, manager.Config{Component: component, Scheme: scheme.Scheme}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "did not respond until the end") {
		t.Errorf("told to end while it waits: %v", err)
	}
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	restConfig.Host = stranger.URL
	if _, err := manager.New(t.Context(), away, restConfig, manager.Config{Component: component, Scheme: scheme.Scheme}); err == nil || !strings.Contains(err.Error(), "cannot be trusted: ") {
		t.Errorf("one that cannot be trusted: %v", err)
	}
}

// forward passes connections on.
func forward(t *testing.T, from, to string) {
	t.Helper()
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", from)).Or(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = in.Close()
				return
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}
