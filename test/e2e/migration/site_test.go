// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	testkit.Main(m)
}

const (
	resourcesPrefix = "/calico/resources/v3/projectcalico.org/"
	// clusterInformation is the key of the one object that calico-node-sync writes although it belongs to no machine that is gone.
	clusterInformation = resourcesPrefix + "clusterinformations/default"
)

// machine is one machine under its names on both sides.
type machine struct {
	// node is its Kubernetes Node, calico its Calico Node.
	node, calico string
	// ref is the orchRef of the Calico Node; empty as on a machine without CALICO_K8S_NODE_REF.
	ref string
}

// worker is a machine as Calico's manifests make it: one name everywhere.
func worker(name string) machine { return machine{node: name, calico: name, ref: name} }

// workers are several of them.
func workers(prefix string, n int) []machine {
	out := make([]machine, n)
	for i := range out {
		out[i] = worker(fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

func (m machine) nodeKey() string { return resourcesPrefix + "nodes/" + m.calico }

// autoHostEndpoint is the key of what kube-controllers makes for each Calico Node if it is told to.
func (m machine) autoHostEndpoint() string {
	return resourcesPrefix + "hostendpoints/" + m.calico + "-auto-hep"
}

// up is a machine that runs.
type up struct {
	machine

	agent   *caliconode.Agent
	address netip.Addr
	pods    []string
	// owned are the keys that came into the datastore with it.
	owned map[string]bool
}

// site is a Calico datastore of its own, with machines that are Nodes of the package's API server. Sites share that server, so machines' names
// begin with the test's letter.
type site struct {
	t   *testing.T
	api *controlplane.Cluster
	// etcd is nil with the kubernetes datastore.
	etcd      *testkit.Etcd
	calico    *caliconode.Datastore
	namespace string
	// read returns the datastore's content, by key.
	read func() map[string]string
	// information is ClusterInformation as Calico made it.
	information string
	live        map[string]*up // by Kubernetes Node
	count       byte           // of machines, for their addresses
	beats       int
}

func newSite(t *testing.T) *site {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, etcd.Endpoint
	s := connect(t, *config)
	s.etcd = etcd
	s.read = func() map[string]string { return etcd.Dump(t) }
	s.must(s.calico.Initialize(t.Context(), "10.244.0.0/16"))
	s.information = s.read()[clusterInformation]
	return s
}

// connect makes a site without content.
func connect(t *testing.T, config apiconfig.CalicoAPIConfig) *site {
	t.Helper()
	s := &site{t: t, api: controlplane.Shared(t), live: map[string]*up{}}
	var err error
	if s.calico, err = caliconode.Connect(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.calico.Close()
		// The programs have ended. Nothing may be left that another run of the same test would take for its own.
		ctx, client, now := context.Background(), s.api.Client.CoreV1(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		_ = client.Pods(s.namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
		for node := range s.live {
			_ = client.Nodes().Delete(ctx, node, now)
		}
	})
	namespace, err := s.api.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "migration-"}}, metav1.CreateOptions{})
	s.must(err)
	s.namespace = namespace.Name
	s.api.AllowPods(t, s.namespace, "default")
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// join brings machines up one after the other: each with its Node, its calico-node, and two pods that run on it.
func (s *site) join(machines ...machine) {
	s.t.Helper()
	for _, m := range machines {
		before := s.dump()
		s.count++
		u := &up{machine: m, address: netip.AddrFrom4([4]byte{172, 30, 1, s.count})}
		s.live[m.node] = u
		s.register(m)
		s.boot(m)
		for i := range 2 {
			s.runPod(u, fmt.Sprintf("%s-%d", strings.ReplaceAll(m.node, ".", "-"), i))
		}
		u.owned = map[string]bool{m.autoHostEndpoint(): true}
		for key := range s.dump() {
			// The first address of a cluster makes IPAM's configuration.
			if _, had := before[key]; !had && key != "/calico/ipam/v2/config" {
				u.owned[key] = true
			}
		}
	}
}

// register makes the machine's Kubernetes Node.
func (s *site) register(m machine) {
	s.t.Helper()
	_, err := s.api.Client.CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: m.node, Labels: map[string]string{"kubernetes.io/hostname": m.node},
	}}, metav1.CreateOptions{})
	s.must(err)
}

