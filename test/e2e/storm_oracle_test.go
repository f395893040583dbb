// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// youngestLeftover is how long a pod must be gone before anything of it may go from a machine that lives (nodesync.DefaultConfig).
const youngestLeftover = 15 * time.Minute

// truth is what the test knows of its machines and pods, in revisions of Calico's etcd: since they live, and until when. It is written before
// what ends a life and after what begins one, so that no removal that was right is called wrong.
type truth struct {
	mu    sync.Mutex
	hosts map[string][]*life
	// pods are by their IPAM handles and, as they are never used twice, by their names.
	pods map[string]*podLife
	// clock is when which revision was there.
	clock []tick
}

// life is one life of a machine under one name.
type life struct {
	// from is before calico-node began to start, started when it had, until before the Kubernetes Node was deleted; 0 for not yet.
	from, started, until int64
	began                time.Time
	// rewritten is the revision at which calico-node wrote its Node, as the history says: the machine lives from there on. What a controller had
	// under way may arrive before, and never after.
	rewritten int64
}

// podLife is the life of one pod: from is when it had its address, until is before it or its machine went.
type podLife struct {
	from, until int64
	// taken is before the CNI plugin was asked to release what the pod had, 0 if it was not.
	taken int64
	gone  time.Time
}

type tick struct {
	revision int64
	at       time.Time
}

func newTruth() *truth { return &truth{hosts: map[string][]*life{}, pods: map[string]*podLife{}} }

// with changes the truth.
func (tr *truth) with(change func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	change()
}

// born notes a machine whose Kubernetes Node is there and whose calico-node begins to start.
func (tr *truth) born(host string, revision int64) *life {
	l := &life{from: revision, began: time.Now()}
	tr.with(func() { tr.hosts[host] = append(tr.hosts[host], l) })
	return l
}

// livesAt returns the life of a machine at a revision, nil for none.
func (tr *truth) livesAt(host string, revision int64) *life {
	for _, l := range tr.hosts[host] {
		if l.rewritten != 0 && revision > l.rewritten && (l.until == 0 || revision <= l.until) {
			return l
		}
	}
	return nil
}

// alive are the names under which machines live now, gone those under which machines lived that are gone.
func (tr *truth) alive() (alive, gone []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(tr.hosts)) {
		if lives := tr.hosts[host]; lives[len(lives)-1].until == 0 {
			alive = append(alive, host)
		} else {
			gone = append(gone, host)
		}
	}
	return alive, gone
}

// at is when a revision was there at the latest.
func (tr *truth) at(revision int64) time.Time {
	i, _ := slices.BinarySearchFunc(tr.clock, revision, func(t tick, r int64) int { return cmp.Compare(t.revision, r) })
	if i == len(tr.clock) {
		return time.Now()
	}
	return tr.clock[i].at
}

// oracle reads the whole history of Calico's etcd and says what was wrong in it.
type oracle struct {
	truth      *truth
	violations []string
	writes     int
	// removed are the keys that were deleted of machines that were gone, leftovers what went of pods that were gone, on machines that lived.
	removed, leftovers int
}

// judge reads all changes after a revision up to that of the last key, which the test has written to end with.
func (o *oracle) judge(ctx context.Context, client *clientv3.Client, after int64, last string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.truth.mu.Lock()
	defer o.truth.mu.Unlock()
	for answer := range client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(after+1), clientv3.WithPrevKV()) {
		if err := answer.Err(); err != nil {
			return fmt.Errorf("the history is cut off: %w", err)
		}
		for _, event := range answer.Events {
			if string(event.Kv.Key) == last {
				return nil
			}
			if strings.HasPrefix(string(event.Kv.Key), "/calico/") {
				o.writes++
				o.event(event)
			}
		}
	}
	return fmt.Errorf("the history ended early: %w", ctx.Err())
}

func (o *oracle) violate(event *clientv3.Event, format string, args ...any) {
	o.violations = append(o.violations, fmt.Sprintf("revision %d, %s %s: ", event.Kv.ModRevision, event.Type, event.Kv.Key)+fmt.Sprintf(format, args...))
}

// calicoValue is what the oracle reads of values: one form for all kinds.
type calicoValue struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Node string `json:"node"`
		Pod  string `json:"pod"`
	} `json:"spec"`
	State       string  `json:"state"`
	Affinity    *string `json:"affinity"`
	Allocations []*int  `json:"allocations"`
	Attributes  []struct {
		Handle    string            `json:"handle_id"`
		Secondary map[string]string `json:"secondary"`
	} `json:"attributes"`
}

func parseCalico(data []byte) calicoValue {
	var value calicoValue
	_ = json.Unmarshal(data, &value) // nothing but the product, libcalico-go and this test write here
	return value
}

// event judges one change.
func (o *oracle) event(event *clientv3.Event) {
	var before, after calicoValue
	if event.PrevKv != nil {
		before = parseCalico(event.PrevKv.Value)
	}
	if event.Type != clientv3.EventTypeDelete {
		after = parseCalico(event.Kv.Value)
	}
	if resource, ok := strings.CutPrefix(string(event.Kv.Key), "/calico/resources/v3/projectcalico.org/"); ok {
		kind, name, _ := strings.Cut(resource, "/")
		o.resource(event, kind, name, before, after)
		return
	}
	o.ipam(event, before, after)
}

