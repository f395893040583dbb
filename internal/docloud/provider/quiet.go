// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
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

// WakingNodes is an informer of Nodes for the framework's controller of Nodes. It reports a new Node that waits for its
// droplet again whenever the cloud has news of it: by itself that controller tries again after pauses that double up
// to a quarter of an hour.
func WakingNodes(nodes coreinformers.NodeInformer, cloud cloudprovider.Interface) coreinformers.NodeInformer {
	instances, _ := cloud.InstancesV2()
	waker, _ := instances.(interface {
		Again(again func(*corev1.Node))
	})
	return wakingNodes{nodes, waker.Again}
}

type wakingNodes struct {
	coreinformers.NodeInformer
	give func(again func(*corev1.Node))
}

// Informer implements coreinformers.NodeInformer.
func (w wakingNodes) Informer() cache.SharedIndexInformer {
	return wakingInformer{w.NodeInformer.Informer(), w.give}
}

type wakingInformer struct {
	cache.SharedIndexInformer
	give func(again func(*corev1.Node))
}

// AddEventHandler implements cache.SharedInformer: the handler is called for Nodes that wait as well.
func (w wakingInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	w.give(func(node *corev1.Node) { handler.OnUpdate(node, node) })
	return w.SharedIndexInformer.AddEventHandler(handler)
}
