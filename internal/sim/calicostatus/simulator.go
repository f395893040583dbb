// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Options say how the nodes behave.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Etcd is Calico's client of its etcdv3 datastore, from which everything is read then, and to which statuses are written; nil for the API server.
	Etcd clientv3.Interface
	// Group is the API group of Calico's kinds: crd.projectcalico.org/v1 if empty.
	Group schema.GroupVersion
	// Up is how long a session takes from the change that makes or restarts it until it is Established.
	Up time.Duration
	// Answer is how long a node takes to fill in a new CalicoNodeStatus, and how often it looks again, whatever period the object asks for.
	Answer time.Duration
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Write stores a filled in status; if nil, an update of the object does. Tests give libcalico-go's client, which calico-node uses.
	Write func(ctx context.Context, status *apiv3.CalicoNodeStatus) error
}

// Change is a change of a role or of the mesh, as the simulator saw it.
type Change struct {
	// What is "promote", "demote", "mesh on" or "mesh off".
	What string
	// Node is whose role changed.
	Node string
	// Unsettled counts the sessions of reflectors, that of the node itself not counted, that were not Established at that moment.
	Unsettled int
	// Reflectors is how many nodes had a cluster ID after it, MeshOn whether there was a mesh.
	Reflectors int
	MeshOn     bool
}

// Simulator plays calico-node. Stop it by ending the context it was started with, then [Simulator.Wait].
type Simulator struct {
	options Options
	client  dynamic.Interface
	done    chan struct{}

	mu       sync.Mutex // guards what follows
	net      network
	statuses map[string]*report
	silent   map[string]bool
	changes  []Change
	written  int
}

// report is a CalicoNodeStatus to be filled in.
type report struct {
	object *apiv3.CalicoNodeStatus
	due    time.Time
}

// tick is how often the simulator looks what is due.
const tick = 20 * time.Millisecond

// Start starts to watch and to answer. It returns when everything that there is has been read.
func Start(ctx context.Context, o Options) (*Simulator, error) {
	if o.Group.Empty() {
		o.Group = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Simulator{
		options: o, done: make(chan struct{}), net: newNetwork(), statuses: map[string]*report{}, silent: map[string]bool{},
	}
	begin := s.watch
	if o.Etcd != nil {
		begin = s.follow
	}
	if err := begin(ctx); err != nil {
		return nil, err
	}
	go s.run(ctx)
	return s, nil
}

// Wait waits until the simulator has stopped.
func (s *Simulator) Wait() { <-s.done }

// Silence makes a node fill in nothing any more, as one whose calico-node is dead, or lets it speak again.
func (s *Simulator) Silence(node string, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[node] = silent
}

// Cut makes the session between two nodes never come up, or lets it.
func (s *Simulator) Cut(a, b string, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.net.cut[pairOf(a, b)] = cut
}

// Withhold makes the routes of a node go to nobody by way of reflectors, as an import filter there does, or lets them.
func (s *Simulator) Withhold(node string, withheld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.net.withheld[node] = withheld
}

// Changes are the changes of roles and of the mesh so far.
func (s *Simulator) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Change(nil), s.changes...)
}

// Unsettled counts the sessions of reflectors that are not Established now.
func (s *Simulator) Unsettled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.net.unsettled("", s.options.Clock.Now(), s.options.Up)
}

// Written counts the statuses written so far.
func (s *Simulator) Written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

func (s *Simulator) watch(ctx context.Context) error {
	var err error
	if s.client, err = dynamic.NewForConfig(s.options.Config); err != nil {
		return fmt.Errorf("making a client for the simulator: %w", err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.client, 0)
	calico := s.options.Group
	for resource, see := range map[schema.GroupVersionResource]func(u *unstructured.Unstructured, gone bool) error{
		{Version: "v1", Resource: "nodes"}:        s.seeNode,
		calico.WithResource("bgppeers"):           s.seePeer,
		calico.WithResource("bgpconfigurations"):  s.seeConfiguration,
		calico.WithResource("caliconodestatuses"): s.seeStatus,
	} {
		handle := func(object any, gone bool) {
			if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = d.Obj
			}
			if u, ok := object.(*unstructured.Unstructured); ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				_ = see(u, gone) // what cannot be read, calico-node would pass over as well
			}
		}
		_, err := factory.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { handle(o, false) },
			UpdateFunc: func(_, o any) { handle(o, false) },
			DeleteFunc: func(o any) { handle(o, true) },
		})
		if err != nil {
			return fmt.Errorf("watching %s: %w", resource.Resource, err)
		}
	}
	factory.Start(ctx.Done())
	for resource, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("watching %s: stopped before the first list", resource.Resource)
		}
	}
	return nil
}

