// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/lending"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// What one borrower leaves behind, of every sort, the next one does not find: objects with and without namespaces, kinds with their objects, rules of
// admission, and what was removed.
func TestTheNextBorrowerFindsNothing(t *testing.T) { //nolint:paralleltest // it sets a variable
	socket := fmt.Sprintf("@mooring-lending-test-%d", time.Now().UnixNano())
	pool := must.Get(lending.Open(socket, testkit.Binary(t, "lab"), "", 1)).Or(t)
	defer func() {
		if usage, err := pool.Close(); err != nil || usage.Starts != 1 || usage.Loans != 2 || usage.Broken != 0 || usage.CPU == 0 {
			t.Errorf("%+v, %v", usage, err)
		}
	}()
	first := must.Get(lending.Borrow(t.Context(), socket)).Or(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", filepath.Join(first.Dir, "kubeconfig"))).Or(t)
	config.QPS = -1 // as fast as the server is
	c := &controlplane.Cluster{Dir: first.Dir, Config: config, Client: kubernetes.NewForConfigOrDie(config)}
	pollute(t, c)
	first.Return()
	stateOfServers(t, first.Dir, "T")
	second := must.Get(lending.Borrow(t.Context(), socket)).Or(t)
	defer second.Return()
	if second.Dir != first.Dir {
		t.Fatalf("%s is lent, %s was returned", second.Dir, first.Dir)
	}
	stateOfServers(t, first.Dir, "RSD")
	findNothing(t, c)
	pollute(t, c) // as if nothing had been
}

// stateOfServers waits until etcd and kube-apiserver of a lab are in one of the states, each a letter of proc(5).
func stateOfServers(t *testing.T, dir, states string) {
	t.Helper()
	testkit.Eventually(t, "both servers to be in one of the states "+states, func() string {
		said, good := "", 0
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			line, _ := os.ReadFile(file)
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
			_, rest, _ := strings.Cut(string(status), ") ")
			if !strings.Contains(string(line), dir+"/") || rest == "" {
				continue
			}
			said += fmt.Sprintf("%.60q: %c\n", line, rest[0])
			if strings.ContainsRune(states, rune(rest[0])) {
				good++
			}
		}
		if good == 2 {
			return ""
		}
		return said
	})
}

func pollute(t *testing.T, c *controlplane.Cluster) {
	t.Helper()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, metav1.CreateOptions{}))
	must(c.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, metav1.CreateOptions{}))
	for i := range 150 { // more than a transaction of etcd has operations
		must(c.Client.CoreV1().ConfigMaps("left").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("left-", i)}}, metav1.CreateOptions{}))
	}
	must(c.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.77", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}},
	}, metav1.CreateOptions{}))
	must(nil, c.Client.RbacV1().ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}))
	(&controlplane.Cluster{Config: c.Config, Client: c.Client}).InstallCRDs(t, controlplane.OwnKind(t, "etcdstorages"))
	must(c.Client.Discovery().RESTClient().Post().AbsPath("/apis/etcd.mooring.dev/v1alpha1/etcdstorages").SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion":"etcd.mooring.dev/v1alpha1","kind":"EtcdStorage","metadata":{"name":"left"}}`)).DoRaw(t.Context()))
	fail := admissionv1.Fail
	must(c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail, Validations: []admissionv1.Validation{{Expression: "false", Message: "nothing is allowed"}},
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}}}},
		},
	}, metav1.CreateOptions{}))
	must(c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "left", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}))
	testkit.Eventually(t, "the policy to be in force", func() string {
		if err := makeSecret(t, c); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

func makeSecret(t *testing.T, c *controlplane.Cluster) error {
	t.Helper()
	_, err := c.Client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll},
	})
	return err
}

func findNothing(t *testing.T, c *controlplane.Cluster) {
	t.Helper()
	for what, get := range map[string]func() error{
		"namespace": func() error {
			_, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "left", metav1.GetOptions{})
			return err
		},
		"node": func() error {
			_, err := c.Client.CoreV1().Nodes().Get(t.Context(), "left", metav1.GetOptions{})
			return err
		},
		"service": func() error {
			_, err := c.Client.CoreV1().Services("default").Get(t.Context(), "left", metav1.GetOptions{})
			return err
		},
		"kind": func() error {
			return c.Client.Discovery().RESTClient().Get().AbsPath("/apis/etcd.mooring.dev/v1alpha1/etcdstorages").Do(t.Context()).Error()
		},
	} {
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("the %s is answered with %v", what, err)
		}
	}
	if list, err := c.Client.CoreV1().ConfigMaps("left").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("%d ConfigMaps, %v", len(list.Items), err)
	}
	if _, err := c.Client.RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{}); err != nil {
		t.Errorf("the role that was deleted: %v", err)
	}
	if err := makeSecret(t, c); err != nil {
		t.Errorf("the policy is still in force: %v", err)
	}
}
