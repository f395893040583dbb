// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// methods counts requests by method and what they are for.
func methods(requests []string) map[string]int {
	out := map[string]int{}
	for _, r := range requests {
		method, uri, _ := strings.Cut(r, " ")
		path, _, _ := strings.Cut(uri, "?")
		if parts := strings.Split(strings.TrimPrefix(path, objectPath), "/"); len(parts) == 1 {
			method = "LIST"
		}
		out[method]++
	}
	return out
}

// What a removal asks of the API server depends on what the host has left, and on nothing else in the cluster.
func TestKubernetesDatastoreAsksLittlePerHost(t *testing.T) {
	t.Parallel()
	w := kubeWorldOn(t, cluster.Lend(t))
	const pods = 3
	asked := func(host string, last byte) map[string]int {
		w.configure(t, host)
		w.gone(t, host, last, pods)
		w.traffic.take()
		must.Do(t, w.clean(t, w.store, host))
		return methods(w.traffic.take())
	}
	want := map[string]int{
		// What Hosts reads, for up to a whole round's hosts together: affinities, blocks, five kinds of resources.
		"LIST": 7,
		// Handles of pods and of the tunnel, and block and Node for the addresses; resource and Node for five resources; block, affinity and Node.
		"GET": pods + 1 + 2 + 5*2 + 3,
		// The block without its addresses, and the mark on the affinity.
		"PUT":    2,
		"DELETE": pods + 1 + 5 + 2,
	}
	if diff := cmp.Diff(want, asked("kdd-few", 30)); diff != "" {
		t.Errorf("requests to remove a host (-want +got):\n%s", diff)
	}
	for i := range 5 {
		host := fmt.Sprintf("kdd-many-%d", i)
		w.configure(t, host)
		t.Cleanup(func() { w.dropConfiguration(t, host) })
		w.join(t, host, byte(40+i), 2)
	}
	if diff := cmp.Diff(want, asked("kdd-one-of-many", 31)); diff != "" {
		t.Errorf("requests to remove a host among more (-want +got):\n%s", diff)
	}
}

// An affinity that is not called as Calico calls it is found all the same, by one look through all of them.
func TestKubernetesDatastoreFindsAffinitiesOfOtherNames(t *testing.T) {
	w, prefix := newKubeWorld(t), netip.MustParsePrefix("10.247.0.0/26")
	spec := map[string]any{"node": "kdd-odd", "cidr": prefix.String(), "state": "confirmed", "deleted": "false"}
	w.create(t, kindAffinity, map[string]any{"metadata": map[string]any{"name": "odd"}, "spec": spec})
	// In the place of that name may be another's.
	virtual := map[string]any{"node": "kdd-odd", "type": "virtual", "cidr": prefix.String(), "state": "confirmed", "deleted": "false"}
	w.create(t, kindAffinity, map[string]any{"metadata": map[string]any{"name": affinityName("kdd-odd", prefix)}, "spec": virtual})
	t.Cleanup(func() { w.drop(t, kindAffinity, affinityName("kdd-odd", prefix)) })
	s := w.read(t, "kdd-odd")
	w.traffic.take()
	must.Do(t, w.store.DeleteAffinity(t.Context(), s.guard(), prefix, s.host.Affinities[0].Revision, false))
	if diff := cmp.Diff(map[string]int{"GET": 3, "LIST": 1, "DELETE": 1}, methods(w.traffic.take())); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	w.get(t, kindAffinity, affinityName("kdd-odd", prefix))
}

