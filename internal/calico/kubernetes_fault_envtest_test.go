// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// removals are all kinds of removal of what a host has left, each with the kind and name of the object that it deletes.
func (w *kubeWorld) removals(t *testing.T, s seen) map[string]func() error {
	t.Helper()
	out := map[string]func() error{}
	for _, r := range s.host.Resources {
		out[string(r.Kind)+" "+r.Name] = func() error {
			return w.store.DeleteResource(t.Context(), s.guard(), string(r.Kind), r.Name, r.Revision)
		}
	}
	for _, a := range s.host.Affinities {
		deleteBlock := slices.ContainsFunc(s.host.Blocks, func(b nodesync.Block) bool { return b.CIDR == a.CIDR })
		remove := func() error { return w.store.DeleteAffinity(t.Context(), s.guard(), a.CIDR, a.Revision, deleteBlock) }
		out[kindAffinity+" "+affinityName(s.node.Name, a.CIDR)] = remove
		if deleteBlock {
			out[kindBlock+" "+resourceName(a.CIDR)] = remove
		}
	}
	return out
}

// leftovers is a host that has left something of each kind but addresses: five resources, an affinity with its empty block, and one without.
func (w *kubeWorld) leftovers(t *testing.T, name string, third int) seen {
	t.Helper()
	w.configure(t, name)
	with, without := fmt.Sprintf("10.248.%d.0/26", third), fmt.Sprintf("10.248.%d.64/26", third)
	for _, cidr := range []string{with, without} {
		claim := map[string]any{"node": name, "type": "host", "cidr": cidr, "state": "confirmed", "deleted": "false"}
		w.object(t, kindAffinity, affinityName(name, netip.MustParsePrefix(cidr)), claim)
	}
	w.object(t, kindBlock, resourceName(netip.MustParsePrefix(with)), emptyBlockOf(name, with))
	t.Cleanup(func() { w.dropConfiguration(t, name) })
	return w.read(t, name)
}

// emptyBlockOf is the spec of a block of a host's, without addresses.
func emptyBlockOf(host, cidr string) map[string]any {
	return map[string]any{
		"cidr": cidr, "affinity": "host:" + host, "allocations": []any{}, "unallocated": []any{}, "attributes": []any{}, "strictAffinity": false,
	}
}

// object creates an object until the end of the test.
func (w *kubeWorld) object(t *testing.T, kind, name string, spec map[string]any) {
	t.Helper()
	w.create(t, kind, map[string]any{"metadata": map[string]any{"name": name}, "spec": spec})
	t.Cleanup(func() { w.drop(t, kind, name) })
}

// An object that is changed, or deleted and made again, is not removed: neither when that happens between the look at the host and the
// removal, nor in the moment before the API server is asked to delete it. (A block is looked at by the removal itself.)
func TestKubernetesDatastoreRemovesNothingThatIsChangedOrMadeAnew(t *testing.T) {
	w, third := newKubeWorld(t), 0
	objects := w.removals(t, w.leftovers(t, "kdd-fast-0", third))
	if len(objects) != 8 {
		t.Fatalf("there are %d kinds of removal", len(objects))
	}
	meddlers := map[string]func(*testing.T, string, string){"changed": w.touch, "made again": w.recreate}
	for _, when := range []string{"after the look", "at the last moment"} {
		for what, meddle := range meddlers {
			for object := range objects {
				t.Run(object+" "+what+" "+when, func(t *testing.T) {
					third++
					host, of := fmt.Sprintf("kdd-fast-%d", third), strings.NewReplacer("kdd-fast-0", fmt.Sprintf("kdd-fast-%d", third), "10-248-0-", fmt.Sprintf("10-248-%d-", third))
					kind, name, _ := strings.Cut(of.Replace(object), " ")
					if kind == kindBlock && when == "after the look" {
						return
					}
					remove := w.removals(t, w.leftovers(t, host, third))[kind+" "+name]
					if when == "after the look" {
						meddle(t, kind, name)
					} else {
						w.traffic.once(http.MethodDelete, "/"+plural(kind)+"/"+name, func() { meddle(t, kind, name) })
					}
					if err := remove(); !errors.Is(err, ErrConflict) {
						t.Errorf("got error %v, want a conflict", err)
					}
					w.get(t, kind, name) // it is there
				})
			}
		}
	}
}

