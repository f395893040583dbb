// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// endpoints say where the endpoints of Services are. They are watched from when the first Service asks: most clusters have none that does, and the
// upstream project's ClusterRole, which operators keep, may not read EndpointSlices.
type endpoints struct {
	changed func(key string)
	clock   clock.PassiveClock
	until   <-chan struct{} // set before the first pass

	mu      sync.Mutex // guards all below
	lister  discoverylisters.EndpointSliceLister
	synced  cache.InformerSynced
	asked   map[string]bool // Services that were asked for
	failure error
	failed  time.Time
}

// syncWithin bounds how long a pass waits for EndpointSlices when they are read for the first time; retryDenied is how long an error is remembered.
const (
	syncWithin  = 10 * time.Second
	retryDenied = time.Minute
)

// newEndpoints calls changed with the key of a Service that was asked for, when its endpoints have changed.
func newEndpoints(clock clock.PassiveClock, changed func(key string)) *endpoints {
	return &endpoints{changed: changed, clock: clock, asked: map[string]bool{}}
}

// forget is for a Service that is gone.
func (e *endpoints) forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, key)
}

// nodesOf returns the names of the Nodes where a Service has endpoints, ready or not.
func (e *endpoints) nodesOf(ctx context.Context, client kubernetes.Interface, service *corev1.Service) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if err := e.watch(ctx, client, keyOf(service)); err != nil {
		return nil, err
	}
	if !cache.WaitForCacheSync(ctx.Done(), e.synced) {
		return nil, fmt.Errorf("EndpointSlices have not been read within %s", syncWithin)
	}
	slices, err := e.lister.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		return nil, fmt.Errorf("reading EndpointSlices: %w", err)
	}
	return loadbalancer.EndpointNodes(slices), nil
}

// watch begins to watch EndpointSlices, if they may be read.
func (e *endpoints) watch(ctx context.Context, client kubernetes.Interface, key string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked[key] = true
	if e.lister != nil {
		return nil
	}
	if e.failure != nil && e.clock.Since(e.failed) < retryDenied {
		return e.failure
	}
	// An informer that may not read would say so in the log for ever, and to nobody else.
	if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		e.failure = fmt.Errorf("EndpointSlices could not be read, which takes the verbs list and watch in the program's ClusterRole: %w", err)
		e.failed = e.clock.Now()
		return e.failure
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Discovery().V1().EndpointSlices()
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: e.changes, UpdateFunc: func(_, after any) { e.changes(after) }, DeleteFunc: e.changes,
	})
	if err != nil {
		return fmt.Errorf("watching EndpointSlices: %w", err)
	}
	e.lister, e.synced, e.failure = informer.Lister(), informer.Informer().HasSynced, nil
	factory.Start(e.until)
	return nil
}

// changes asks for a pass over the Service of an EndpointSlice.
func (e *endpoints) changes(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
	e.mu.Lock()
	asked := e.asked[key]
	e.mu.Unlock()
	if asked {
		e.changed(key)
	}
}
