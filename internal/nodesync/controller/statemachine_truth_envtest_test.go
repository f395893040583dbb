// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What the state machines show of the controller they show on a model of Calico's datastore. Here the model and calico.Etcd, on a real etcd, get
// the same history and the same calls, right ones and wrong ones: they must read the same, write the same, and refuse the same.
func TestModelOfTheDatastoreIsTrue(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	store := must.Get(calico.OpenEtcd(calico.EtcdConfig{Endpoints: []string{etcd.Endpoint}})).Or(t)
	client := must.Get(clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint}, Logger: zap.NewNop()})).Or(t)
	t.Cleanup(func() { _, _ = client.Close(), store.Close() })
	metrics, refused, written := NewMetrics(prometheus.NewRegistry()), 0, 0
	tried, most, failed := 0, cases.Number(t, 10, 10, 100), false
	cases.Check(t, func(rt *rapid.T) {
		// Each costs a hundred calls of a server, and the next commit tries others; what has failed is repeated until it is small.
		if tried++; tried > most && !failed {
			return
		}
		defer func() { failed = failed || rt.Failed() }()
		x := newTrial(rt, metrics)
		defer x.end()
		d := &double{t: t, x: x, client: client, store: store, model: &datastoreModel{etcd: x.u.etcd, by: "leader"}}
		d.begin()
		s := &story{trial: x}
		x.leftovers = true
		x.leaders = append(x.leaders, x.newProcess("idle", x.u.api, processOptions{dryRun: true}))
		for range rapid.IntRange(3, 12).Draw(rt, "turns") {
			if rapid.IntRange(0, 2).Draw(rt, "world") == 0 {
				s.podTrouble(rt)
				s.happens(rt, nil)
				d.replay()
				d.compare(rt)
				continue
			}
			before := x.u.etcd.revision
			if err := d.both(rt, d.drawWrite(rt)); err != nil {
				refused++
			} else if x.u.etcd.revision > before {
				written++
			}
			d.compare(rt)
		}
	})
	t.Logf("%d writes were made, %d refused", written, refused)
	if written == 0 || refused == 0 {
		t.Errorf("%d writes were made and %d refused: both must occur", written, refused)
	}
}

// double is one datastore twice: as a model, and real.
type double struct {
	t      *testing.T
	x      *trial
	client *clientv3.Client
	store  *calico.Etcd
	model  *datastoreModel
	// offset is by how much the real revisions are larger; replayed is how far the model's history has been made real.
	offset, replayed int64
}

func (d *double) begin() {
	must.Get(d.client.Delete(d.t.Context(), "/calico", clientv3.WithPrefix())).Or(d.t)
	resp := must.Get(d.client.Put(d.t.Context(), "/begin", "")).Or(d.t)
	d.offset, d.replayed = resp.Header.Revision-1, 1
	d.replay()
}

// replay makes real what has happened in the model since, transaction by transaction.
func (d *double) replay() {
	for ; d.replayed < d.x.u.etcd.revision; d.replayed++ {
		var ops []clientv3.Op
		for key, versions := range d.x.u.etcd.versions {
			for _, v := range versions {
				if v.revision == d.replayed+1 && v.value == nil {
					ops = append(ops, clientv3.OpDelete(key))
				} else if v.revision == d.replayed+1 {
					ops = append(ops, clientv3.OpPut(key, realValue(key, v.value)))
				}
			}
		}
		resp, err := d.client.Txn(d.t.Context()).Then(ops...).Commit()
		if err != nil || resp.Header.Revision != d.replayed+1+d.offset {
			d.t.Fatalf("replaying revision %d: %v, %v", d.replayed+1, resp, err)
		}
	}
}

// real is a revision of the model as it is in etcd; 0 stays 0.
func (d *double) real(revision int64) int64 {
	if revision == 0 {
		return 0
	}
	return revision + d.offset
}

// doubleWrite is the same write in both: revision translates a revision of the model.
type doubleWrite struct {
	text string
	make func(to Datastore, revision func(int64) int64) error
}