// A machine that joins again keeps what has not been removed yet, whatever step is next.
func TestKubernetesDatastoreRemovesNothingOfAMachineThatIsBack(t *testing.T) {
	w := newKubeWorld(t)
	w.configure(t, "kdd-back")
	t.Cleanup(func() { w.dropConfiguration(t, "kdd-back") })
	s := w.gone(t, "kdd-back", 21, 1)
	removals := w.removals(t, w.leftovers(t, "kdd-back-empty", 200))
	block := s.host.Blocks[0]
	removals["addresses"] = func() error {
		return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block))
	}
	for what, remove := range removals {
		t.Run(what, func(t *testing.T) {
			for _, name := range []string{"kdd-back", "kdd-back-empty"} {
				w.register(t, name)
				t.Cleanup(func() { w.leave(t, name) })
			}
			before := w.everything(t)
			if err := remove(); !errors.Is(err, ErrConflict) {
				t.Errorf("got error %v, want a conflict", err)
			}
			if diff := cmp.Diff(before, w.everything(t)); diff != "" {
				t.Errorf("something was written (-want +got):\n%s", diff)
			}
		})
	}
}

// A Node about which there is no response counts as alive.
func TestKubernetesDatastoreRemovesNothingWithoutAnAnswerAboutTheNode(t *testing.T) {
	w := newKubeWorld(t)
	s := w.leftovers(t, "kdd-unknown", 201)
	before := w.everything(t)
	answers := map[string]func(*http.Request) *http.Response{
		"a proxy's 404": page404,
		"a refusal": func(r *http.Request) *http.Response {
			response := page404(r)
			response.StatusCode, response.Status = http.StatusForbidden, "403 Forbidden"
			return response
		},
	}
	for what, answer := range answers {
		w.traffic.answer = func(r *http.Request) *http.Response {
			if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
				return answer(r)
			}
			return nil
		}
		for object, remove := range w.removals(t, s) {
			if err := remove(); err == nil || errors.Is(err, ErrConflict) {
				t.Errorf("%s, %s: got error %v, want one that is not a conflict", what, object, err)
			}
		}
	}
	if diff := cmp.Diff(before, w.everything(t)); diff != "" {
		t.Errorf("something was written (-want +got):\n%s", diff)
	}
}

// errCrash ends a process.
var errCrash = errors.New("the process is killed here")

// A process that dies before or after any of its writes leaves what the next one finishes, and the end is the same.
func TestKubernetesDatastoreEndsAlikeWhereverAProcessDies(t *testing.T) { //nolint:tparallel // each begins with what the one before has left
	t.Parallel()
	w, host := kubeWorldOn(t, cluster.Lend(t)), "kdd-crashed"
	before := w.specs(t)
	step := cases.Number(t, 4, 1, 1) // for a change every fourth write, of each commit others
	for deadly := 1 + cases.Rand(t).IntN(step); ; deadly += step {
		survived := 0
		for _, moment := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s write %d", moment, deadly), func(t *testing.T) {
				w.configure(t, host)
				w.gone(t, host, 24, 1)
				dying, traffic := w.open(t)
				writes := 0
				traffic.before = func(r *http.Request) error {
					if r.Method != http.MethodGet {
						writes++
					}
					if writes > deadly || writes == deadly && moment == "before" {
						return errCrash
					}
					return nil
				}
				traffic.after = func(*http.Request) error {
					if writes >= deadly {
						return errCrash
					}
					return nil
				}
				if err := w.clean(t, dying, host); err == nil {
					survived++
				}
				if err := w.clean(t, w.store, host); err != nil {
					t.Errorf("the next process: %v", err)
				}
				if diff := cmp.Diff(before, w.specs(t)); diff != "" {
					t.Fatalf("what is left (-want +got):\n%s", diff)
				}
				w.dropPods(t, host)
			})
		}
		if t.Failed() || survived > 0 {
			if deadly < 10 {
				t.Errorf("a clean-up has only %d writes, so not much is shown", deadly-1)
			}
			return
		}
	}
}