func TestKubernetesDatastoreFindsOrphanedHandles(t *testing.T) {
	w := newKubeWorld(t)
	agent := w.join(t, "kdd-handles", 32, 2)
	before, err := w.store.Sweep(t.Context(), 0)
	if err != nil || len(before.Hosts) > 0 {
		t.Fatalf("got %v, %v, want no hosts", before, err)
	}
	lost := must.Get(agent.LeaveOrphanedHandle(t.Context())).Or(t)
	w.create(t, kindHandle, map[string]any{
		"metadata": map[string]any{"name": "mynet.upper"}, "spec": map[string]any{"handleID": "MyNet.Upper", "block": map[string]any{}},
	})
	sweep := must.Get(w.store.Sweep(t.Context(), 0)).Or(t)
	fresh := slices.DeleteFunc(sweep.OrphanedHandles, func(h Handle) bool { return slices.Contains(before.OrphanedHandles, h) })
	if len(fresh) != 2 || fresh[0].ID != "MyNet.Upper" || fresh[1].ID != lost {
		t.Fatalf("orphans are %v, want MyNet.Upper and %s", fresh, lost)
	}
	all := w.everything(t)
	refused := []Handle{
		{ID: lost, Revision: fresh[1].Revision - 1}, {ID: "mynet.upper", Revision: fresh[0].Revision}, {ID: "absent", Revision: 1}, {ID: "a/b", Revision: 1},
	}
	used := w.get(t, kindHandle, strings.ToLower(w.read(t, "kdd-handles").host.Blocks[0].Allocations[0].Handle))
	revision := must.Get(strconv.ParseInt(used.GetResourceVersion(), 10, 64)).Or(t)
	for _, h := range append(refused, Handle{ID: used.Object["spec"].(map[string]any)["handleID"].(string), Revision: revision}) {
		if err := w.store.DeleteHandles(t.Context(), []Handle{h}); !errors.Is(err, ErrConflict) {
			t.Errorf("%v: got %v, want a conflict", h, err)
		}
	}
	if diff := cmp.Diff(all, w.everything(t)); diff != "" {
		t.Errorf("something was written (-want +got):\n%s", diff)
	}
	// One that cannot be deleted does not keep the others.
	if err := w.store.DeleteHandles(t.Context(), append(refused[:1], fresh...)); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want a conflict for the first", err)
	}
	delete(all, "ipamhandles mynet.upper")
	delete(all, "ipamhandles "+lost)
	if diff := cmp.Diff(all, w.everything(t)); diff != "" {
		t.Errorf("the datastore without the orphans (-want +got):\n%s", diff)
	}
}

