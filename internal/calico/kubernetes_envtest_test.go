// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// kubeWorld is Calico's kubernetes datastore on an API server, which is simulated for a change, and real in CI and at night. There is one per API
// server: tests of the shared one are not parallel.
type kubeWorld struct {
	api     *cluster.Cluster
	store   *KubernetesAPI
	traffic *traffic
	calico  *caliconode.Datastore
	raw     *dynamic.DynamicClient
}

func newKubeWorld(t *testing.T) *kubeWorld {
	t.Helper()
	return kubeWorldOn(t, cluster.Shared(t))
}

// kubeWorldOn is a world on an API server that may be the test's own.
func kubeWorldOn(t *testing.T, api *cluster.Cluster) *kubeWorld {
	t.Helper()
	w := &kubeWorld{api: api}
	var err error
	if w.raw, err = dynamic.NewForConfig(w.api.Config); err != nil {
		t.Fatal(err)
	}
	w.api.Serve(t, controlplane.CalicoCRDs(t)...)
	w.api.AllowPods(t, "default", "default")
	w.store, w.traffic = w.open(t)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, w.api.Kubeconfig(t)
	config.Spec.K8sClientQPS = 10_000 // it would be 5 a second
	if w.calico, err = caliconode.Connect(*config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.calico.Close() })
	must.Do(t, w.calico.Initialize(t.Context(), "10.244.0.0/16"))
	return w
}

// open opens the datastore as a process of its own, whose requests can be watched and disturbed.
func (w *kubeWorld) open(tb testing.TB) (*KubernetesAPI, *traffic) {
	tb.Helper()
	seen := &traffic{}
	config := rest.CopyConfig(w.api.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	store := must.Get(OpenKubernetes(config)).Or(tb)
	return store, seen
}

// traffic is what a store asks of the API server.
type traffic struct {
	next http.RoundTripper

	mu       sync.Mutex // guards all below
	requests []string   // method and path with query
	before   func(request *http.Request) error
	after    func(request *http.Request) error
	// answer replaces the API server's, if it is not nil.
	answer func(request *http.Request) *http.Response
}

func (c *traffic) RoundTrip(request *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.requests = append(c.requests, request.Method+" "+request.URL.RequestURI())
	before, after, answer := c.before, c.after, c.answer
	c.mu.Unlock()
	if before != nil {
		if err := before(request); err != nil {
			return nil, err
		}
	}
	if answer != nil {
		if response := answer(request); response != nil {
			return response, nil
		}
	}
	response, err := c.next.RoundTrip(request)
	if err == nil && after != nil {
		if lost := after(request); lost != nil {
			_ = response.Body.Close()
			return nil, lost
		}
	}
	return response, err
}

// take returns the requests since the last time.
func (c *traffic) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.requests
	c.requests = nil
	return out
}

// once does something of somebody else's right before the first request of that method to a path with that part.
func (c *traffic) once(method, part string, meddle func()) {
	c.before = func(request *http.Request) error {
		if request.Method == method && strings.Contains(request.URL.Path, part) {
			c.mu.Lock()
			c.before = nil
			c.mu.Unlock()
			meddle()
		}
		return nil
	}
}

func page404(request *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusNotFound, Status: "404 Not Found", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(bytes.NewReader([]byte("<h1>404 page not found</h1>"))),
	}
}

// join registers a Node, starts calico-node there and connects pods.
func (w *kubeWorld) join(t *testing.T, name string, last byte, pods int) *caliconode.Agent {
	t.Helper()
	w.register(t, name)
	agent := must.Get(w.calico.Start(t.Context(), caliconode.Host{
		Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 1, last}), IPIP: true,
	})).Or(t)
	for i := range pods {
		w.addPod(t, agent, i)
	}
	return agent
}

func (w *kubeWorld) register(t *testing.T, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Get(w.api.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})).Or(t)
}

