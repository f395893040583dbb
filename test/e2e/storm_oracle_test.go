// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

const (
	// youngestLeftover is how long a pod must be gone before anything of it may go from a machine that lives. It is 15 minutes without a hidden flag
	// (nodesync.DefaultConfig), which no storm can wait for.
	youngestLeftover = 15 * time.Second
	// customPrefix begins the keys of Calico's kinds in the API server's etcd.
	customPrefix = "/registry/crd.projectcalico.org/"
	// handlePrefix begins the handles of pods, before the container ID.
	handlePrefix = "k8s-pod-network."
)

// truth is what the test knows of its machines and pods, in revisions of Calico's etcd: since they live, and until when. It is written before
// what ends a life and after what begins one, so that no removal that was right is called wrong.
type truth struct {
	mu    sync.Mutex
	hosts map[string][]*life
	// pods are by their IPAM handles, which are their sandboxes.
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

// podLife is the life of one sandbox of a pod: from is when it had its address, until is before it or its machine went.
type podLife struct {
	from, until int64
	// taken is before the CNI plugin was asked to release what the pod had, 0 if it was not.
	taken int64
	// gone is when the pod went or got another sandbox, lasts when the sandbox ends without its pod, if it does.
	gone, lasts time.Time
}

// end ends the sandbox, which may have been without its pod already.
func (p *podLife) end(revision int64) {
	p.until = revision
	if p.gone.IsZero() {
		p.gone = time.Now()
	}
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

// ended reports whether a handle is that of a sandbox that is gone.
func (tr *truth) ended(handle string) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	p := tr.pods[handle]
	return p != nil && (p.until != 0 || !p.lasts.IsZero() && time.Now().After(p.lasts))
}

// oracle reads the whole history of Calico's datastore and says what was wrong in it.
type oracle struct {
	truth      *truth
	kubernetes bool
	violations []string
	writes     int
	// removed are the keys that were deleted of machines that were gone, leftovers what went of pods that were gone, on machines that lived.
	removed, leftovers int
}

// judge reads all changes.
func (o *oracle) judge(before map[string][]byte, changes []change) {
	o.truth.mu.Lock()
	defer o.truth.mu.Unlock()
	if o.kubernetes { // no Calico Node is written: a machine lives when calico-node has started
		for _, lives := range o.truth.hosts {
			for _, l := range lives {
				l.rewritten = l.started
			}
		}
	}
	for i := range changes {
		c := &changes[i]
		o.writes++
		o.event(c, o.parse(before[c.key]), o.parse(c.value))
		before[c.key] = c.value
	}
}

func (o *oracle) violate(c *change, format string, args ...any) {
	o.violations = append(o.violations, fmt.Sprintf("revision %d, %s, deleted %t: ", c.revision, c.key, c.deleted())+fmt.Sprintf(format, args...))
}

// calicoValue is what the oracle reads of values: one form for all kinds.
type calicoValue struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Node        string `json:"node"`
		Pod         string `json:"pod"`
		ContainerID string `json:"containerID"`
		HandleID    string `json:"handleID"`
		ipamValue
	} `json:"spec"`
	ipamValue
}

// ipamValue is a block or an affinity: the value itself in etcd, its spec in Kubernetes.
type ipamValue struct {
	State       string  `json:"state"`
	Affinity    *string `json:"affinity"`
	Allocations []*int  `json:"allocations"`
	Attributes  []struct {
		Handle    string            `json:"handle_id"`
		Secondary map[string]string `json:"secondary"`
	} `json:"attributes"`
}

func (o *oracle) parse(data []byte) calicoValue {
	var value calicoValue
	_ = json.Unmarshal(data, &value) // nothing but the product, libcalico-go and this test write here
	if o.kubernetes {
		value.ipamValue = value.Spec.ipamValue
	}
	return value
}