func TestCustomResourcesOfHandlesInUseAreNoOrphans(t *testing.T) {
	t.Parallel()
	handle := func(id string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"7"},"spec":{"handleID":%q,"block":{}}}`, strings.ToLower(id), id)
	}
	blocks := map[string]struct {
		block string
		want  []Handle
	}{
		"no block":                  {`{"spec":{}}`, []Handle{{ID: "Net.a", Revision: 7}}},
		"in use":                    {`{"spec":{"attributes":[{"handle_id":"Net.a"}]}}`, nil},
		"in use as old Windows did": {`{"spec":{"attributes":[{"handle_id":"Net.a\r\n"}]}}`, nil},
		"of another case":           {`{"spec":{"attributes":[{"handle_id":"net.a"}]}}`, []Handle{{ID: "Net.a", Revision: 7}}},
		"cannot be parsed":          {`{"spec":{"attributes":"Net.b"}}`, nil},
	}
	for name, c := range blocks {
		s := newSweeping()
		s.addCustomBlock([]byte(c.block))
		s.addCustomHandle(handle("Net.a"))
		s.addCustomHandle([]byte(`{"spec":{"handleID":7}}`))
		if got := s.result().OrphanedHandles; !slices.Equal(got, c.want) {
			t.Errorf("%s: orphans are %v, want %v", name, got, c.want)
		}
	}
}

func TestKubernetesDatastoreNeverDeletesAHandleThatChanges(t *testing.T) {
	w := newKubeWorld(t)
	for what, meddle := range map[string]func(*testing.T, string, string){"changed": w.touch, "made again": w.recreate} {
		spec := map[string]any{"handleID": "kdd-hot", "block": map[string]any{"10.250.0.0/26": int64(1)}}
		w.create(t, kindHandle, map[string]any{"metadata": map[string]any{"name": "kdd-hot"}, "spec": spec})
		revision := must.Get(strconv.ParseInt(w.get(t, kindHandle, "kdd-hot").GetResourceVersion(), 10, 64)).Or(t)
		w.traffic.once("DELETE", "/kdd-hot", func() { meddle(t, kindHandle, "kdd-hot") })
		if err := w.store.DeleteHandles(t.Context(), []Handle{{ID: "kdd-hot", Revision: revision}}); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: got %v, want a conflict", what, err)
		}
		w.get(t, kindHandle, "kdd-hot")
		w.drop(t, kindHandle, "kdd-hot")
	}
}

// Lists come in pages, so that memory is bounded by a page and not by the cluster.
func TestKubernetesDatastoreReadsPageByPage(t *testing.T) {
	w := newKubeWorld(t)
	const page, more = 40, 50
	w.store.page = page
	fillKubernetes(t, w.raw, "kdd-page", more)
	t.Cleanup(func() { emptyKubernetes(t, w.raw, "kdd-page") })
	w.traffic.take()
	s := must.Get(w.store.Snapshot(t.Context())).Or(t)
	found := 0
	for _, n := range s.Nodes {
		if strings.HasPrefix(n.Name, "kdd-page-") {
			found++
		}
	}
	if found != more {
		t.Errorf("found %d hosts, want %d", found, more)
	}
	lists := 0
	for _, r := range w.traffic.take() {
		if !strings.Contains(r, "clusterinformations/default") {
			lists++
			if !strings.Contains(r, fmt.Sprintf("limit=%d", page)) {
				t.Errorf("%s is not in pages", r)
			}
		}
	}
	if want := 2 + 2 + 5; lists != want {
		t.Errorf("a snapshot took %d lists, want %d: two pages of blocks and affinities, and one of each of five kinds", lists, want)
	}
}

// fillKubernetes writes hosts with a block of 30 pods each, eight at a time.
func fillKubernetes(tb testing.TB, raw *dynamic.DynamicClient, prefix string, hosts int) {
	tb.Helper()
	eachOf(tb, hosts, func(i int) error {
		name := fmt.Sprintf("%s-%05d", prefix, i)
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 10), byte(i >> 2), byte(i%4) * 64}), 26)
		spec := map[string]any{}
		if err := utiljson.Unmarshal([]byte(caliconode.Crowd{Prefix: prefix, PodsEach: podsPerNode}.Block(i, cidr)), &spec); err != nil {
			return err
		}
		spec["strictAffinity"] = false
		affinity := map[string]any{"node": name, "type": "host", "cidr": cidr.String(), "state": "confirmed", "deleted": "false"}
		return errors.Join(
			createRaw(tb, raw, kindAffinity, affinityName(name, cidr), affinity), createRaw(tb, raw, kindBlock, resourceName(cidr), spec),
		)
	})
}

func createRaw(tb testing.TB, raw *dynamic.DynamicClient, kind, name string, spec map[string]any) error {
	tb.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crdGroup.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	_, err := raw.Resource(crdGroup.WithResource(plural(kind))).Create(tb.Context(), object, metav1.CreateOptions{})
	return err
}

// emptyKubernetes removes what fillKubernetes wrote.
func emptyKubernetes(tb testing.TB, raw *dynamic.DynamicClient, prefix string) {
	tb.Helper()
	for _, kind := range []string{kindAffinity, kindBlock} {
		resource := raw.Resource(crdGroup.WithResource(plural(kind)))
		list := must.Get(resource.List(context.WithoutCancel(tb.Context()), metav1.ListOptions{})).Or(tb)
		eachOf(tb, len(list.Items), func(i int) error {
			text, err := list.Items[i].MarshalJSON()
			if err != nil || !strings.Contains(string(text), prefix+"-") {
				return err
			}
			return resource.Delete(context.WithoutCancel(tb.Context()), list.Items[i].GetName(), metav1.DeleteOptions{})
		})
	}
}

func eachOf(tb testing.TB, n int, do func(i int) error) {
	tb.Helper()
	const workers = 8
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < n; i += workers {
				if err := do(i); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkKubernetesResync reads a big datastore from a real API server: a snapshot, which every round takes, the leftovers of five hosts, and
// a sweep. MOORING_BENCH_BLOCKS sets its size (500 without it), with 30 pods in each block. Next to each time is the CPU time of this process
// and how much its heap grew at most.
func BenchmarkKubernetesResync(b *testing.B) {
	blocks := 500
	if n, err := strconv.Atoi(os.Getenv("MOORING_BENCH_BLOCKS")); err == nil {
		blocks = n
	}
	api := cluster.On(b, controlplane.Shared(b), controlplane.CalicoCRDs(b)...)
	raw := must.Get(dynamic.NewForConfig(api.Config)).Or(b)
	fillKubernetes(b, raw, "bench", blocks)
	b.Cleanup(func() { emptyKubernetes(b, raw, "bench") })
	w := &kubeWorld{api: api}
	store, traffic := w.open(b)
	measure := func(name string, work func() error) {
		b.Run(fmt.Sprintf("%s/blocks=%d", name, blocks), func(b *testing.B) {
			b.ReportAllocs()
			before, base, peak := cpu(b), heap(), uint64(0)
			traffic.before = func(*http.Request) error { peak = max(peak, heap()); return nil }
			traffic.take()
			for b.Loop() {
				must.Do(b, work())
			}
			b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(len(traffic.take()))/float64(b.N), "requests/op")
			b.ReportMetric(float64(max(peak, base)-base)/(1<<20), "heap-MiB")
		})
	}
	measure("snapshot", func() error {
		s, err := store.Snapshot(b.Context())
		if err == nil && len(s.Nodes) < blocks {
			return fmt.Errorf("the snapshot has %d hosts", len(s.Nodes))
		}
		return err
	})
	measure("leftovers", func() error {
		hosts, err := store.Hosts(b.Context(), 0, []string{"bench-00001", "bench-00002", "bench-00003", "bench-00004", "bench-00005"})
		if err == nil && (len(hosts) != 5 || len(hosts[4].Blocks) != 1 || len(hosts[4].Affinities) != 1) {
			return fmt.Errorf("read %+v", hosts)
		}
		return err
	})
	measure("sweep", func() error {
		_, err := store.Sweep(b.Context(), 0)
		return err
	})
}

// heap is what is in use, garbage included.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