func (d *double) both(t *rapid.T, w doubleWrite) error {
	t.Helper()
	before := d.x.u.etcd.revision
	modelErr := w.make(d.model, func(r int64) int64 { return r })
	realErr := w.make(d.store, d.real)
	d.replayed = d.x.u.etcd.revision
	if (modelErr == nil) != (realErr == nil) || errors.Is(modelErr, calico.ErrConflict) != errors.Is(realErr, calico.ErrConflict) {
		t.Fatalf("%s at revision %d: the model says %v, the real one says %v", w.text, before, modelErr, realErr)
	}
	return modelErr
}

// compare reads all that can be read, now and at a revision of before, in both.
func (d *double) compare(t *rapid.T) {
	t.Helper()
	ctx := d.t.Context()
	ofModel := must.Get(d.model.Snapshot(ctx)).Or(t)
	ofReal := must.Get(d.store.Snapshot(ctx)).Or(t)
	options := cmp.Options{
		cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(calico.Object{}, "Value"),
		cmpopts.SortSlices(func(a, b calico.Object) bool { return a.Key < b.Key }), cmpopts.SortSlices(func(a, b calico.Resource) bool { return a.Kind < b.Kind }),
		cmpopts.SortSlices(func(a, b string) bool { return a < b }),
		cmpopts.IgnoreFields(calico.Host{}, "Addresses"), // for the journal alone
		cmp.FilterPath(func(p cmp.Path) bool {
			return p.Last().String() == ".Revision" || strings.Contains(p.String(), "EndpointsWritten")
		}, cmp.Comparer(func(a, b int64) bool { return d.real(a) == b || a == d.real(b) })),
	}
	if diff := cmp.Diff(ofModel, ofReal, options); diff != "" {
		t.Fatalf("snapshots differ (-model +real):\n%s", diff)
	}
	d.compareKeys(t)
	at := max(ofModel.Revision-int64(rapid.IntRange(0, 3).Draw(t, "back")), d.x.u.etcd.compacted, 2)
	theirs := must.Get(d.model.Hosts(ctx, at, d.x.u.hosts())).Or(t)
	ours := must.Get(d.store.Hosts(ctx, d.real(at), d.x.u.hosts())).Or(t)
	if diff := cmp.Diff(theirs, ours, options); diff != "" {
		t.Fatalf("hosts differ (-model +real):\n%s", diff)
	}
	modelSweep := must.Get(d.model.Sweep(ctx, at)).Or(t)
	realSweep := must.Get(d.store.Sweep(ctx, d.real(at))).Or(t)
	if diff := cmp.Diff(modelSweep, realSweep, options); diff != "" {
		t.Fatalf("sweeps differ (-model +real):\n%s", diff)
	}
	modelPods := must.Get(d.model.PodHoldings(ctx, at, d.alive)).Or(t)
	realPods := must.Get(d.store.PodHoldings(ctx, d.real(at), d.alive)).Or(t)
	before := func(a, b calico.Leftover) bool {
		return fmt.Sprint(a.Endpoint.Name, a.Block, a.Address) < fmt.Sprint(b.Endpoint.Name, b.Block, b.Address)
	}
	if diff := cmp.Diff(modelPods, realPods, options, cmpopts.IgnoreUnexported(calico.PodHoldings{}), cmpopts.SortSlices(before),
		cmpopts.SortSlices(func(a, b calico.Sandboxed) bool { return before(a.Leftover, b.Leftover) })); diff != "" {
		t.Fatalf("leftovers of pods differ (-model +real):\n%s", diff)
	}
}

func (d *double) alive(namespace, name string) bool {
	return namespace == "ns" && d.x.u.api.alive(name)
}