func (s *Simulator) seeNode(u *unstructured.Unstructured, gone bool) error {
	before, known := s.net.nodes[u.GetName()]
	id := ""
	if known {
		id = before.id
	}
	var now string
	if !gone {
		now = clusterID(u.GetAnnotations())
	}
	if known && id != now {
		s.change(map[bool]string{true: "promote", false: "demote"}[now != ""], u.GetName())
	}
	s.net.setNode(u, gone, s.options.Clock.Now())
	s.count()
	return nil
}

func (s *Simulator) seePeer(u *unstructured.Unstructured, gone bool) error {
	var p apiv3.BGPPeer
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
		return err
	}
	return s.net.setPeer(&p, gone, s.options.Clock.Now())
}

func (s *Simulator) seeConfiguration(u *unstructured.Unstructured, gone bool) error {
	if u.GetName() != "default" {
		return nil
	}
	on, found, err := unstructured.NestedBool(u.Object, "spec", "nodeToNodeMeshEnabled")
	if err != nil {
		return err
	}
	on = gone || !found || on
	if on != s.net.mesh {
		s.change(map[bool]string{true: "mesh on", false: "mesh off"}[on], "")
		s.net.mesh, s.net.meshAt = on, s.options.Clock.Now()
		s.count()
	}
	return nil
}

// change notes a change before it takes effect.
func (s *Simulator) change(what, node string) {
	s.changes = append(s.changes, Change{What: what, Node: node, Unsettled: s.net.unsettled(node, s.options.Clock.Now(), s.options.Up)})
}

// count completes the last change.
func (s *Simulator) count() {
	if len(s.changes) == 0 {
		return
	}
	last := &s.changes[len(s.changes)-1]
	last.Reflectors, last.MeshOn = 0, s.net.mesh
	for _, n := range s.net.nodes {
		if n.id != "" {
			last.Reflectors++
		}
	}
}

func (s *Simulator) seeStatus(u *unstructured.Unstructured, gone bool) error {
	if gone {
		delete(s.statuses, u.GetName())
		return nil
	}
	var object apiv3.CalicoNodeStatus
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	r := s.statuses[object.Name]
	if r == nil || r.object.UID != object.UID {
		r = &report{due: s.options.Clock.Now().Add(s.options.Answer)}
		s.statuses[object.Name] = r
	}
	r.object = &object
	return nil
}

func (s *Simulator) run(ctx context.Context) {
	defer close(s.done)
	ticker := s.options.Clock.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, status := range s.filled() {
			// A conflict is met again with the next period, as by calico-node.
			if err := s.write(ctx, status); err == nil {
				s.mu.Lock()
				s.written++
				s.mu.Unlock()
			}
		}
	}
}

// filled returns the statuses that are due and have changed.
func (s *Simulator) filled() []*apiv3.CalicoNodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Clock.Now()
	var out []*apiv3.CalicoNodeStatus
	for _, r := range s.statuses {
		if now.Before(r.due) || s.silent[r.object.Spec.Node] {
			continue
		}
		node, known := s.net.nodes[r.object.Spec.Node]
		if !known {
			continue
		}
		r.due = now.Add(s.options.Answer)
		is := apiv3.CalicoNodeStatusStatus{LastUpdated: r.object.Status.LastUpdated, BGP: s.net.status(node, now, s.options.Up)}
		if slices.Contains(r.object.Spec.Classes, apiv3.NodeStatusClassTypeRoutes) {
			is.Routes = s.net.routes(node, now, s.options.Up)
		}
		if !is.LastUpdated.IsZero() && reflect.DeepEqual(is, r.object.Status) {
			continue
		}
		status := r.object.DeepCopy()
		status.Status, status.Status.LastUpdated = is, metav1.NewTime(now)
		out = append(out, status)
	}
	return out
}

func (s *Simulator) write(ctx context.Context, status *apiv3.CalicoNodeStatus) error {
	if s.options.Write != nil {
		return s.options.Write(ctx, status)
	}
	if s.options.Etcd != nil {
		return update(ctx, s.options.Etcd, status)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(s.options.Group.WithKind(apiv3.KindCalicoNodeStatus))
	_, err = s.client.Resource(s.options.Group.WithResource("caliconodestatuses")).Update(ctx, u, metav1.UpdateOptions{})
	return err
}
