// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
)

// lag is how long an event waits for earlier ones of other kinds, since each kind has a stream of its own.
const lag = 300 * time.Millisecond

// watcher follows all kinds that the operator writes, from before the first write, and keeps the ledger.
type watcher struct {
	begun time.Time
	tell  func(at time.Duration, line string)

	mu      sync.Mutex // guards what follows
	waiting []observation
	ledger  *ledger
	err     error
}

// follow reads what is there, and from then on every event, until ctx ends.
func follow(ctx context.Context, c *cluster, tell func(at time.Duration, line string)) (*watcher, error) {
	w := &watcher{begun: time.Now(), tell: tell, ledger: newLedger(topologyName)}
	for _, list := range []client.ObjectList{
		&v1alpha1.RouteReflectorTopologyList{}, &corev1.NodeList{}, &calicov3.BGPPeerList{}, &calicov3.BGPConfigurationList{}, &calicov3.CalicoNodeStatusList{},
	} {
		if err := w.stream(ctx, c, list); err != nil {
			return nil, fmt.Errorf("watching %T: %w", list, err)
		}
	}
	go w.settle(ctx)
	return w, nil
}

func (w *watcher) stream(ctx context.Context, c *cluster, list client.ObjectList) error {
	if err := c.List(ctx, list); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		w.enter(item, false, true)
	}
	// The watch goes on from the list, so that nothing is missed between the two.
	stream, err := c.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	go func() {
		defer stream.Stop()
		for event := range stream.ResultChan() {
			if event.Type != watch.Bookmark && event.Type != watch.Error {
				w.enter(event.Object, event.Type == watch.Deleted, false)
			}
		}
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("the watch of %T ended early, and changes may have been missed", list))
		}
	}()
	return nil
}

func (w *watcher) enter(object runtime.Object, deleted, initial bool) {
	o, ok := object.(client.Object)
	if !ok {
		return
	}
	fields := o.GetManagedFields()
	calico.NormalizeBGP(o)
	o.SetManagedFields(fields)
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = cmp.Or(w.err, fmt.Errorf("%T %s: resourceVersion %q is not a number, so that events have no order", o, o.GetName(), o.GetResourceVersion()))
	}
	w.waiting = append(w.waiting, observation{at: time.Since(w.begun), version: version, object: o, deleted: deleted, initial: initial})
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
}

// settle takes events into the ledger once none that came before them can be on its way.
func (w *watcher) settle(ctx context.Context) {
	ticker := time.NewTicker(lag / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.take(lag)
		}
	}
}

// take takes in the events that have waited for that long, in order.
func (w *watcher) take(waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.begun)
	var ready, rest []observation
	for _, o := range w.waiting {
		if o.initial || now-o.at >= waited {
			ready = append(ready, o)
		} else {
			rest = append(rest, o)
		}
	}
	w.waiting = rest
	slices.SortStableFunc(ready, func(a, b observation) int { return cmp.Compare(a.version, b.version) })
	for _, o := range ready {
		for _, line := range w.ledger.take(o) {
			w.tell(o.at, line)
		}
	}
}

// restart lets time begin now, and forgets what was before.
func (w *watcher) restart() {
	w.take(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun, w.ledger.changes = time.Now(), nil
}

// mark begins to note writes.
func (w *watcher) mark() {
	w.take(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.mark()
}

// soFar returns what has happened.
func (w *watcher) soFar() (changes []Change, writes []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ledger.changes), slices.Clone(w.ledger.writes), w.err
}