// A process that dies between a handle and its block has lowered the handle already; the next one does not do it again.
func TestKubernetesDatastoreCountsAddressesRightAfterACrash(t *testing.T) {
	w, host, handle := newKubeWorld(t), "kdd-counted", "kdd-counted-handle"
	cidr := netip.MustParsePrefix("10.249.0.0/26")
	spec := emptyBlockOf(host, cidr.String())
	spec["allocations"], spec["sequenceNumber"] = []any{int64(0), int64(0), int64(0)}, int64(7)
	spec["attributes"] = []any{map[string]any{"handle_id": handle, "secondary": map[string]any{"node": host}}}
	w.object(t, kindBlock, resourceName(cidr), spec)
	w.object(t, kindHandle, handle, map[string]any{"handleID": handle, "block": map[string]any{cidr.String(): int64(3), "10.249.0.64/26": int64(1)}})
	s := w.read(t, host)
	one := s.assignments(s.host.Blocks[0])[:1]
	dying, traffic := w.open(t)
	traffic.before = func(r *http.Request) error {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/ipamblocks/") {
			return errCrash
		}
		return nil
	}
	if err := dying.ReleaseAddresses(t.Context(), s.guard(), cidr, one); !errors.Is(err, errCrash) {
		t.Fatalf("got %v, want the crash", err)
	}
	want := map[string]any{cidr.String(): int64(2), "10.249.0.64/26": int64(1)}
	for range 2 {
		if diff := cmp.Diff(want, w.get(t, kindHandle, handle).Object["spec"].(map[string]any)["block"]); diff != "" {
			t.Errorf("the handle counts (-want +got):\n%s", diff)
		}
		if err := w.store.ReleaseAddresses(t.Context(), s.guard(), cidr, one); err != nil && !errors.Is(err, ErrConflict) {
			t.Fatal(err)
		}
	}
	if left := w.read(t, host).host.Blocks[0].Allocations; len(left) != 2 {
		t.Errorf("left are %v, want two addresses", left)
	}
}

func TestKubernetesDatastoreLosesNoAddressThatIsTakenMeanwhile(t *testing.T) {
	w := newKubeWorld(t)
	s := w.gone(t, "kdd-raced", 4, 2)
	block, handle := s.host.Blocks[0], "k8s-pod-network.newcomer"
	taken := netip.Addr{}
	w.traffic.once(http.MethodPut, "/ipamblocks/", func() {
		w.register(t, "kdd-raced") // IPAM assigns nothing to a host without a Node
		defer w.leave(t, "kdd-raced")
		assigned, _, err := w.calico.Client().IPAM().AutoAssign(t.Context(), ipam.AutoAssignArgs{
			Num4: 1, HandleID: &handle, Hostname: "kdd-raced", Attrs: map[string]string{"node": "kdd-raced"}, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		})
		if err != nil || len(assigned.IPs) != 1 {
			t.Fatalf("assigning an address: %v %v", assigned, err)
		}
		taken, _ = netip.AddrFromSlice(assigned.IPs[0].IP.To4())
	})
	if err := w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block)); !errors.Is(err, ErrConflict) {
		t.Fatalf("got error %v, want a conflict", err)
	}
	// The next round reads again and releases what it meant to, although the handles went before the process "died".
	must.Do(t, w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block)))
	left := w.read(t, "kdd-raced").host.Blocks[0].Allocations
	if len(left) != 1 || left[0].Address != taken || left[0].Handle != handle {
		t.Errorf("left are %v, want just the newcomer's %s", left, taken)
	}
	w.get(t, kindHandle, handle)
}

// A machine that is back takes its tunnel's address again under the same handle. Whenever that happens, and even if the machine goes again at
// once, the address and its handle agree.
func TestKubernetesDatastoreLosesNoHandleOfATunnelThatIsBack(t *testing.T) {
	w, host := newKubeWorld(t), "kdd-tunnel"
	handle := "ipip-tunnel-addr-" + host
	for _, moment := range []string{"GET /ipamhandles/", "GET /ipamblocks/", "GET /nodes/", "DELETE /ipamhandles/", "PUT /ipamblocks/"} {
		for _, stays := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s stays %t", moment, stays), func(t *testing.T) {
				s := w.gone(t, host, 25, 0)
				block := s.host.Blocks[0]
				method, part, _ := strings.Cut(moment, " ")
				w.traffic.once(method, part, func() {
					if w.join(t, host, 25, 0); !stays {
						w.leave(t, host)
					}
				})
				err := w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block))
				if !errors.Is(err, ErrConflict) {
					t.Errorf("got error %v, want a conflict", err)
				}
				// Where the handle had gone already, the old address is left alongside the new one, until the machine goes again.
				left := w.read(t, host).host.Blocks[0].Allocations
				w.leave(t, host)
				if len(left) == 0 || len(left) > 1 && method != http.MethodPut || left[0].Handle != handle {
					t.Errorf("left are %v, want the tunnel's new address", left)
				}
				w.get(t, kindHandle, handle)
				if err := w.clean(t, w.store, host); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// What cannot be parsed holds back the host that it is about, and no other.
