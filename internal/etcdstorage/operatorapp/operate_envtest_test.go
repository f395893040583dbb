// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const namespace = "kube-apiserver-storage"

// site is an API server with the kind, a core etcd, and a kubeconfig of the operator's service account with its rights and no others.
type site struct {
	t          *testing.T
	cluster    *controlplane.Cluster
	admin      client.Client
	etcd       *testkit.Etcd
	kubeconfig string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, cluster: controlplane.New(t)}
	s.cluster.InstallCRDs(t, controlplane.OwnKind(t, "etcdstorages"))
	scheme, err := controller.NewScheme()
	must.Do(t, err)
	must.Do(t, rbacv1.AddToScheme(scheme))
	if s.admin, err = client.New(s.cluster.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.grant()
	authority := testkit.NewAuthority(t, "core")
	pair := authority.Issue(t, testkit.Leaf{CommonName: "storage-proxies"})
	s.etcd = testkit.NewTLSEtcd(t, testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM), pair.Client(t, authority))
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: defaultCAConfigMap, Namespace: namespace}, Data: map[string]string{"ca.crt": string(authority.PEM)}})
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: defaultCertsSecret, Namespace: namespace}, Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}})
	return s
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	must.Do(s.t, s.admin.Create(s.t.Context(), o))
}

// grant gives the rights that the operator says it needs, and those for its Lease, to a kubeconfig that speaks as its service account.
func (s *site) grant() {
	s.t.Helper()
	account := "system:serviceaccount:" + namespace + ":etcd-storage-operator"
	subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: account}}
	roles := rights.EtcdStorage().Roles()
	everywhere := rights.Rounds(roles, rights.Everywhere)
	leases := append(rights.Rounds(roles, rights.Own), rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
	})
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: everywhere},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: namespace}, Rules: leases},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: namespace}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"}},
	} {
		s.create(o)
	}
	file := must.Get(clientcmd.LoadFromFile(s.cluster.Kubeconfig)).Or(s.t)
	must.Do(s.t, clientcmd.ResolveLocalPaths(file))
	for _, user := range file.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = account, []string{"system:serviceaccounts", "system:authenticated"}
	}
	s.kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	must.Do(s.t, clientcmd.WriteToFile(*file, s.kubeconfig))
}

// start starts the program. It takes over the log of its process, so it is one of its own.
func (s *site) start(flags ...string) *testkit.Process {
	s.t.Helper()
	return testkit.Start(s.t, filepath.Join(s.t.TempDir(), "log"), nil, testkit.Binary(s.t, Component), append([]string{
		"--kubeconfig", s.kubeconfig, "--etcd-core-url", s.etcd.Endpoint, "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--measure-period", "1s",
		"--retry-period", "1s",
	}, flags...)...)
}

func (s *site) status(name string) (conditions map[string]string, status v1alpha1.EtcdStorageStatus) {
	s.t.Helper()
	o := &v1alpha1.EtcdStorage{}
	must.Do(s.t, s.admin.Get(s.t.Context(), client.ObjectKey{Name: name}, o))
	conditions = map[string]string{}
	for _, c := range o.Status.Conditions {
		conditions[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	return conditions, o.Status
}

// The program itself, by its command line: tenants that appear while it is killed again and again are all served in the end; it counts what they
// store, and says so when it is too much; and it tells in Events.
func TestOperate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	program := s.start()
	testkit.Eventually(t, "the kind to be served", func() string {
		if err := s.admin.List(t.Context(), &v1alpha1.EtcdStorageList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	for i := range 6 {
		keys := int64(2)
		o := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tenant-%d", i)}, Spec: v1alpha1.EtcdStorageSpec{Quota: v1alpha1.Quota{Keys: &keys}}}
		v1alpha1.SetDefaults(o)
		s.create(o)
		program.Kill()
		program = s.start()
	}
	for i := range 6 {
		testkit.Eventually(t, "certificates of every tenant", func() string {
			conditions, _ := s.status(fmt.Sprintf("tenant-%d", i))
			if strings.HasPrefix(conditions[v1alpha1.ConditionCertificatesReady], "True") {
				return ""
			}
			return fmt.Sprint(conditions) + program.Output()
		})
	}
	for i := range 3 {
		must.Get(s.etcd.Client.Put(t.Context(), fmt.Sprintf("/tenant-1/%d", i), "12345")).Or(t)
	}
	testkit.Eventually(t, "the quota to be exceeded", func() string {
		conditions, status := s.status("tenant-1")
		if strings.HasPrefix(conditions[v1alpha1.ConditionQuotaExceeded], "True Exceeded the tenant stores 3 keys of 2") && status.Usage.Keys == 3 && status.Usage.Bytes.Value() == 48 {
			return ""
		}
		return fmt.Sprint(conditions, status.Usage)
	})
	testkit.Eventually(t, "the Events", func() string {
		list, err := s.cluster.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		for _, want := range []string{"Claimed", "CACreated", "CertificateIssued", "Exceeded"} {
			if !slices.Contains(reasons, want) {
				return fmt.Sprint(reasons)
			}
		}
		return ""
	})
	program.Stop()
	if program.ExitCode() != 0 {
		t.Errorf("exit code %d: %s", program.ExitCode(), program.Output())
	}
}

// What is missing at the start is said in a sentence: the kind, and a right.
func TestWhatIsMissingAtTheStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for want, remove := range map[string]func(){
		"a right is missing, apply the operator's ClusterRole and its Role in namespace " + namespace: func() {
			if err := s.admin.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: namespace}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		remove()
		program := s.start()
		<-program.Done()
		if program.ExitCode() != 1 || !strings.Contains(program.Output(), want) {
			t.Errorf("exit code %d: %s, want %s", program.ExitCode(), program.Output(), want)
		}
	}
}