func (w *kubeWorld) addPod(t *testing.T, agent *caliconode.Agent, i int) {
	t.Helper()
	p := pod(agent.Host().Name, i)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	p.Spec.AutomountServiceAccountToken = new(bool)
	stored := must.Get(w.api.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})).Or(t)
	must.Get(agent.PodNetwork().Add(t.Context(), stored)).Or(t)
}

// leave deletes the Node and nothing else, as happens when a machine is gone.
func (w *kubeWorld) leave(t *testing.T, name string) {
	t.Helper()
	err := w.api.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// dropPods does what pod garbage collection would, so that a machine of the same name can join again.
func (w *kubeWorld) dropPods(t *testing.T, host string) {
	t.Helper()
	now := int64(0)
	pods := must.Get(w.api.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + host})).Or(t)
	for _, p := range pods.Items {
		must.Do(t, w.api.Client.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
}

func (w *kubeWorld) of(kind string) dynamic.ResourceInterface {
	others := map[string]string{apiv3.KindIPReservation: "ipreservations", apiv3.KindGlobalNetworkPolicy: "globalnetworkpolicies"}
	return w.raw.Resource(crdGroup.WithResource(cmp.Or(plural(kind), others[kind])))
}

// everything is each object of Calico's API group, each Node and each pod, by kind and name, with its UID and resourceVersion.
func (w *kubeWorld) everything(t *testing.T) map[string]string {
	t.Helper()
	kinds := must.Get(w.api.Client.Discovery().ServerResourcesForGroupVersion(crdGroup.String())).Or(t)
	all := []schema.GroupVersionResource{
		{Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "namespaces"},
	}
	for _, kind := range kinds.APIResources {
		if slices.Contains(kind.Verbs, "list") {
			all = append(all, crdGroup.WithResource(kind.Name))
		}
	}
	out := map[string]string{}
	for _, resource := range all {
		list, err := w.raw.Resource(resource).List(t.Context(), metav1.ListOptions{Limit: 10_000}) // a limit spares the wait for a watch cache
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			out[resource.Resource+" "+item.GetName()] = string(item.GetUID()) + " " + item.GetResourceVersion()
		}
	}
	return out
}

// specs is every object of IPAM and every resource that can be about one host, by kind and name, with its spec.
func (w *kubeWorld) specs(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, kind := range slices.Concat([]string{kindBlock, kindHandle, kindAffinity}, slices.Sorted(maps.Keys(resourcePlurals()))) {
		list := must.Get(w.of(kind).List(t.Context(), metav1.ListOptions{})).Or(t)
		for _, item := range list.Items {
			out[kind+" "+item.GetName()] = item.Object["spec"]
		}
	}
	return out
}

func (w *kubeWorld) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	object := must.Get(w.of(kind).Get(t.Context(), name, metav1.GetOptions{})).Or(t)
	return object
}

// touch changes an object in a way that means nothing.
func (w *kubeWorld) touch(t *testing.T, kind, name string) {
	t.Helper()
	object := w.get(t, kind, name)
	object.SetLabels(map[string]string{"touched": "yes"})
	must.Get(w.of(kind).Update(t.Context(), object, metav1.UpdateOptions{})).Or(t)
}

// recreate deletes an object and makes another of the same name and content.
func (w *kubeWorld) recreate(t *testing.T, kind, name string) {
	t.Helper()
	object := w.get(t, kind, name)
	must.Do(t, w.of(kind).Delete(t.Context(), name, metav1.DeleteOptions{}))
	object.SetResourceVersion("")
	object.SetUID("")
	w.create(t, kind, object.Object)
}

func (w *kubeWorld) create(t *testing.T, kind string, object map[string]any) {
	t.Helper()
	object["apiVersion"], object["kind"] = crdGroup.String(), kind
	must.Get(w.of(kind).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})).Or(t)
}

