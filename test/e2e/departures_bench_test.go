// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// keysOfAMachine are those of a machine of 30 pods: Calico Node, affinity, block, and of each pod a handle and an endpoint.
const keysOfAMachine = 3 + 2*30

// cleaner is a program that cleans up after machines.
type cleaner struct {
	name  string
	start func(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) *testkit.Process
}

// manyDeparting are machines that leave of the biggest cluster, after fifty have. kube-controllers needs about three CPU
// seconds for each there, and is not let do it.
const manyDeparting = 1500

// BenchmarkDepartures lets 50 machines leave clusters of 2,000 and of 15,000 machines of 30 pods, and then 1,500 of the bigger one, or
// MOORING_E2E_DEPARTING of MOORING_E2E_MACHINES, and measures from then until nothing is left of them: seconds, CPU seconds, CPU milliseconds and requests a machine, and the most memory. calico-node-sync
// works at its default pace, with journal and Events, and --grace-period=1s, Calico's kube-controllers with the controllers of Calico's manifest, but for
// copies of labels; one after the other, on the same datastore. Requests are counted by etcd and the API server: they do not depend on what else runs.
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
		departing := number("MOORING_E2E_DEPARTING", 50)
		ours := 0.0
		for _, c := range []cleaner{{"calico-node-sync", startOurs}, {"kube-controllers", startTheirs}} {
			b.Run(fmt.Sprintf("%s/nodes=%d/departing=%d", c.name, machines, departing), func(b *testing.B) {
				used := c.cleanUp(b, api, etcd, crowd, departing)
				if ours == 0 {
					ours = used
				}
				b.ReportMetric(used/ours, "x-cpu")
			})
		}
		if machines > manyDeparting*2 && departing < manyDeparting {
			b.Run(fmt.Sprintf("calico-node-sync/nodes=%d/departing=%d", machines, manyDeparting), func(b *testing.B) {
				cleaner{start: startOurs}.cleanUp(b, api, etcd, crowd, manyDeparting)
			})
		}
	}
}

func startOurs(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) *testkit.Process {
	b.Helper()
	return testkit.Start(b, filepath.Join(b.TempDir(), "log"), []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, testkit.Binary(b, "calico-node-sync"),
		"--kubeconfig", api.Kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-election-namespace=kube-system", "--grace-period=1s")
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
func (c cleaner) cleanUp(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd, crowd caliconode.Crowd, machines int) float64 {
	b.Helper()
	b.StopTimer()
	few := crowd
	few.Machines = machines
	departing := float64(machines)
	if err := few.Fill(b.Context(), etcd.Client); err != nil {
		b.Fatal(err)
	}
	register(b, api, few)
	process := c.start(b, api, etcd)
	defer process.Stop()
	awaitIdle(b, process)
	watching, stop := context.WithCancel(b.Context())
	defer stop()
	changes := etcd.Client.Watch(watching, "/calico/", clientv3.WithPrefix())
	cpu, calls := cpuOf(b, process.PID()), callsTo(b, api, etcd)
	b.StartTimer()
	began := time.Now()
	deregister(b, api, few)
	left, changed, spent := awaitClean(b, changes, began, few.Machines*keysOfAMachine, func() float64 { return cpuOf(b, process.PID()) - cpu })
	b.StopTimer()
	now := callsTo(b, api, etcd)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(changed.Sub(began).Seconds(), "s")
	b.ReportMetric(spent, "cpu-s")
	b.ReportMetric(1000*spent/departing, "cpu-ms/machine")
	b.ReportMetric((now.etcd-calls.etcd)/departing, "etcd-calls/machine")
	b.ReportMetric((now.api-calls.api)/departing, "api-calls/machine")
	b.ReportMetric(float64(usageOf(b, process.PID())), "MiB")
	b.ReportMetric(float64(left), "keys-left")
	return spent
}

// awaitClean waits until so many keys are gone, and returns how many are left, when the last one went, and what was spent by then. A program may leave
// something: it is done when nothing has changed for three minutes. It is watched, since to count a million keys again and again is work for etcd.
func awaitClean(
	b *testing.B, changes clientv3.WatchChan, began time.Time, keys int, spend func() float64,
) (left int, changed time.Time, spent float64) {
	b.Helper()
	left, changed = keys, began
	idle := time.NewTimer(3 * time.Minute)
	defer idle.Stop()
	for left > 0 {
		select {
		case <-idle.C:
			return left, changed, spent
		case answer, ok := <-changes:
			if !ok || answer.Err() != nil {
				b.Fatalf("the watch has ended with %d keys left: %v", left, answer.Err())
			}
			before := left
			for _, event := range answer.Events {
				switch {
				case event.Type == clientv3.EventTypeDelete:
					left--
				case event.IsCreate():
					left++
				}
			}
			if left != before {
				changed, spent = time.Now(), spend()
				idle.Reset(3 * time.Minute)
			}
		}
	}
	return left, changed, spent
}

// calls count requests to the two servers.
type calls struct{ etcd, api float64 }

// callsTo reads how many requests etcd's and the API server's own metrics count. Of the API server's, those about kinds that a cleaner is
// concerned with, without watches and without the deletions of Nodes, which are the benchmark's own.
func callsTo(b *testing.B, api *controlplane.Cluster, etcd *testkit.Etcd) calls {
	b.Helper()
	answer, err := http.Get(etcd.Endpoint + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	fromEtcd, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	fromAPI, err := api.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ofCleaners := regexp.MustCompile(`resource="(nodes|pods|configmaps|events|namespaces|leases)"`)
	return calls{
		etcd: sumOf(string(fromEtcd), "grpc_server_handled_total{", func(labels string) bool { return strings.Contains(labels, `grpc_service="etcdserverpb.KV"`) }),
		api: sumOf(string(fromAPI), "apiserver_request_total{", func(labels string) bool {
			return ofCleaners.MatchString(labels) && !strings.Contains(labels, `verb="WATCH"`) && !strings.Contains(labels, `verb="DELETE",version`)
		}),
	}
}

// sumOf adds up the samples of a counter that count, in Prometheus' text format.
func sumOf(metrics, counter string, counts func(labels string) bool) (sum float64) {
	for line := range strings.Lines(metrics) {
		labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil && strings.HasPrefix(labels, counter) && counts(labels) {
			sum += n
		}
	}
	return sum
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