// event judges one change.
func (o *oracle) event(c *change, before, after calicoValue) {
	if resource, ok := strings.CutPrefix(c.key, "/calico/resources/v3/projectcalico.org/"); ok {
		kind, name, _ := strings.Cut(resource, "/")
		o.resource(c, kind, name, before, after)
		return
	}
	if rest, ok := strings.CutPrefix(c.key, ipamPrefix); ok {
		area, name, _ := strings.Cut(rest, "/")
		host, _, _ := strings.Cut(name, "/")
		o.ipam(c, area, host, name, before, after)
		return
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(c.key, customPrefix), "/")
	switch kind {
	case "ipamblocks":
		o.ipam(c, "assignment", "", "", before, after)
	case "blockaffinities":
		o.ipam(c, "host", before.Spec.Node, "", before, after)
	case "ipamhandles":
		o.ipam(c, "handle", "", before.Spec.HandleID, before, after)
	default:
		o.resource(c, kind, name, before, after)
	}
}

// resource judges a change of one of Calico's resources.
func (o *oracle) resource(c *change, kind, name string, before, after calicoValue) {
	deleted := c.deleted()
	switch {
	case kind == "nodes" && !deleted:
		o.rewritten(name, c.revision, before, after)
	case !deleted:
	case kind == "nodes":
		o.ofHost(c, name)
	case kind == "workloadendpoints":
		o.ofPod(c, before.Spec.Node, handlePrefix+before.Spec.ContainerID, "the endpoint")
	case kind == "felixconfigurations" && strings.HasPrefix(name, "node."):
		o.ofHost(c, strings.TrimPrefix(name, "node."))
	case kind == "hostendpoints" || kind == "bgppeers":
		o.ofHost(c, before.Spec.Node)
	default:
		o.violate(c, "nobody may delete it")
	}
}

// ipam judges a change of blocks, affinities and handles.
func (o *oracle) ipam(c *change, area, host, handle string, before, after calicoValue) {
	switch {
	case area == "assignment":
		o.block(c, before, after)
	case area == "host":
		// libcalico-go itself withdraws a claim that it has not confirmed.
		if before.State == "confirmed" && after.State != "confirmed" {
			o.ofHost(c, host)
		}
	case !c.deleted():
	case area == "handle":
		if o.truth.pods[handle] != nil {
			o.ofPod(c, "", handle, "the handle")
		}
	default:
		o.violate(c, "nobody may delete it")
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
func (o *oracle) ofHost(c *change, host string) {
	if o.truth.livesAt(host, c.revision) != nil {
		o.violate(c, "%s lives", host)
		return
	}
	o.removed++
}

// ofPod judges the removal of something that is of a pod's sandbox, by its handle. Without a host it is not known on which machine the pod was.
func (o *oracle) ofPod(c *change, host, pod, what string) {
	revision := c.revision
	p := o.truth.pods[pod]
	switch {
	case p != nil && p.from != 0 && revision > p.from && (p.until == 0 || revision <= p.until) && (p.lasts.IsZero() || o.truth.at(revision).Before(p.lasts)):
		o.violate(c, "%s of a pod that lives (%s)", what, pod)
		return
	case p == nil || p.from == 0 || p.taken != 0 && revision > p.taken || host == "":
		return // it never came to be, the CNI plugin took it down, or it is judged with the address
	}
	l := o.truth.livesAt(host, revision)
	// Without a fence, what was under way when a machine came back still arrives.
	if l == nil || o.kubernetes && p.until != 0 && p.until <= l.from {
		o.removed++
		return
	}
	since := p.gone
	if l.began.After(since) {
		since = l.began
	}
	if age := o.truth.at(revision).Sub(since); age < youngestLeftover {
		o.violate(c, "%s of pod %s, which is gone for %s only, on %s, which lives", what, pod, age.Round(time.Second), host)
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
func (o *oracle) block(c *change, before, after calicoValue) {
	revision, left := c.revision, after.assigned()
	for ordinal, was := range before.assigned() {
		if left[ordinal] == was {
			continue
		}
		what := fmt.Sprintf("address %d", ordinal)
		if was.kind == "" {
			o.ofPod(c, was.node, was.handle, what)
			continue
		}
		// calico-node itself may change the addresses of its tunnels until it has started.
		if l := o.truth.livesAt(was.node, revision); l != nil && l.started != 0 && revision > l.started {
			o.violate(c, "%s, the %s of %s, which lives", what, was.kind, was.node)
		}
	}
	if c.deleted() && before.Affinity != nil {
		o.ofHost(c, strings.TrimPrefix(*before.Affinity, "host:"))
	}
}