// boot starts calico-node on the machine, again if it ran already.
func (s *site) boot(m machine) {
	s.t.Helper()
	u := s.live[m.node]
	u.machine = m
	var err error
	u.agent, err = s.calico.Start(s.t.Context(), caliconode.Host{Name: m.calico, KubernetesNode: m.ref, Address: u.address, IPIP: true})
	s.must(err)
}

// runPod makes a pod, connects it, and has it running, as a kubelet would.
func (s *site) runPod(u *up, name string) {
	s.t.Helper()
	pods := s.api.Client.CoreV1().Pods(s.namespace)
	_, err := pods.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: u.node, ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	u.pods = append(u.pods, name)
	pod, err := pods.Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	addresses, err := u.agent.PodNetwork().Add(s.t.Context(), pod)
	s.must(err)
	address := addresses[0].String()
	pod, err = pods.Get(s.t.Context(), name, metav1.GetOptions{}) // with the kubernetes datastore it has annotations now
	s.must(err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	_, err = pods.UpdateStatus(s.t.Context(), pod, metav1.UpdateOptions{})
	s.must(err)
}

// destroy takes the machine away as a cloud does: nothing on it says good-bye. Its Node goes, and its pods as pod garbage collection removes
// them.
func (s *site) destroy(m machine) *up {
	s.t.Helper()
	u := s.live[m.node]
	for _, name := range u.pods {
		s.must(s.api.Client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
	s.must(s.api.Client.CoreV1().Nodes().Delete(s.t.Context(), m.node, metav1.DeleteOptions{}))
	delete(s.live, m.node)
	return u
}

// replace is a stage of a migration: one machine joins and another is destroyed. It waits until all that came with the latter is gone and nothing
// else has changed: what belongs to the machines that live is the same byte for byte.
func (s *site) replace(joins, goes machine) {
	s.t.Helper()
	s.join(joins)
	s.settle()
	want := s.without(goes)
	s.destroy(goes)
	s.becomes(want, "nothing but what belongs to machines that live")
}

// without is the datastore as it is now less what came with a machine.
func (s *site) without(m machine) map[string]string {
	s.t.Helper()
	return less(s.dump(), s.live[m.node])
}

func less(content map[string]string, u *up) map[string]string {
	out := maps.Clone(content)
	maps.DeleteFunc(out, func(key, _ string) bool { return u.owned[key] })
	return out
}

func (s *site) becomes(want map[string]string, what string) {
	s.t.Helper()
	testkit.Eventually(s.t, what, func() string { return cmp.Diff(want, s.dump()) })
}

// dump is what the datastore holds of machines and of the cluster, without what belongs to the programs themselves.
func (s *site) dump() map[string]string {
	s.t.Helper()
	out := s.read()
	maps.DeleteFunc(out, func(key, _ string) bool {
		// The second is the clock of kube-controllers' compaction. Profiles are those of all namespaces, other tests' as well.
		return key == clusterInformation || key == "compact_rev_key" || strings.HasPrefix(key, resourcesPrefix+"kubecontrollersconfigurations/") ||
			strings.HasPrefix(key, resourcesPrefix+"profiles/")
	})
	return out
}

// settle waits until nobody has written to the datastore for a while.
func (s *site) settle() {
	s.t.Helper()
	const quiet = 20 // looks
	var last map[string]string
	same := 0
	testkit.Eventually(s.t, "the datastore to come to rest", func() string {
		now := s.dump()
		if same++; !maps.Equal(now, last) {
			last, same = now, 0
		}
		if same < quiet {
			return "it was written to lately"
		}
		return ""
	})
}

// calicoNodes are the names of the Calico Nodes, sorted.
func (s *site) calicoNodes() []string {
	s.t.Helper()
	var names []string
	for key := range s.read() {
		if name, ok := strings.CutPrefix(key, resourcesPrefix+"nodes/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// heartbeat changes a machine's Kubernetes Node a little, as a kubelet does all the time.
func (s *site) heartbeat(m machine) {
	s.t.Helper()
	s.beats++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"heartbeat":%q}}}`, fmt.Sprint(s.beats))
	_, err := s.api.Client.CoreV1().Nodes().Patch(s.t.Context(), m.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		s.must(err)
	}
}