func TestKubernetesDatastoreHoldsBackWhatCannotBeParsed(t *testing.T) {
	w := newKubeWorld(t)
	w.gone(t, "kdd-clear", 26, 1)
	s := w.gone(t, "kdd-garbled", 27, 1)
	garbage := map[string]any{metadataAnnotation: "{"}
	block := func(cidr string, more map[string]any) map[string]any {
		spec := map[string]any{"cidr": cidr, "allocations": []any{}, "unallocated": []any{}, "attributes": []any{}, "strictAffinity": false}
		maps.Copy(spec, more)
		return spec
	}
	attribute := []any{map[string]any{"handle_id": "x", "secondary": map[string]any{"node": "kdd-garbled"}}}
	claim := map[string]any{"node": "kdd-garbled", "cidr": "10.246.9.0/26", "state": "confirmed", "deleted": "false"}
	for _, object := range []struct {
		kind, name        string
		annotations, spec map[string]any
	}{
		{kindBlock, "10-246-0-0-26", nil, block("nonsense", map[string]any{"affinity": "host:kdd-garbled"})},
		{kindBlock, "10-246-1-0-26", nil, block("10.246.1.0/26", map[string]any{"allocations": []any{int64(7)}, "attributes": attribute})},
		{kindBlock, "10-246-9-0-26", nil, block("nonsense", nil)}, // claimed
		{kindAffinity, "kdd-garbled-10-246-9-0-26", nil, claim},
		{kindAffinity, "kdd-garbled-10-246-2-0-26", nil, map[string]any{"node": "kdd-garbled", "cidr": "nonsense", "state": "confirmed", "deleted": "false"}},
		{apiv3.KindHostEndpoint, "garbled", garbage, map[string]any{"node": "kdd-garbled"}},
		{apiv3.KindFelixConfiguration, "node.kdd-garbled", garbage, map[string]any{}},
	} {
		metadata := map[string]any{"name": object.name, "annotations": object.annotations}
		w.create(t, object.kind, map[string]any{"metadata": metadata, "spec": object.spec})
		t.Cleanup(func() { w.drop(t, object.kind, object.name) })
	}
	hosts := must.Get(w.store.Hosts(t.Context(), 0, []string{"kdd-garbled", "kdd-clear"})).Or(t)
	if len(hosts[0].Unreadable) != 0 {
		t.Errorf("kdd-clear is held back by %q", hosts[0].Unreadable)
	}
	want := []string{
		"BlockAffinity kdd-garbled-10-246-2-0-26", "FelixConfiguration node.kdd-garbled", "HostEndpoint garbled",
		"IPAMBlock 10-246-0-0-26", "IPAMBlock 10-246-1-0-26", "IPAMBlock 10-246-9-0-26",
	}
	slices.Sort(hosts[1].Unreadable)
	if diff := cmp.Diff(want, hosts[1].Unreadable); diff != "" {
		t.Errorf("kdd-garbled is held back by (-want +got):\n%s", diff)
	}
	// Anyone who asks all the same gets an error, and the readable rest is as it was.
	if err := w.store.DeleteResource(t.Context(), s.guard(), apiv3.KindHostEndpoint, "garbled", 1); err == nil {
		t.Error("a host endpoint that cannot be parsed was deleted")
	}
}

// A cluster without Calico's kinds, or behind a proxy that knows nothing of them, is an error and never an empty datastore.
func TestKubernetesDatastoreThatIsNotThereIsAnError(t *testing.T) {
	w := newKubeWorld(t)
	w.traffic.answer = page404
	_, hostsErr := w.store.Hosts(t.Context(), 0, []string{"kdd-any"})
	_, snapshotErr := w.store.Snapshot(t.Context())
	_, sweepErr := w.store.Sweep(t.Context(), 0)
	for what, err := range map[string]error{"Ping": w.store.Ping(t.Context()), "Snapshot": snapshotErr, "Hosts": hostsErr, "Sweep": sweepErr} {
		if err == nil || !strings.Contains(err.Error(), "check DATASTORE_TYPE") {
			t.Errorf("%s: got %v, want what to check", what, err)
		}
	}
	for kind := range resourcePlurals() {
		w.traffic.answer = func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/"+plural(kind)) {
				return page404(r)
			}
			return nil
		}
		if _, err := w.store.Hosts(t.Context(), 0, []string{"kdd-any"}); (err == nil) != (kind == apiv3.KindCalicoNodeStatus) {
			t.Errorf("without %s, which older versions of Calico do not have if it is CalicoNodeStatus: %v", kind, err)
		}
	}
}