// resource judges a change of one of Calico's resources.
func (o *oracle) resource(event *clientv3.Event, kind, name string, before, after calicoValue) {
	deleted := event.Type == clientv3.EventTypeDelete
	switch {
	case kind == "nodes" && !deleted:
		o.rewritten(name, event.Kv.ModRevision, before, after)
	case !deleted:
	case kind == "nodes":
		o.ofHost(event, name)
	case kind == "workloadendpoints":
		o.ofPod(event, before.Spec.Node, before.Spec.Pod, "the endpoint")
	case kind == "felixconfigurations" && strings.HasPrefix(name, "node."):
		o.ofHost(event, strings.TrimPrefix(name, "node."))
	case kind == "hostendpoints" || kind == "bgppeers":
		o.ofHost(event, before.Spec.Node)
	default:
		o.violate(event, "nobody may delete it")
	}
}

// ipam judges a change of blocks, affinities and handles.
func (o *oracle) ipam(event *clientv3.Event, before, after calicoValue) {
	rest := strings.TrimPrefix(string(event.Kv.Key), ipamPrefix)
	area, name, _ := strings.Cut(rest, "/")
	switch {
	case area == "assignment":
		o.block(event, before, after)
	case event.Type != clientv3.EventTypeDelete:
	case area == "host":
		// libcalico-go itself withdraws a claim that it has not confirmed.
		if host, _, _ := strings.Cut(name, "/"); before.State == "confirmed" {
			o.ofHost(event, host)
		}
	case area == "handle":
		if o.truth.pods[name] != nil {
			o.ofPod(event, "", name, "the handle")
		}
	default:
		o.violate(event, "nobody may delete it")
	}
}

// rewritten notes when calico-node has written its Node. A controller changes nothing but the fence.
func (o *oracle) rewritten(host string, revision int64, before, after calicoValue) {
	if before.Metadata.Annotations[nodesync.FenceAnnotation] != after.Metadata.Annotations[nodesync.FenceAnnotation] {
		return
	}
	for _, l := range o.truth.hosts[host] {
		if l.rewritten == 0 && revision > l.from && (l.started == 0 || revision <= l.started) {
			l.rewritten = revision
		}
	}
}

// ofHost judges the removal of something that is the machine's own.
func (o *oracle) ofHost(event *clientv3.Event, host string) {
	if o.truth.livesAt(host, event.Kv.ModRevision) != nil {
		o.violate(event, "%s lives", host)
		return
	}
	o.removed++
}

// ofPod judges the removal of something that is a pod's, by its handle or its name. Without a host it is not known on which machine the pod was.
func (o *oracle) ofPod(event *clientv3.Event, host, pod, what string) {
	revision := event.Kv.ModRevision
	p := o.truth.pods[pod]
	switch {
	case p != nil && p.from != 0 && revision > p.from && (p.until == 0 || revision <= p.until):
		o.violate(event, "%s of a pod that lives (%s)", what, pod)
		return
	case p == nil || p.from == 0 || p.taken != 0 && revision > p.taken || host == "":
		return // it never came to be, the CNI plugin took it down, or it is judged with the address
	}
	l := o.truth.livesAt(host, revision)
	if l == nil {
		o.removed++
		return
	}
	since := p.gone
	if l.began.After(since) {
		since = l.began
	}
	if age := o.truth.at(revision).Sub(since); age < youngestLeftover {
		o.violate(event, "%s of pod %s, which is gone for %s only, on %s, which lives", what, pod, age.Round(time.Second), host)
		return
	}
	o.leftovers++
}

// allocation is whose an address is.
type allocation struct{ handle, node, kind string }

func (v calicoValue) assigned() map[int]allocation {
	out := map[int]allocation{}
	for ordinal, index := range v.Allocations {
		if index != nil && *index < len(v.Attributes) {
			a := v.Attributes[*index]
			out[ordinal] = allocation{handle: a.Handle, node: a.Secondary["node"], kind: a.Secondary["type"]}
		}
	}
	return out
}

// block judges what a block lost.
func (o *oracle) block(event *clientv3.Event, before, after calicoValue) {
	revision, left := event.Kv.ModRevision, after.assigned()
	for ordinal, was := range before.assigned() {
		if left[ordinal] == was {
			continue
		}
		what := fmt.Sprintf("address %d", ordinal)
		if was.kind == "" {
			o.ofPod(event, was.node, was.handle, what)
			continue
		}
		// calico-node itself may change the addresses of its tunnels until it has started.
		if l := o.truth.livesAt(was.node, revision); l != nil && l.started != 0 && revision > l.started {
			o.violate(event, "%s, the %s of %s, which lives", what, was.kind, was.node)
		}
	}
	if event.Type == clientv3.EventTypeDelete && before.Affinity != nil {
		o.ofHost(event, strings.TrimPrefix(*before.Affinity, "host:"))
	}
}