// compareKeys holds every key with its revision against the model's, and what the handles count.
func (d *double) compareKeys(t *rapid.T) {
	t.Helper()
	resp := must.Get(d.client.Get(d.t.Context(), "/calico", clientv3.WithPrefix())).Or(t)
	ofModel, ofReal := map[string]string{}, map[string]string{}
	for _, kv := range d.x.u.etcd.scan("", d.x.u.etcd.revision) {
		ofModel[kv.key] = fmt.Sprint(d.real(kv.revision))
		if handle, ok := kv.value.(modelHandle); ok {
			ofModel[kv.key] += realValue(kv.key, handle)
		}
	}
	for _, kv := range resp.Kvs {
		ofReal[string(kv.Key)] = fmt.Sprint(kv.ModRevision)
		if strings.HasPrefix(string(kv.Key), modelHandles) {
			ofReal[string(kv.Key)] += string(kv.Value)
		}
	}
	if diff := cmp.Diff(ofModel, ofReal); diff != "" {
		t.Fatalf("keys differ (-model +real):\n%s", diff)
	}
}

// drawWrite draws a write about a host, mostly as a plan would make it and sometimes wrong in one way.
func (d *double) drawWrite(t *rapid.T) doubleWrite {
	ctx := d.t.Context()
	host := rapid.SampledFrom(d.x.u.hosts()).Draw(t, "host")
	_, node := d.x.u.etcd.get(modelNodeKey(host))
	node = d.wrong(t, node)
	seen := d.model.host(d.x.u.etcd.revision, host)
	guard := func(revision func(int64) int64) calico.Guard {
		return calico.Guard{Host: host, Revision: revision(node)}
	}
	switch rapid.IntRange(0, 8).Draw(t, "write") {
	case 0:
		value := rapid.SampledFrom([]string{"", host}).Draw(t, "value")
		return doubleWrite{"AnnotateNode " + host, func(to Datastore, revision func(int64) int64) error {
			_, err := to.AnnotateNode(ctx, host, revision(node), nodesync.FenceAnnotation, value)
			return err
		}}
	case 1:
		_, information := d.x.u.etcd.get(modelInformation)
		information = d.wrong(t, information)
		return doubleWrite{"AnnotateClusterInformation", func(to Datastore, revision func(int64) int64) error {
			return to.AnnotateClusterInformation(ctx, revision(information), nodesync.BindingAnnotation, "uid")
		}}
	case 2:
		var refs []calico.EndpointRef
		for _, e := range seen.Endpoints {
			refs = append(refs, calico.EndpointRef{Namespace: e.Namespace, Name: e.Name, Revision: d.wrong(t, e.Revision)})
		}
		return doubleWrite{fmt.Sprintf("DeleteEndpoints %v", refs), func(to Datastore, revision func(int64) int64) error {
			translated := slices.Clone(refs)
			for i := range translated {
				translated[i].Revision = revision(refs[i].Revision)
			}
			return to.DeleteEndpoints(ctx, guard(revision), translated)
		}}
	case 3, 8:
		return d.drawRelease(t, seen, guard)
	case 4:
		return d.drawAffinity(t, host, seen, guard)
	case 7:
		return d.drawLeftovers(t, host, guard)
	case 5:
		if len(seen.Resources) > 0 {
			r := rapid.SampledFrom(seen.Resources).Draw(t, "resource")
			at := d.wrong(t, r.Revision)
			return doubleWrite{"DeleteResource " + r.Name, func(to Datastore, revision func(int64) int64) error {
				return to.DeleteResource(ctx, guard(revision), string(r.Kind), r.Name, revision(at))
			}}
		}
	case 6:
		sweep, err := d.model.Sweep(ctx, d.x.u.etcd.revision)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sweep.OrphanedHandles {
			sweep.OrphanedHandles[i].Revision = d.wrong(t, sweep.OrphanedHandles[i].Revision)
		}
		return doubleWrite{"DeleteHandles", func(to Datastore, revision func(int64) int64) error {
			handles := slices.Clone(sweep.OrphanedHandles)
			for i := range handles {
				handles[i].Revision = revision(handles[i].Revision)
			}
			return to.DeleteHandles(ctx, handles)
		}}
	}
	return doubleWrite{"DeleteNode " + host, func(to Datastore, revision func(int64) int64) error { return to.DeleteNode(ctx, guard(revision)) }}
}

