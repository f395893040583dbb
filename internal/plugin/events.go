// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// eventSources are the components that tell of what they do by Events, by the names in them.
func eventSources() []string {
	return []string{journalComponent, "calico-route-reflector-operator", "digitalocean-cloud-controller-manager", "etcd-storage-operator"}
}

// events lists Events, of all namespaces if none is named. It stops after the page with which there are at least as many as most; whole says that
// there are no more. The API server has them in no order of time.
func (c *cluster) events(ctx context.Context, namespace string, selector fields.Set, most int) (list []corev1.Event, whole bool, err error) {
	options := metav1.ListOptions{Limit: listPage, FieldSelector: selector.AsSelector().String()}
	for len(list) < most {
		page, err := c.typed.CoreV1().Events(namespace).List(ctx, options)
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

// lastSeen is when an Event last happened, and how often it did, by whichever of its fields the writer's version of the API fills in.
func lastSeen(e *corev1.Event) (at time.Time, times int32) {
	moments := []time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time}
	times = e.Count
	if e.Series != nil {
		moments = append(moments, e.Series.LastObservedTime.Time)
		times = max(times, e.Series.Count)
	}
	return slices.MaxFunc(moments, time.Time.Compare), times
}
