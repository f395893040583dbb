// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// planNothing is plans in a cluster that has none of the kinds.
func planNothing(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	expect(t, 1, "", []string{"plan", "rr", "--kubeconfig", cluster.Kubeconfig}, "error: the cluster has no kind RouteReflectorTopology: install calico-route-reflector-operator first")
	expect(t, 1, "", []string{"plan", "nodes", "--kubeconfig", cluster.Kubeconfig}, "error: there are no kinds of Calico in this cluster; if Calico keeps its data in etcd, set ETCD_ENDPOINTS")
	t.Setenv("DATASTORE_TYPE", "etcdv3")
	expect(t, 1, "", []string{"plan", "nodes", "--kubeconfig", cluster.Kubeconfig}, "error: the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS")
	expect(t, 1, "", []string{"plan", "rr", "--kubeconfig", cluster.Kubeconfig}, "error: the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS")
	clearEnvironment(t)
}

// testPlans plans for what the tests before have left, through a kubeconfig that lets nobody write.
func testPlans(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	kubeconfig := readOnly(t, cluster)
	planReflectors(t, cluster, kubeconfig)
	planMachines(t, cluster, kubeconfig)
}