// wrong is a revision, or sometimes another.
func (d *double) wrong(t *rapid.T, revision int64) int64 {
	switch rapid.IntRange(0, 11).Draw(t, "wrong") {
	case 0:
		return 0
	case 1:
		return max(2, revision-1)
	}
	return revision
}

func (d *double) drawRelease(t *rapid.T, seen calico.Host, guard func(func(int64) int64) calico.Guard) doubleWrite {
	cidr := rapid.SampledFrom(d.x.u.pool).Draw(t, "block")
	var assignments []calico.Assignment
	for _, b := range seen.Blocks {
		if b.CIDR != cidr && rapid.Bool().Draw(t, "this block") {
			cidr, assignments = b.CIDR, nil
		}
		for _, a := range b.Allocations {
			if b.CIDR == cidr && a.Handle != "" {
				assignments = append(assignments, calico.Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence})
			}
		}
	}
	if len(assignments) > 0 {
		switch i := rapid.IntRange(0, len(assignments)-1).Draw(t, "which"); rapid.IntRange(0, 5).Draw(t, "how wrong") {
		case 0:
			assignments[i].Sequence++
		case 1:
			assignments[i].Handle = "another"
		case 2:
			assignments = append(assignments, assignments[i])
		case 3:
			assignments[i].Address = cidr.Addr().Prev()
		}
	}
	return doubleWrite{fmt.Sprintf("ReleaseAddresses %s %v", cidr, assignments), func(to Datastore, revision func(int64) int64) error {
		return to.ReleaseAddresses(d.t.Context(), guard(revision), cidr, assignments)
	}}
}

// drawLeftovers draws the removal of what is left of pods on a host, endpoints or addresses of one block.
func (d *double) drawLeftovers(t *rapid.T, host string, guard func(func(int64) int64) calico.Guard) doubleWrite {
	found := must.Get(d.model.PodHoldings(d.t.Context(), d.x.u.etcd.revision, d.alive)).Or(t)
	var leftovers []calico.Leftover
	for _, l := range found.Leftovers {
		if first := len(leftovers) == 0; l.Host == host && (first || l.Block == leftovers[0].Block) && rapid.IntRange(0, 2).Draw(t, "this one") > 0 {
			leftovers = append(leftovers, l)
		}
	}
	if len(leftovers) > 0 {
		switch l := &leftovers[0]; {
		case l.Endpoint.Name != "":
			l.Endpoint.Revision = d.wrong(t, l.Endpoint.Revision)
		case rapid.IntRange(0, 5).Draw(t, "wrong assignment") == 0:
			l.Sequence++
		}
	}
	return doubleWrite{fmt.Sprintf("RemoveLeftovers %v", leftovers), func(to Datastore, revision func(int64) int64) error {
		translated := slices.Clone(leftovers)
		for i := range translated {
			translated[i].Endpoint.Revision = revision(translated[i].Endpoint.Revision)
		}
		return to.(LeftoverStore).RemoveLeftovers(d.t.Context(), guard(revision), translated)
	}}
}

func (d *double) drawAffinity(t *rapid.T, host string, seen calico.Host, guard func(func(int64) int64) calico.Guard) doubleWrite {
	cidr := rapid.SampledFrom(d.x.u.pool).Draw(t, "block")
	if len(seen.Affinities) > 0 {
		cidr = rapid.SampledFrom(seen.Affinities).Draw(t, "affinity").CIDR
	}
	_, affinity := d.x.u.etcd.get(modelAffinityKey(host, cidr))
	affinity = d.wrong(t, affinity)
	value, _ := d.x.u.etcd.get(modelBlockKey(cidr))
	block, _ := value.(modelBlock)
	deleteBlock := (block.AffineTo == host) != (rapid.IntRange(0, 5).Draw(t, "wrong way") == 0)
	return doubleWrite{fmt.Sprintf("DeleteAffinity %s %t", cidr, deleteBlock), func(to Datastore, revision func(int64) int64) error {
		return to.DeleteAffinity(d.t.Context(), guard(revision), cidr, revision(affinity), deleteBlock)
	}}
}

