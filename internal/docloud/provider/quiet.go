// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"time"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// QuietNodes is an informer of Nodes that lists them and reports no change, for the framework's controller of Services.
//
// For each Node event that controller compares all Nodes for all Services, after each start once for each Node there is: with 5,000 Nodes and 50 load
// balancers one processor is busy for a quarter of an hour, and all of it ends in UpdateLoadBalancer, which here only notes that Nodes have changed. Package
// balancers watches them by itself.
func QuietNodes(nodes coreinformers.NodeInformer) coreinformers.NodeInformer {
	return quietNodes{nodes}
}

type quietNodes struct{ coreinformers.NodeInformer }

// Informer implements coreinformers.NodeInformer.
func (q quietNodes) Informer() cache.SharedIndexInformer {
	return quietInformer{q.NodeInformer.Informer()}
}

type quietInformer struct{ cache.SharedIndexInformer }

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer: the handler is never called.
func (q quietInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return q.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, 0)
}
