// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// cluster is an API server and Calico's datastore, in which one of the two writers works.
type cluster struct {
	t       *testing.T
	history history
	api     *controlplane.Cluster
	etcd    *testkit.Etcd // nil with the kubernetes datastore
	// simulated is where agents write, the calico-nodes of the hosts.
	simulated *caliconode.Datastore
	agents    map[string]*caliconode.Agent
	// plugin writes, or the simulator if it is nil.
	plugin *plugin
	// began has the first sequence number that was seen of each block.
	began map[string]int64
	// seen is the revision of etcd up to which writes has returned all.
	seen int64
}

// newCluster makes what stands in a cluster before its first pod, by the simulator. calico-node's own writes are not compared.
func newCluster(t *testing.T, h history, api *controlplane.Cluster, etcd *testkit.Etcd, real bool) *cluster {
	t.Helper()
	c := &cluster{t: t, history: h, api: api, etcd: etcd, agents: map[string]*caliconode.Agent{}, began: map[string]int64{}}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, api.Kubeconfig
	config.Spec.K8sClientQPS = 1000 // 5 by default, which would make most of the test's time
	datastore := map[string]any{"datastore_type": "kubernetes"}
	if etcd != nil {
		config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, etcd.Endpoint
		datastore = map[string]any{"datastore_type": "etcdv3", "etcd_endpoints": etcd.Endpoint}
	}
	if real {
		c.plugin = newPlugin(t, api.Kubeconfig, datastore)
	}
	t.Cleanup(c.clear)
	var err error
	c.simulated, err = caliconode.Connect(*config)
	c.must(err)
	t.Cleanup(func() { _ = c.simulated.Close() })
	c.must(c.simulated.InitializeWith(t.Context(), h.pools...))
	core := api.Client.CoreV1()
	_, err = core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	c.mustOrExist(err)
	_, err = core.ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "till"}}, metav1.CreateOptions{})
	c.mustOrExist(err)
	for _, host := range h.hosts {
		c.join(host)
	}
	if etcd != nil {
		c.seen = etcd.Revision(t)
	}
	return c
}

// join adds a host, whose calico-node is simulated.
func (c *cluster) join(host caliconode.Host) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host.Name}}
	_, err := c.api.Client.CoreV1().Nodes().Create(c.t.Context(), node, metav1.CreateOptions{})
	c.mustOrExist(err)
	c.agents[host.Name], err = c.simulated.Start(c.t.Context(), host)
	c.must(err)
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) mustOrExist(err error) {
	c.t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		c.must(err)
	}
}

// do does one step.
func (c *cluster) do(s step) {
	c.t.Helper()
	pod, err := c.api.Client.CoreV1().Pods(namespace).Get(c.t.Context(), s.pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = object(s.pod, s.host), nil
		if s.deed != del {
			pod, err = c.api.Client.CoreV1().Pods(namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
		}
	}
	c.must(err)
	pod = inSandbox(pod, s.sandbox)
	if c.plugin == nil {
		err = c.simulate(s, pod)
	} else {
		err = c.call(s, pod)
	}
	if s.refused {
		if err == nil {
			err = errors.New("it was not refused")
		} else {
			err = nil
		}
	}
	if err != nil {
		c.t.Fatalf("%s: %v", s, err)
	}
}

func (c *cluster) simulate(s step, pod *corev1.Pod) error {
	agent := c.agents[s.host]
	network := agent.PodNetwork()
	switch s.deed {
	case add:
		_, err := network.Add(c.t.Context(), pod)
		return err
	case borrow:
		_, err := agent.BorrowAddress(c.t.Context(), pod, c.agents["east"])
		return err
	case del:
		return network.Del(c.t.Context(), pod)
	case remove:
		return c.remove(s.pod)
	case lose:
	}
	return nil
}

// remove deletes a pod from Kubernetes. The API server may be that of both writers, and the pod be gone.
func (c *cluster) remove(pod string) error {
	now := int64(0)
	err := c.api.Client.CoreV1().Pods(namespace).Delete(c.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *cluster) call(s step, pod *corev1.Pod) error {
	call := func(command deed) error {
		return c.plugin.call(c.t.Context(), string(command), c.agents[s.host].Host(), c.history.ipam, pod, sandbox(pod))
	}
	switch s.deed {
	case add, borrow:
		openSandbox(c.t, pod)
		return call(add)
	case del:
		return call(del)
	case remove:
		return c.remove(s.pod)
	case lose:
		closeSandbox(c.t, pod)
	}
	return nil
}

// clear deletes all that a history leaves in an API server.
func (c *cluster) clear() {
	c.t.Helper()
	ctx, now, client := context.WithoutCancel(c.t.Context()), int64(0), dynamic.NewForConfigOrDie(c.api.Config)
	state := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"} // calico-node-sync's
	for _, kind := range append(kinds(c.t), state) {
		var of dynamic.ResourceInterface = client.Resource(kind)
		if kind.Resource == "pods" || kind == state {
			of = client.Resource(kind).Namespace(namespace)
		}
		err := of.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
			c.t.Errorf("clearing %s: %v", kind.Resource, err)
		}
	}
}