// realValue is a value as Calico writes it.
func realValue(key string, value any) string {
	var written any
	name := key[strings.LastIndex(key, "/")+1:]
	switch v := value.(type) {
	case modelGarbage:
		return "{" + strings.Join(v.Hosts, " ")
	case modelNode:
		node := &libapiv3.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(v.UID), Annotations: v.Annotations}}
		for _, ref := range v.OrchRefs {
			node.Spec.OrchRefs = append(node.Spec.OrchRefs, libapiv3.OrchRef{NodeName: ref.NodeName, Orchestrator: ref.Orchestrator})
		}
		written = node
	case modelEndpoint:
		written = &libapiv3.WorkloadEndpoint{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Spec:       libapiv3.WorkloadEndpointSpec{Node: v.Node, Orchestrator: v.Orchestrator, Pod: v.Pod, ContainerID: modelContainer(v.Handle)},
		}
	case modelAffinity:
		written = &model.BlockAffinity{State: model.BlockAffinityState(v.State)}
	case modelHandle:
		blocks := map[string]int{}
		for cidr, n := range v.Blocks {
			blocks[cidr.String()] = n
		}
		written = &model.IPAMHandle{HandleID: name, Block: blocks}
	case modelResource:
		written = realResource(name, v)
	case modelClusterInformation:
		written = &apiv3.ClusterInformation{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: v.Annotations}, Spec: apiv3.ClusterInformationSpec{DatastoreReady: &v.Ready},
		}
	case modelBlock:
		written = realBlock(v)
	}
	text, err := json.Marshal(written)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func realResource(name string, v modelResource) any {
	if v.Kind == "FelixConfiguration" {
		return &apiv3.FelixConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv3.FelixConfigurationSpec{DefaultEndpointToHostAction: "Return"},
		}
	}
	h := &apiv3.HostEndpoint{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv3.HostEndpointSpec{Node: v.Host}}
	if v.Automatic {
		h.Labels = map[string]string{"projectcalico.org/created-by": "calico-kube-controllers"}
	}
	return h
}

func realBlock(v modelBlock) *model.AllocationBlock {
	affinity := "host:" + v.AffineTo
	if strings.HasPrefix(v.AffineTo, "virtual:") {
		affinity = v.AffineTo
	}
	b := &model.AllocationBlock{
		CIDR: cnet.MustParseCIDR(v.CIDR.String()), Affinity: &affinity, SequenceNumber: v.Sequence, SequenceNumberForAllocation: map[string]uint64{},
		Unallocated: []int{}, Attributes: []model.AllocationAttribute{},
	}
	ordinal := 0
	for address := v.CIDR.Addr(); v.CIDR.Contains(address); address = address.Next() {
		if a, taken := v.Assigned[address]; taken {
			index := len(b.Attributes)
			attribute := model.AllocationAttribute{AttrSecondary: map[string]string{}}
			if a.Handle != "" {
				attribute.AttrPrimary = &a.Handle
			}
			maps.Copy(attribute.AttrSecondary, realAttributes(a))
			b.Attributes = append(b.Attributes, attribute)
			b.Allocations = append(b.Allocations, &index)
			b.SequenceNumberForAllocation[fmt.Sprint(ordinal)] = a.Sequence
		} else {
			b.Allocations = append(b.Allocations, nil)
			b.Unallocated = append(b.Unallocated, ordinal)
		}
		ordinal++
	}
	return b
}

func realAttributes(a modelAssignment) map[string]string {
	out := map[string]string{}
	if a.Host != "" {
		out[model.IPAMBlockAttributeNode] = a.Host
	}
	switch a.Of {
	case "pod":
		out[model.IPAMBlockAttributeNamespace], out[model.IPAMBlockAttributePod] = "ns", modelPodOf(a)
	case "tunnel":
		out[model.IPAMBlockAttributeType] = model.IPAMBlockAttributeTypeIPIP
	}
	return out
}
