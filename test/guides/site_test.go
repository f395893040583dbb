// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package guides

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// operatorNamespace is where the pages put the operator.
const operatorNamespace = "kube-apiserver-storage"

// A site is a cluster of a test's own, since pages have fixed names, and a core etcd with TLS.
type site struct {
	t       *testing.T
	cluster *controlplane.Cluster
	server  *objects.Server
	etcd    *testkit.Etcd
}

// newCluster is a site without a core.
func newCluster(t *testing.T) *site {
	t.Helper()
	cluster := controlplane.New(t)
	return &site{t: t, cluster: cluster, server: objects.ConnectTo(t, cluster)}
}

// newSite is a site with a core, whose credentials are where the old controller had them.
func newSite(t *testing.T) *site {
	t.Helper()
	s := newCluster(t)
	authority := testkit.NewAuthority(t, "core")
	pair := authority.Issue(t, testkit.Leaf{CommonName: "storage-proxies"})
	s.etcd = testkit.NewTLSEtcd(t, testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM), pair.Client(t, authority))
	core := s.cluster.Client.CoreV1()
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	must.Get(core.ConfigMaps(operatorNamespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-coreserving-ca"}, Data: map[string]string{"ca.pem": string(authority.PEM)},
	}, metav1.CreateOptions{})).Or(t)
	if _, err := core.Secrets(operatorNamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-coreserving-cert"}, Data: map[string][]byte{"client.pem": pair.Cert, "client-key.pem": pair.Key},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// clientConfig is a client's TLS configuration from files.
func clientConfig(t *testing.T, pair testkit.Pair, ca []byte) *tls.Config {
	t.Helper()
	out := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	if !out.RootCAs.AppendCertsFromPEM(ca) {
		t.Fatalf("no certificate in %s", ca)
	}
	certificate := must.Get(tls.X509KeyPair(pair.Cert, pair.Key)).Or(t)
	out.Certificates = []tls.Certificate{certificate}
	return out
}

// apply applies a file, again until the API server serves the kinds in it.
func (s *site) apply(file string) {
	s.t.Helper()
	text := must.Get(os.ReadFile(file)).Or(s.t)
	for _, u := range objects.Parse(s.t, file, text) {
		testkit.Eventually(s.t, "the API server to take "+u.GetKind()+" "+u.GetName(), func() string {
			if err := s.server.Apply(s.t.Context(), u); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

func (s *site) put(key, value string) {
	s.t.Helper()
	must.Get(s.etcd.Client.Put(s.t.Context(), key, value)).Or(s.t)
}

// data is the core without what the operator and the proxies note there.
func (s *site) data() map[string]string {
	s.t.Helper()
	out := s.etcd.Dump(s.t)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, tenancy.DefaultSystemPrefix) })
	return out
}

// secret is the data of a Secret.
func (s *site) secret(namespace, name string) map[string]string {
	s.t.Helper()
	got := must.Get(s.cluster.Client.CoreV1().Secrets(namespace).Get(s.t.Context(), name, metav1.GetOptions{})).Or(s.t)
	out := map[string]string{}
	for key, value := range got.Data {
		out[key] = string(value)
	}
	return out
}

// startOperator starts the program under the name of its account, with the rights that were applied and no others.
func (s *site) startOperator() {
	s.t.Helper()
	s.ready()
	file := must.Get(clientcmd.LoadFromFile(s.cluster.Kubeconfig)).Or(s.t)
	must.Do(s.t, clientcmd.ResolveLocalPaths(file))
	for _, user := range file.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + operatorNamespace + ":etcd-storage-operator"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
	}
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	must.Do(s.t, clientcmd.WriteToFile(*file, kubeconfig))
	process := testkit.Start(s.t, filepath.Join(s.t.TempDir(), "log"), nil, testkit.Binary(s.t, "etcd-storage-operator"),
		"--kubeconfig", kubeconfig, "--etcd-core-url", s.etcd.Endpoint, "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--retry-period", "1s")
	s.t.Cleanup(func() {
		process.Stop()
		if s.t.Failed() {
			s.t.Log(process.Output())
		}
	})
}

// ready waits until the API server serves the kind and knows the operator's rights, which both come some time after they were applied.
func (s *site) ready() {
	s.t.Helper()
	s.served()
	for _, asked := range []authorizationv1.ResourceAttributes{
		{Group: v1alpha1.GroupVersion.Group, Resource: "etcdstorages", Verb: "list"}, {Resource: "secrets", Verb: "create", Namespace: operatorNamespace},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + operatorNamespace + ":etcd-storage-operator", ResourceAttributes: &asked,
		}}
		testkit.Eventually(s.t, "the operator's rights", func() string {
			got, err := s.cluster.Client.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), review, metav1.CreateOptions{})
			if err != nil {
				return err.Error()
			}
			if !got.Status.Allowed {
				return "refused: " + asked.String()
			}
			return ""
		})
	}
}

// served waits until the API server serves EtcdStorage.
func (s *site) served() {
	s.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("EtcdStorageList"))
	testkit.Eventually(s.t, "EtcdStorage to be served", func() string {
		if err := s.server.Client.List(s.t.Context(), list); err != nil {
			return err.Error()
		}
		return ""
	})
}

// deployments lets the operator's Deployments have their pods, as controllers and nodes would, until it is stopped.
func (s *site) deployments() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			s.runDeployments(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// runDeployments makes the pods of each Deployment ready once. What fails is tried again by the caller.
func (s *site) runDeployments(ctx context.Context) {
	deployments := s.cluster.Client.AppsV1().Deployments(operatorNamespace)
	list, err := deployments.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.StorageLabel})
	if err != nil {
		return
	}
	for _, d := range list.Items {
		n := *d.Spec.Replicas
		patch, err := json.Marshal(map[string]any{"status": map[string]any{
			"observedGeneration": d.Generation, "replicas": n, "updatedReplicas": n, "readyReplicas": n, "availableReplicas": n,
		}})
		if err == nil && d.Status.ReadyReplicas != n {
			_, _ = deployments.Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		}
	}
}

// hasMoved checks that team-a is the operator's, and that the core's data is what it was.
func (s *site) hasMoved(data map[string]string) {
	s.t.Helper()
	got := s.secret("team-a", "etcd-client-cert")
	if !strings.Contains(got["tls.crt"], "BEGIN CERTIFICATE") || got["other"] != "kept" {
		s.t.Errorf("the tenant's Secret holds %v", got)
	}
	d, err := s.cluster.Client.AppsV1().Deployments(operatorNamespace).Get(s.t.Context(), "etcd-team-a", metav1.GetOptions{})
	if err != nil || d.Labels[v1alpha1.StorageLabel] != "team-a" {
		s.t.Errorf("the Deployment etcd-team-a is not the operator's: %v (%v)", d.Labels, err)
	}
	if diff := cmp.Diff(data, s.data()); diff != "" {
		s.t.Errorf("the data is not what it was:\n%s", diff)
	}
}

// admitsOldPods asks the API server whether the namespace takes pods as etcdproxy-controller makes them.
func (s *site) admitsOldPods() {
	s.t.Helper()
	s.server.DefaultAccount(s.t, operatorNamespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	testkit.Eventually(s.t, "the namespace to take the old proxies", func() string {
		if _, err := s.cluster.Client.CoreV1().Pods(operatorNamespace).Create(s.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err.Error()
		}
		return ""
	})
}
