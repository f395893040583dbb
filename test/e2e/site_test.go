// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// site is a namespace of an API server, in which calico-node-sync has its service account with the rights that ship, and an etcd of its own
// that is Calico's. Sites share an API server, so the names of their machines begin with the site's.
type site struct {
	t   *testing.T
	api *controlplane.Cluster
	// etcd is the one that has Calico's data: an etcd of Calico's own or, with the kubernetes datastore, the API server's.
	etcd   *testkit.Etcd
	kind   apiconfig.DatastoreType
	calico *caliconode.Datastore
	// namespace is also what the names of machines begin with.
	namespace string
	token     string
	binary    string
	logs      string
	started   int
}

func newSite(t *testing.T, api *controlplane.Cluster, name string) *site {
	t.Helper()
	return newSiteIn(t, apiconfig.EtcdV3, api, name)
}

// newSiteIn is newSite with either datastore. With that of Kubernetes there can be one site in a cluster.
func newSiteIn(t *testing.T, kind apiconfig.DatastoreType, api *controlplane.Cluster, name string) *site {
	t.Helper()
	s := &site{t: t, api: api, kind: kind, namespace: name, binary: testkit.Binary(t, "calico-node-sync"), logs: t.TempDir()}
	if kind == apiconfig.Kubernetes {
		api.InstallCalicoCRDs(t)
		s.etcd = api.OwnEtcd(t)
	} else {
		s.etcd = testkit.NewEtcd(t)
	}
	s.connect()
	s.grant()
	return s
}

func (s *site) connect() {
	s.t.Helper()
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = s.kind
	if s.kind == apiconfig.Kubernetes {
		config.Spec.Kubeconfig, config.Spec.K8sClientQPS = s.api.Kubeconfig, 1000 // one client for many machines
	} else {
		config.Spec.EtcdEndpoints = s.etcd.Endpoint
	}
	var err error
	if s.calico, err = caliconode.Connect(*config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.calico.Close() })
	s.must(s.calico.Initialize(s.t.Context(), "10.244.0.0/16", caliconode.Pool{CIDR: "fd00:244::/64", Encapsulation: caliconode.VXLAN}))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// grant applies the shipped service account and rights, moved to the site's namespace, and draws a token.
func (s *site) grant() {
	s.t.Helper()
	api, err := client.New(s.api.Config, client.Options{})
	s.must(err)
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(s.namespace)
	s.apply(api, namespace)
	for _, name := range []string{"base/service-account.yaml", "base/rbac.yaml", "leases/rbac.yaml", "overlays/" + string(s.kind) + "/rbac.yaml"} {
		content, err := os.ReadFile(filepath.Join(testkit.Root(s.t), "config", "calico-node-sync", name))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, "overlays/") {
			continue // this datastore needs no rights of its own in Kubernetes
		}
		s.must(err)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			s.must(err)
			s.move(object)
			s.apply(api, object)
		}
	}
	lasting := int64(24 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lasting}}
	answer, err := s.api.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), "calico-node-sync", request, metav1.CreateOptions{})
	s.must(err)
	s.token = answer.Status.Token
}

// move changes the namespace that the manifests name, as kustomize does, and the name of what has no namespace but names one.
func (s *site) move(object *unstructured.Unstructured) {
	s.t.Helper()
	switch object.GetKind() {
	case "ClusterRole":
		return
	case "ClusterRoleBinding":
		object.SetName(object.GetName() + "-" + s.namespace)
	case "RoleBinding", "Role":
		if object.GetNamespace() == "mooring-system" {
			object.SetNamespace(s.namespace)
		} else { // one that all sites share
			s.rename(object)
		}
	default:
		object.SetNamespace(s.namespace)
	}
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	s.must(err)
	for _, subject := range subjects {
		subject.(map[string]any)["namespace"] = s.namespace
	}
	if len(subjects) > 0 {
		s.must(unstructured.SetNestedSlice(object.Object, subjects, "subjects"))
	}
}

// rename gives a role, or what binds one, in a namespace that all sites share a name of this site.
func (s *site) rename(object *unstructured.Unstructured) {
	s.t.Helper()
	object.SetName(object.GetName() + "-" + s.namespace)
	if object.GetKind() == "RoleBinding" {
		s.must(unstructured.SetNestedField(object.Object, object.GetName(), "roleRef", "name"))
	}
}

func (s *site) apply(api client.Client, object *unstructured.Unstructured) {
	s.t.Helper()
	s.must(api.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("e2e"), client.ForceOwnership))
}

// name is the name of a machine here.
func (s *site) name(machine string) string { return s.namespace + "-" + machine }

// interpose returns a new interposer to the site's servers.
func (s *site) interpose() *interposer {
	s.t.Helper()
	return newInterposer(s.t, s.api.Config, s.token, s.etcd.Endpoint)
}

