// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// memoryLimit is how much memory the program may have resident at most with 15,000 machines of 30 pods each, in MiB.
const memoryLimit = 300

// The real program looks through the datastore of a big cluster, cleans up five machines, and stays within its memory.
// MOORING_E2E_MACHINES says how many machines there are; the limit is for 15,000.
func TestMemoryOfABigCluster(t *testing.T) { //nolint:paralleltest // it measures, and nothing alongside it should work
	machines := number("MOORING_E2E_MACHINES", 2000)
	if testing.Short() {
		machines = min(machines, 500)
	}
	api, etcd := controlplane.New(t), testkit.NewEtcd(t)
	crowd := caliconode.Crowd{Machines: machines, PodsEach: 30}
	if err := crowd.Fill(t.Context(), etcd.Client); err != nil {
		t.Fatal(err)
	}
	register(t, api, crowd)
	before := keys(t, etcd)
	product := testkit.Start(t, filepath.Join(t.TempDir(), "product.log"), []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, testkit.Binary(t, "calico-node-sync"),
		"--kubeconfig", api.Kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--grace-period=1s", "--resync-period=2s")
	t.Cleanup(product.Stop)
	testkit.Eventually(t, "the first round", func() string {
		info, err := etcd.Client.Get(t.Context(), "/calico/resources/v3/projectcalico.org/clusterinformations/default")
		if err != nil || len(info.Kvs) != 1 || !strings.Contains(string(info.Kvs[0].Value), nodesync.BindingAnnotation) {
			return fmt.Sprintf("the cluster is not recorded (%v)", err)
		}
		return ""
	})
	idle := usageOf(t, product.PID())
	for i := range 5 {
		if err := api.Client.CoreV1().Nodes().Delete(t.Context(), crowd.Machine(i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "five machines to be cleaned up", func() string {
		if gone := before - keys(t, etcd); gone != 5*keysOfAMachine {
			return fmt.Sprintf("%d keys are gone, not %d", gone, 5*keysOfAMachine)
		}
		return ""
	})
	used := usageOf(t, product.PID())
	t.Logf("%d machines of 30 pods: at most %d MiB resident, of which %d after start and the first sweep", machines, used, idle)
	if used > memoryLimit {
		t.Errorf("%d MiB were resident, more than %d", used, memoryLimit)
	}
}

// keys counts what stands in etcd.
func keys(tb testing.TB, etcd *testkit.Etcd) int {
	tb.Helper()
	answer, err := etcd.Client.Get(tb.Context(), "/calico/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		tb.Fatal(err)
	}
	return int(answer.Count)
}

// register creates the Kubernetes Nodes of the crowd.
func register(tb testing.TB, api *controlplane.Cluster, crowd caliconode.Crowd) {
	tb.Helper()
	config := rest.CopyConfig(api.Config)
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := range numbers {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: crowd.Machine(i)}}
				if _, err := client.CoreV1().Nodes().Create(tb.Context(), node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					tb.Errorf("registering %s: %v", node.Name, err)
				}
			}
		})
	}
	for i := range crowd.Machines {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}

// usageOf is the most memory that a process has had resident, in MiB (Linux, proc(5): VmHWM).
func usageOf(tb testing.TB, pid int) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				tb.Fatal(err)
			}
			return kib >> 10
		}
	}
	tb.Fatalf("%s holds no VmHWM", status)
	return 0
}

// freeAddress is one on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
