// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	// departing is how many machines leave at once.
	departing = 50
	// keysOfAMachine are those of a machine of 30 pods: Calico Node, affinity, block, and of each pod a handle and an endpoint.
	keysOfAMachine = 3 + 2*30
)

// cleaner is a program that cleans up after machines.
type cleaner struct {
	name  string
	start func(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) *testkit.Process
}

// BenchmarkDepartures lets 50 machines leave clusters of 2,000 and of 15,000 machines of 30 pods, or of MOORING_E2E_MACHINES, and measures from then until
// nothing is left of them: seconds, CPU seconds, CPU milliseconds a machine, and the most memory. calico-node-sync works at its default pace, with
// --grace-period=1s, Calico's kube-controllers with the controllers of Calico's manifest, but for copies of labels; one after the other, on the same datastore.
func BenchmarkDepartures(b *testing.B) {
	sizes := []int{2000, 15000}
	if n := number("MOORING_E2E_MACHINES", 0); n > 0 {
		sizes = []int{n}
	}
	for _, machines := range sizes {
		api, etcd := controlplane.New(b), testkit.NewEtcd(b)
		crowd := caliconode.Crowd{Machines: machines, PodsEach: 30}
		if err := crowd.Fill(b.Context(), etcd.Client); err != nil {
			b.Fatal(err)
		}
		register(b, api, crowd)
		ours := 0.0
		for _, c := range []cleaner{{"calico-node-sync", startOurs}, {"kube-controllers", startTheirs}} {
			b.Run(fmt.Sprintf("%s/nodes=%d", c.name, machines), func(b *testing.B) {
				used := c.cleanUp(b, api, etcd, crowd)
				if ours == 0 {
					ours = used
				}
				b.ReportMetric(used/ours, "x-cpu")
			})
		}
	}
}

func startOurs(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) *testkit.Process {
	b.Helper()
	return testkit.Start(b, filepath.Join(b.TempDir(), "log"), []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, testkit.Binary(b, "calico-node-sync"),
		"--kubeconfig", api.Kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--grace-period=1s")
}

func startTheirs(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) *testkit.Process {
	b.Helper()
	const stored = `"uid":"11111111-2222-3333-4444-555555555555","creationTimestamp":"2026-01-01T00:00:00Z"`
	for plural, object := range map[string]string{
		// kube-controllers updates it, which libcalico-go refuses of one that is not whole.
		"clusterinformations": `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",` + stored + `},` +
			`"spec":{"clusterGUID":"0123456789abcdef0123456789abcdef","datastoreReady":true}}`,
		// It seeks addresses of no pool by reading all blocks.
		"ippools": `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",` + stored + `},` +
			`"spec":{"cidr":"10.0.0.0/8","blockSize":26,"ipipMode":"Never","vxlanMode":"Never","nodeSelector":"all()"}}`,
		// It makes this one itself, but then serves metrics on all of the machine's addresses.
		"kubecontrollersconfigurations": `{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",` + stored + `},` +
			`"spec":{"prometheusMetricsPort":0,"controllers":{"node":{"syncLabels":"Disabled","leakGracePeriod":"15m0s"}}}}`,
	} {
		if _, err := etcd.Client.Put(b.Context(), "/calico/resources/v3/projectcalico.org/"+plural+"/default", object); err != nil {
			b.Fatal(err)
		}
	}
	return testkit.Start(b, filepath.Join(b.TempDir(), "log"), []string{
		"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + etcd.Endpoint, "KUBECONFIG=" + api.Kubeconfig, "HEALTH_ENABLED=false",
		"ENABLED_CONTROLLERS=policy,namespace,serviceaccount,workloadendpoint,node",
	}, testkit.Binary(b, "kube-controllers"), "-status-file="+filepath.Join(b.TempDir(), "status.json"))
}

// cleanUp makes the machines anew that leave, waits until the program that has started has nothing to do, lets them leave, and returns the CPU seconds
// that it took.
func (c cleaner) cleanUp(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd, crowd caliconode.Crowd) float64 {
	b.Helper()
	b.StopTimer()
	few := crowd
	few.Machines = departing
	if err := few.Fill(b.Context(), etcd.Client); err != nil {
		b.Fatal(err)
	}
	register(b, api, few)
	process := c.start(b, api, etcd)
	defer process.Stop()
	awaitIdle(b, process)
	before, used := keys(b, etcd), cpuOf(b, process.PID())
	b.StartTimer()
	began := time.Now()
	deregister(b, api, few)
	// A program may leave something: it is done when nothing has changed for three minutes.
	left, changed, spent := departing*keysOfAMachine, began, 0.0
	for left > 0 && time.Since(changed) < 3*time.Minute {
		<-time.After(100 * time.Millisecond)
		if now := keys(b, etcd) - before + departing*keysOfAMachine; now != left {
			left, changed, spent = now, time.Now(), cpuOf(b, process.PID())-used
		}
	}
	b.StopTimer()
	took := changed.Sub(began)
	used = spent
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(used, "cpu-s")
	b.ReportMetric(1000*used/departing, "cpu-ms/machine")
	b.ReportMetric(float64(usageOf(b, process.PID())), "MiB")
	b.ReportMetric(float64(left), "keys-left")
	return used
}

// awaitIdle waits until the program uses next to nothing.
func awaitIdle(b *testing.B, process *testkit.Process) {
	b.Helper()
	quiet := 0
	for before := cpuOf(b, process.PID()); quiet < 5; {
		select {
		case <-process.Done():
			b.Fatalf("it ended:\n%s", tail(process))
		case <-time.After(time.Second):
		}
		now := cpuOf(b, process.PID())
		if quiet++; now-before > 0.05 {
			quiet = 0
		}
		before = now
	}
}

// deregister deletes the Kubernetes Nodes of the crowd.
func deregister(b *testing.B, api *controlplane.Cluster, crowd caliconode.Crowd) {
	b.Helper()
	var group sync.WaitGroup
	for i := range crowd.Machines {
		group.Go(func() {
			if err := api.Client.CoreV1().Nodes().Delete(context.WithoutCancel(b.Context()), crowd.Machine(i), metav1.DeleteOptions{}); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
}

// cpuOf is the CPU seconds that a process has used, user and system (proc(5): stat, fields 14 and 15, in hundredths).
func cpuOf(tb testing.TB, pid int) float64 {
	tb.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields, sum := strings.Fields(rest), 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			tb.Fatal(err)
		}
		sum += n
	}
	return float64(sum) / 100
}
