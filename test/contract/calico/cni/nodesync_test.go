// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	stays = "stays"
	goes  = "goes"
)

// dualStack is a host whose pods have an address of both families.
func dualStack(name string, last byte) caliconode.Host {
	h := host(name, last)
	v6 := netip.MustParseAddr("fd00:172::").As16()
	v6[15] = last
	h.AddressV6, h.DualStack = netip.AddrFrom16(v6), true
	return h
}

// TestNodeSyncCleansAfterThePlugin removes a machine whose pods Calico's CNI plugin has connected from Kubernetes. calico-node-sync must leave
// nothing of it, and of the machine that stays the same bytes and revisions as before the other one came.
func TestNodeSyncCleansAfterThePlugin(t *testing.T) {
	needNamespaces(t)
	for name, datastore := range map[string]func(t *testing.T) (*controlplane.Cluster, *testkit.Etcd){
		"etcd": func(t *testing.T) (*controlplane.Cluster, *testkit.Etcd) {
			return controlplane.Shared(t), testkit.NewEtcd(t)
		},
		"kubernetes": func(t *testing.T) (*controlplane.Cluster, *testkit.Etcd) {
			api := controlplane.Lend(t)
			api.InstallCalicoCRDs(t)
			return api, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			api, etcd := datastore(t)
			h := history{
				pools: []caliconode.Pool{{CIDR: "10.20.0.0/16", Encapsulation: caliconode.IPIP}, {CIDR: "fd00:30::/64"}},
				hosts: []caliconode.Host{dualStack(stays, 1)},
				ipam:  map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
			}
			c := newCluster(t, h, api, etcd, true)
			c.do(step{deed: add, host: stays, pod: "neighbor"})
			c.startNodeSync()
			before := c.exact()
			c.join(dualStack(goes, 2))
			for _, s := range []step{
				{deed: add, host: goes, pod: "cart-a"}, {deed: add, host: goes, pod: "cart-b"}, {deed: lose, host: goes, pod: "cart-b"},
				{deed: add, host: goes, pod: "cart-b", sandbox: 1}, {deed: add, host: goes, pod: "cart-c"}, {deed: lose, host: goes, pod: "cart-c"},
			} {
				c.do(s)
			}
			if came := len(c.exact()) - len(before); came < 10 {
				t.Fatalf("the machine that goes wrote %d keys, so nothing is shown", came)
			}
			c.leave(goes, "cart-a", "cart-b", "cart-c")
			testkit.Eventually(t, "the machine to be cleaned up", func() string { return mentions(c.exact(), goes) })
			if diff := cmp.Diff(before, c.exact()); diff != "" {
				t.Errorf("the datastore is not as it was before the machine came (-before +after):\n%s", diff)
			}
		})
	}
}

// TestNodeSyncReleasesWhatTheDeadBorrowed has the machine that goes borrow addresses of the one that stays, whose own must stay.
func TestNodeSyncReleasesWhatTheDeadBorrowed(t *testing.T) {
	needNamespaces(t)
	c := newCluster(t, history{
		pools: []caliconode.Pool{{CIDR: "10.30.0.0/29", BlockSize: 30}}, hosts: []caliconode.Host{bare(stays, 1), bare(goes, 2)},
		ipam: map[string]any{"type": "calico-ipam"},
	}, controlplane.Shared(t), testkit.NewEtcd(t), true)
	c.do(step{deed: add, host: stays, pod: "neighbor"})
	lent, pods := c.addresses("neighbor"), []string{}
	for i := range 6 {
		pods = append(pods, fmt.Sprintf("cart-%d", i))
		c.do(step{deed: add, host: goes, pod: pods[i]})
	}
	c.startNodeSync()
	c.leave(goes, pods...)
	testkit.Eventually(t, "the machine to be cleaned up", func() string { return mentions(c.exact(), goes) })
	if diff := cmp.Diff(lent, c.addresses("neighbor")); diff != "" || len(lent) != 3 {
		t.Errorf("what the other machine's pod has is not as it was (-before +after), or is not an endpoint, a handle and a block:\n%s%v", diff, lent)
	}
}

// startNodeSync starts the product on the cluster, and returns when it looks after it.
func (c *cluster) startNodeSync() {
	c.t.Helper()
	log, env := filepath.Join(c.t.TempDir(), "log"), []string{"DATASTORE_TYPE=kubernetes"}
	if c.etcd != nil {
		env = []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + c.etcd.Endpoint}
	}
	product := testkit.Start(c.t, log, env, testkit.Binary(c.t, "calico-node-sync"), "--kubeconfig="+c.api.Kubeconfig, "--leader-elect=false",
		"--leader-election-namespace="+namespace, "--grace-period=1s", "--resync-period=2s", "--round-interval=1s", "--metrics-bind-address=0",
		"--health-probe-bind-address=0")
	c.t.Cleanup(func() {
		product.Stop()
		if c.t.Failed() {
			c.t.Logf("calico-node-sync:\n%s", product.Output())
		}
	})
	testkit.Eventually(c.t, "calico-node-sync to know the cluster", func() string {
		if c.etcd != nil && mentions(c.exact(), nodesync.BindingAnnotation) == "" {
			return "it has not recorded the cluster in ClusterInformation"
		}
		maps, err := c.api.Client.CoreV1().ConfigMaps(namespace).List(c.t.Context(), metav1.ListOptions{})
		c.must(err)
		if len(maps.Items) == 0 {
			return "it has kept nothing"
		}
		return ""
	})
}

// leave removes a machine and its pods from Kubernetes; nobody calls the plugin any more.
func (c *cluster) leave(machine string, pods ...string) {
	c.t.Helper()
	c.must(c.api.Client.CoreV1().Nodes().Delete(c.t.Context(), machine, metav1.DeleteOptions{}))
	for _, pod := range pods {
		c.must(c.remove(pod))
	}
}

// exact is all that Calico has, as it is stored.
func (c *cluster) exact() map[string]string {
	c.t.Helper()
	if c.etcd != nil {
		return c.etcd.Dump(c.t)
	}
	out := map[string]string{}
	for key, value := range c.objects() {
		out[key] = toJSON(value)
	}
	return out
}

// mentions returns a key that contains a text, or whose value does, and "" if there is none.
func mentions(content map[string]string, text string) string {
	for key, value := range content {
		if strings.Contains(key, text) || strings.Contains(value, text) {
			return key + " " + value
		}
	}
	return ""
}

// addresses are the endpoint, the handle and the allocation of a pod by their keys.
func (c *cluster) addresses(pod string) map[string]string {
	c.t.Helper()
	handle, out := "", map[string]string{}
	for key, flat := range c.contents(map[string]int{}) {
		for path, value := range flat {
			if strings.HasSuffix(path, ".secondary.pod") && value == toJSON(pod) {
				handle = flat[strings.TrimSuffix(path, "secondary.pod")+"handle_id"]
				out[key] = handle
			}
		}
	}
	for key, value := range c.exact() {
		if strings.Contains(key, "/workloadendpoints/") && strings.Contains(value, toJSON(pod)) || handle != "" && strings.HasSuffix(key, "/"+strings.Trim(handle, `"`)) {
			out[key] = value
		}
	}
	return out
}