func (w *kubeWorld) drop(t *testing.T, kind, name string) {
	t.Helper()
	if err := w.of(kind).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (w *kubeWorld) read(t *testing.T, name string) seen {
	t.Helper()
	snapshot := must.Get(w.store.Snapshot(t.Context())).Or(t)
	if !snapshot.DatastoreReady {
		t.Error("the datastore is not ready")
	}
	hosts := must.Get(w.store.Hosts(t.Context(), snapshot.Revision, []string{name})).Or(t)
	i := slices.IndexFunc(snapshot.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("host %s is not in the snapshot %v", name, snapshot.Nodes)
	}
	return seen{node: snapshot.Nodes[i], host: hosts[0]}
}

// clean removes all that a host has left, in the order of the planner, by the given store.
func (w *kubeWorld) clean(t *testing.T, store *KubernetesAPI, name string) error {
	t.Helper()
	hosts, err := store.Hosts(t.Context(), 0, []string{name})
	if err != nil {
		return err
	}
	s, claims := seen{node: Node{Name: name}, host: hosts[0]}, map[netip.Prefix]int64{}
	for _, b := range s.host.Blocks {
		if own := s.assignments(b); len(own) > 0 {
			if err := store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, own); err != nil {
				return err
			}
		}
	}
	for _, r := range s.host.Resources {
		if err := store.DeleteResource(t.Context(), s.guard(), string(r.Kind), r.Name, r.Revision); err != nil {
			return err
		}
	}
	for _, a := range s.host.Affinities {
		claims[a.CIDR] = a.Revision
	}
	for _, b := range s.host.Blocks {
		if b.AffineTo == name {
			if err := store.DeleteAffinity(t.Context(), s.guard(), b.CIDR, claims[b.CIDR], true); err != nil {
				return err
			}
			delete(claims, b.CIDR)
		}
	}
	for cidr, revision := range claims {
		if err := store.DeleteAffinity(t.Context(), s.guard(), cidr, revision, false); err != nil {
			return err
		}
	}
	return nil
}

// gone is a host with pods whose Node is gone, cleaned up by hand after the test.
func (w *kubeWorld) gone(t *testing.T, name string, last byte, pods int) seen {
	t.Helper()
	w.join(t, name, last, pods)
	w.leave(t, name)
	return w.read(t, name)
}

func TestKubernetesDatastoreRefusesWhatChanged(t *testing.T) {
	w := newKubeWorld(t)
	s := w.gone(t, "kdd-busy", 3, 1)
	block, affinity := s.host.Blocks[0], s.host.Affinities[0]
	wrongSequence, wrongHandle := s.assignments(block), s.assignments(block)
	wrongSequence[0].Sequence++
	wrongHandle[0].Handle = "k8s-pod-network.other"
	writes := map[string]func() error{
		"an address that was assigned again": func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, wrongSequence) },
		"an address of another handle":       func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, wrongHandle) },
		"an address that has moved to another host": func() error {
			return w.store.ReleaseAddresses(t.Context(), Guard{Host: "kdd-elsewhere"}, block.CIDR, s.assignments(block))
		},
		"a leftover that has moved to another host": func() error {
			leftover := Leftover{Host: "kdd-elsewhere", Block: block.CIDR, Reservation: s.assignments(block)[0]}
			return w.store.RemoveLeftovers(t.Context(), Guard{Host: "kdd-elsewhere"}, []Leftover{leftover})
		},
		"a block that is not there": func() error {
			return w.store.ReleaseAddresses(t.Context(), s.guard(), netip.MustParsePrefix("10.99.0.0/26"), s.assignments(block))
		},
		"a block in use": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, affinity.Revision, true)
		},
		"an affinity with its block": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, affinity.Revision, false)
		},
		"a resource that is not there": func() error { return w.store.DeleteResource(t.Context(), s.guard(), felix, "node.kdd-busy", 7) },
		"a Calico Node of its own": func() error {
			guard := Guard{Host: "kdd-busy", Revision: 7}
			return w.store.ReleaseAddresses(t.Context(), guard, block.CIDR, s.assignments(block))
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			before := w.everything(t)
			if err := write(); !errors.Is(err, ErrConflict) {
				t.Errorf("got error %v, want a conflict", err)
			}
			if diff := gocmp.Diff(before, w.everything(t)); diff != "" {
				t.Errorf("something was written (-want +got):\n%s", diff)
			}
		})
	}
}
