// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
)

// defaultNamespaces are where the manifests install the components: the cloud component and etcd storage where their upstreams are, all others in their own.
func defaultNamespaces() []string {
	return []string{"mooring-system", metav1.NamespaceSystem, "kube-apiserver-storage"}
}

// NodeSync is what calico-node-sync calls itself in Events and in its journal.
const NodeSync = "calico-node-sync"

// eventSources are the kinds of objects that each recorder of Events speaks of: the components, and the controllers of k8s.io/cloud-provider that run in
// the cloud component under names of their own.
func eventSources() map[string][]string {
	return map[string][]string{
		NodeSync:                                {"Deployment", "Namespace", "Node"},
		"calico-route-reflector-operator":       {"RouteReflectorTopology", "Node", "Lease"},
		"digitalocean-cloud-controller-manager": {"Node", "Service", "Lease"},
		"etcd-storage-operator":                 {"EtcdStorage", "Lease"},
		"cloud-node-controller":                 {"Node"},
		"cloud-node-lifecycle-controller":       {"Node"},
		"service-controller":                    {"Service"},
	}
}

// SourceOf is the recorder that an Event names. Anybody who may write Events can name any.
func SourceOf(e *corev1.Event) string { return cmp.Or(e.ReportingController, e.Source.Component) }

// Trust is how far an Event can be believed.
type Trust int

const (
	// Foreign is an Event whose source is none: no component of ours is named, or it does not record Events about such objects.
	Foreign Trust = iota
	// unverified: it names a component, and is in a namespace in which others may write Events.
	unverified
	// Verified is an Event that can be believed: it names a component, and is signed by one (ADR 35) or is where nobody but
	// administrators and the components may write: in a namespace of Mooring's, or in the namespace default about an
	// object that has none (ADR 16).
	Verified
)

// EventKeys reads the keys that components sign Events with, of the Lease of the one that records Events in namespaces of
// others. Without them, whyever, such Events are unverified.
func (c *Cluster) EventKeys(ctx context.Context) (keys eventsign.Keys) {
	for _, namespace := range c.Namespaces {
		lease, err := c.Typed.CoordinationV1().Leases(namespace).Get(ctx, cloudLease, metav1.GetOptions{})
		if err == nil {
			keys = append(keys, eventsign.KeysOf(lease.Annotations)...)
		}
	}
	return keys
}

// cloudLease is the Lease of the cloud controller manager's leader (k8s.io/cloud-provider, options.NewCloudControllerManagerOptions).
const cloudLease = "cloud-controller-manager"

// TrustIn judges an Event. An Event proves nothing by its source, which is only text: its signature decides, or its
// namespace. keys are those of EventKeys, nil for none.
func (c *Cluster) TrustIn(e *corev1.Event, keys eventsign.Keys) Trust {
	kinds, known := eventSources()[SourceOf(e)]
	switch {
	case !known || !slices.Contains(kinds, e.InvolvedObject.Kind):
		return Foreign
	case slices.Contains(c.Namespaces, e.Namespace), e.Namespace == metav1.NamespaceDefault && e.InvolvedObject.Namespace == "",
		keys.Signed(e):
		return Verified
	}
	return unverified
}

// MooringEvents lists what may be believed: the Events of the components in their own namespaces, and those about objects without a namespace. It stops
// after most Events of a namespace; then whole is false.
func (c *Cluster) MooringEvents(ctx context.Context, most int) (list []corev1.Event, whole bool, err error) {
	whole = true
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(append([]string{metav1.NamespaceDefault}, c.Namespaces...)))) {
		events, all, err := c.Events(ctx, namespace, fields.Set{}, most)
		list, whole = append(list, events...), whole && all
		if err != nil {
			return nil, false, err
		}
	}
	return slices.DeleteFunc(list, func(e corev1.Event) bool { return c.TrustIn(&e, nil) != Verified }), whole, nil
}

// Events lists Events, of all namespaces if none is named. It stops after the page with which there are at least as many as most; whole says that
// there are no more. The API server has them in no order of time.
func (c *Cluster) Events(ctx context.Context, namespace string, selector fields.Set, most int) (list []corev1.Event, whole bool, err error) {
	options := metav1.ListOptions{Limit: Page, FieldSelector: selector.AsSelector().String()}
	for len(list) < most {
		page, err := c.Typed.CoreV1().Events(namespace).List(ctx, options)
		if err != nil {
			return list, false, fmt.Errorf("listing Events: %w", err)
		}
		list = append(list, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return list, true, nil
		}
	}
	return list, false, nil
}

// LastSeen is when an Event last happened, and how often it did, by whichever of its fields the writer's version of the API fills in.
func LastSeen(e *corev1.Event) (at time.Time, times int32) {
	moments := []time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time}
	times = e.Count
	if e.Series != nil {
		moments = append(moments, e.Series.LastObservedTime.Time)
		times = max(times, e.Series.Count)
	}
	return slices.MaxFunc(moments, time.Time.Compare), times
}

// FirstSeen is when an Event first happened.
func FirstSeen(e *corev1.Event) (at time.Time) {
	for _, moment := range []time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if at.IsZero() || !moment.IsZero() && moment.Before(at) {
			at = moment
		}
	}
	return at
}
