// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// memoryNodes is the variable that makes [BenchmarkMemory] use another number of nodes than 15,000.
const memoryNodes = "MOORING_MEMORY_NODES"

// mostMemory is what the operator may take for 15,000 nodes, in MiB. It is the limit of its container.
const mostMemory = 300

// BenchmarkMemory measures the memory of the operator, as a process of its own with a real API server, in a steady state: three reflectors, and
// everybody else their client, every Node with the images, conditions and managed fields that a kubelet gives it. The old operator's figures: after
// 2,983 creates in 579 s it listed all Nodes and all BGPPeers 237 times a minute, for good, with 1,000 nodes.
func BenchmarkMemory(b *testing.B) {
	count := 15_000
	if text := os.Getenv(memoryNodes); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	cluster := controlplane.New(b)
	cluster.InstallCalicoCRDs(b)
	cluster.InstallCRDs(b, controlplane.OwnKind(b, "routereflectortopologies"))
	config := rest.CopyConfig(cluster.Config)
	config.QPS = -1
	bgp, err := calico.OpenBGP(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		b.Fatal(err)
	}
	bgp.AddToScheme(scheme)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	makeFleet(b, c, count)
	enabled(b, c, bgp)
	for b.Loop() {
		steady, peak := memoryOf(b, cluster, c)
		b.ReportMetric(steady, "MiB")
		b.ReportMetric(peak, "MiB-peak")
		b.ReportMetric(0, "ns/op")
		if steady > mostMemory || peak > mostMemory {
			b.Errorf("%d nodes take %.0f MiB, %.0f at most, want no more than %d", count, steady, peak, mostMemory)
		}
	}
}

// makeFleet creates Nodes as large as real ones. The first three are reflectors.
func makeFleet(tb testing.TB, c client.Client, count int) {
	tb.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range work {
				node := bigNode(i)
				if err := c.Create(tb.Context(), node); err != nil {
					tb.Error(err)
					continue
				}
				node.Status = bigStatus()
				if err := c.Status().Update(tb.Context(), node); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	wg.Wait()
}

func bigNode(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("ip-10-%d-%d-%d.region.compute.internal", i>>16, i>>8&255, i&255),
		Labels: map[string]string{
			corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelTopologyRegion: "region", corev1.LabelOSStable: "linux",
			corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "large", corev1.LabelHostname: fmt.Sprintf("ip-10-%d-%d-%d", i>>16, i>>8&255, i&255),
		},
		Annotations: map[string]string{
			routereflector.IPv4Annotation:  netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String() + "/8",
			"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"csi.volume.kubernetes.io/nodeid": fmt.Sprintf(`{"csi.example.com":"%030d"}`, i),
		},
	}}
	if i < 3 {
		node.Labels[v1alpha1.ReflectorLabel] = "main"
		node.Annotations[routereflector.ClusterIDAnnotation] = "244.0.0.1"
	}
	return node
}

func bigStatus() corev1.NodeStatus {
	now := clock.RealClock{}.Now()
	var status corev1.NodeStatus
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
	} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: kind, Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[kind == corev1.NodeReady],
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)), LastHeartbeatTime: metav1.NewTime(now), Reason: "KubeletHasNoTrouble", Message: "kubelet has no trouble",
		})
	}
	for i := range 50 { // as many as a kubelet reports
		image := fmt.Sprintf("registry.example.com/team-%02d/service-%02d", i%7, i)
		status.Images = append(status.Images, corev1.ContainerImage{
			Names: []string{image + "@sha256:" + strings.Repeat(fmt.Sprintf("%02x", i), 32), image + ":v1.2.3"}, SizeBytes: 123_456_789,
		})
	}
	return status
}

// enabled makes the cluster one in which all has been done already.
func enabled(tb testing.TB, c client.Client, bgp *calico.BGPKubernetes) {
	tb.Helper()
	yes, no := true, false
	info := calicov3.NewClusterInformation()
	info.Name, info.Spec.DatastoreReady = "default", &yes
	configuration := calicov3.NewBGPConfiguration()
	configuration.Name, configuration.Spec.NodeToNodeMeshEnabled = "default", &no
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	topology.Spec.Mode = v1alpha1.ModeFlat
	v1alpha1.SetDefaults(topology)
	for _, o := range []client.Object{info, configuration} {
		if err := c.Create(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
	}
	node := bigNode(9)
	node.Status = bigStatus()
	w := routereflector.World{
		Now: clock.RealClock{}.Now(), Topology: *topology, DatastoreReady: true, Mesh: routereflector.Mesh{On: true},
		Nodes: []routereflector.Node{routereflector.NodeFrom(node, 0, routereflector.DefaultASNumber)},
	}
	for _, p := range planner.MakePlan(w).Peers {
		if err := bgp.CreatePeer(tb.Context(), p); err != nil {
			tb.Fatal(err)
		}
	}
	testkit.Eventually(tb, "the kind to be served and the topology to be created", func() string {
		if err := c.Create(tb.Context(), topology.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
}

// memoryOf runs the operator until it has been Ready for a while, and returns its memory by then and the most it had, in MiB.
func memoryOf(tb testing.TB, cluster *controlplane.Cluster, c client.Client) (steady, peak float64) {
	tb.Helper()
	program := testkit.Start(tb, filepath.Join(tb.TempDir(), "log"), nil, testkit.Binary(tb, Component),
		"--kubeconfig", cluster.Kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--resync-period", "1s")
	defer program.Stop()
	testkit.Eventually(tb, "the topology to be Ready", func() string {
		topology := &v1alpha1.RouteReflectorTopology{}
		if err := c.Get(tb.Context(), client.ObjectKey{Name: "main"}, topology); err != nil {
			return err.Error()
		}
		if topology.Status.Phase == v1alpha1.PhaseReady {
			return ""
		}
		status, _ := yaml.Marshal(topology.Status)
		return string(status)
	})
	rounds := 0
	testkit.Eventually(tb, "rounds of a steady state", func() string {
		if rounds++; rounds < 200 {
			return "not yet"
		}
		return ""
	})
	return processMemory(tb, program.PID(), "VmRSS"), processMemory(tb, program.PID(), "VmHWM")
}

// processMemory reads a figure of a process from proc(5), in MiB.
func processMemory(tb testing.TB, pid int, field string) float64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Skip("the memory of a process is read from /proc: " + err.Error())
	}
	match := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if match == nil {
		tb.Fatalf("there is no %s in %s", field, text)
	}
	kilobytes, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		tb.Fatal(err)
	}
	return kilobytes / 1024
}