// start starts calico-node-sync through an interposer. What follows in flags overrides what comes first.
func (s *site) start(through *interposer, flags ...string) *testkit.Process {
	s.t.Helper()
	return s.startAt(through.Kubeconfig, through.EtcdURL, flags...)
}

func (s *site) startAt(kubeconfig, etcd string, flags ...string) *testkit.Process {
	s.t.Helper()
	s.started++
	args := append([]string{
		"--kubeconfig", kubeconfig, "--leader-elect=false", "--leader-election-namespace", s.namespace,
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--round-interval=1s", "--grace-period=100ms", "--resync-period=1m",
	}, flags...)
	env := []string{"ETCD_ENDPOINTS=" + etcd}
	if s.kind == apiconfig.Kubernetes {
		env = []string{"DATASTORE_TYPE=kubernetes"}
	}
	process := testkit.Start(s.t, filepath.Join(s.logs, fmt.Sprintf("%d.log", s.started)), env, s.binary, args...)
	s.t.Cleanup(process.Stop)
	return process
}

// addNode registers a machine with Kubernetes.
func (s *site) addNode(machine string) {
	s.t.Helper()
	s.must(s.tryAddNode(s.t.Context(), machine))
}

func (s *site) tryAddNode(ctx context.Context, machine string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name(machine)}}
	_, err := s.api.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// dropNode deletes a machine's Kubernetes Node, if there is one.
func (s *site) dropNode(machine string) {
	s.t.Helper()
	s.must(s.tryDropNode(s.t.Context(), machine))
}

func (s *site) tryDropNode(ctx context.Context, machine string) error {
	return client.IgnoreNotFound(s.api.Client.CoreV1().Nodes().Delete(ctx, s.name(machine), metav1.DeleteOptions{}))
}

// host is a machine that has all that a machine can have: both IP versions and three tunnels. The last byte tells machines apart.
func (s *site) host(machine string, last byte) caliconode.Host {
	v6 := netip.MustParseAddr("fd00:172::").As16()
	v6[15] = last
	return caliconode.Host{
		Name: s.name(machine), KubernetesNode: s.name(machine), Address: netip.AddrFrom4([4]byte{172, 30, 0, last}), AddressV6: netip.AddrFrom16(v6),
		IPIP: true, VXLANv6: true, Wireguard: true,
	}
}

// install starts calico-node on a machine, with so many pods.
func (s *site) install(machine string, last byte, pods int) *caliconode.Agent {
	s.t.Helper()
	agent, err := s.calico.Start(s.t.Context(), s.host(machine, last))
	s.must(err)
	for i := range pods {
		_, err := agent.PodNetwork().Add(s.t.Context(), s.pod(machine, i))
		s.must(err)
	}
	return agent
}

func (s *site) pod(machine string, i int) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", s.name(machine), i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: s.name(machine), ServiceAccountName: "default"},
	}
}

// restore makes etcd hold this and nothing else, and forgets what calico-node-sync has kept in Kubernetes. It must not run meanwhile.
func (s *site) restore(content map[string]string) {
	s.t.Helper()
	ctx := s.t.Context()
	ops := []clientv3.Op{clientv3.OpDelete("\x00", clientv3.WithFromKey())}
	commit := func() {
		_, err := s.etcd.Client.Txn(ctx).Then(ops...).Commit()
		s.must(err)
		ops = nil
	}
	commit()
	for key, value := range content {
		if ops = append(ops, clientv3.OpPut(key, value)); len(ops) == 100 {
			commit()
		}
	}
	if len(ops) > 0 {
		commit()
	}
	all, none := metav1.DeleteOptions{}, metav1.ListOptions{}
	s.must(s.api.Client.CoreV1().ConfigMaps(s.namespace).DeleteCollection(ctx, all, none))
	s.must(s.api.Client.CoreV1().Events(s.namespace).DeleteCollection(ctx, all, none))
	s.must(s.api.Client.CoordinationV1().Leases(s.namespace).DeleteCollection(ctx, all, none))
}

// within bounds one attempt at something that is tried again.
func (s *site) within(try func(context.Context) error) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	if err := try(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// saved is what calico-node-sync has kept of absences and removals, as it wrote it; "" if it has kept nothing.
func (s *site) saved(ctx context.Context) (string, error) {
	state, err := s.api.Client.CoreV1().ConfigMaps(s.namespace).Get(ctx, "calico-node-sync-state", metav1.GetOptions{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return state.Data["memory.json"], nil
}

// tail is the end of a process's log, of each line what tells it from others.
func tail(process *testkit.Process) string {
	lines := strings.Split(strings.TrimSpace(process.Output()), "\n")
	lines = lines[max(0, len(lines)-30):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 300)]
	}
	return strings.Join(lines, "\n")
}
