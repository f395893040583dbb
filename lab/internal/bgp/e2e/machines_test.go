// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
)

// TestMachines goes through the life of one lab; the order of its parts matters.
func TestMachines(t *testing.T) {
	interfaces := interfaceNames(t)
	l := start(t, 3, "--cloud", blueprint.CloudNone)
	t.Logf("3 machines had every route after %v", l.awaitRoutes())
	for _, part := range []struct {
		name string
		run  func(*lab)
	}{
		{"no tunnels", noTunnels},
		{"a machine comes", aMachineComes},
		{"a machine goes", aMachineGoes},
		{"a pod comes and goes", aPodComesAndGoes},
		{"the network is killed", theNetworkIsKilled},
		{"down", func(l *lab) { downLeavesNothing(l, interfaces) }},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(&lab{t: t, Layout: l.Layout}) }) {
			break
		}
	}
}

// noTunnels sees that neither the pool nor a machine speaks of tunnels, which Debian's bird would not make.
func noTunnels(l *lab) {
	client := l.kubernetes()
	pools, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/crd.projectcalico.org/v1/ippools").DoRaw(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if !strings.Contains(string(pools), `"ipipMode":"Never"`) || !strings.Contains(string(pools), `"vxlanMode":"Never"`) {
		l.t.Errorf("the address pools are %s", pools)
	}
	nodes, err := client.CoreV1().Nodes().List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, node := range nodes.Items {
		if node.Annotations["projectcalico.org/IPv4Address"] == "" || node.Annotations["projectcalico.org/IPv4IPIPTunnelAddr"] != "" {
			l.t.Errorf("%s has the annotations %v", node.Name, node.Annotations)
		}
	}
}

// newcomer is the machine that comes and goes. Its name is that of a folder in the network's own, which must do no harm.
const newcomer = "bin"

// aMachineComes adds a machine under a probe: the others must not notice, and it must reach all and be reached by all.
func aMachineComes(l *lab) {
	id := l.startProbe()
	l.run("node", "add", newcomer)
	l.awaitRoutes()
	l.judgeOthers(l.stopProbe(id))

	state := l.state()
	at := slices.IndexFunc(state.Nodes, func(n network.NodeState) bool { return n.Name == newcomer })
	if len(state.Nodes) != 4 || at < 0 || len(state.Nodes[at].Pods) != 1 {
		l.t.Fatalf("the network is %+v; want 4 machines, the new one with its pod", state.Nodes)
	}
	for _, program := range []string{"bird", "bird6", "agent"} {
		if state.Processes[newcomer+"/"+program] == 0 {
			l.t.Errorf("%s does not run for the new machine", program)
		}
	}
	var report probe.Report
	if err := json.Unmarshal([]byte(l.run("probe", "--for", "3s", "--output", "json")), &report); err != nil {
		l.t.Fatal(err)
	}
	if report.Pairs != 12 || report.All.Sent == 0 || report.All.Outages > 0 || report.All.Lost == report.All.Sent {
		l.t.Errorf("between 4 machines: %d pairs, %+v", report.Pairs, report.All)
	}
	if out := l.run("status"); !strings.Contains(out, "network: BGP, 4 machines, 12 of 12 routes to pods of others\n") {
		l.t.Errorf("status does not show the network:\n%s", out)
	}
}

// aMachineGoes removes that machine: its processes end, its routes go everywhere, and the others must not notice.
func aMachineGoes(l *lab) {
	before := l.state()
	at := slices.IndexFunc(before.Nodes, func(n network.NodeState) bool { return n.Name == newcomer })
	pod := before.Nodes[at].Pods[0]
	for node, found := range l.routesTo(pod) {
		if !found {
			l.t.Fatalf("%s had no route to %v to lose", node, pod)
		}
	}
	id := l.startProbe()
	l.run("node", "remove", newcomer)
	l.await("the machine to leave", func() error {
		state, err := l.client().State(l.t.Context())
		if err == nil && (len(state.Nodes) != 3 || len(state.Pending) > 0) {
			err = fmt.Errorf("%d machines, pending %v", len(state.Nodes), state.Pending)
		}
		return err
	})
	l.await("its routes to go", func() error {
		for node, found := range l.routesTo(pod) {
			if found {
				return fmt.Errorf("%s still has a route to %v", node, pod)
			}
		}
		return nil
	})
	l.awaitRoutes()
	report := l.stopProbe(id)
	l.judgeOthers(report)
	silent := 0
	for _, p := range report.Losers {
		if (p.From == newcomer || p.To == newcomer) && p.Outages == 1 {
			silent++
		}
	}
	if silent != 6 { // the probe's sockets outlive the machine, so that it could still be heard
		l.t.Errorf("%d of the 6 pairs with the machine fell silent: %+v", silent, report.Losers)
	}
	own := map[string]int{}
	for name, pid := range before.Processes {
		if strings.HasPrefix(name, newcomer+"/") {
			own[name] = pid
		}
	}
	if len(own) != 3 {
		l.t.Fatalf("the machine had the processes %v", own)
	}
	if err := gone(own); err != nil {
		l.t.Error(err)
	}
}

// aPodComesAndGoes creates a second pod on a machine, whose address the machine must get, and deletes it.
func aPodComesAndGoes(l *lab) {
	pods := l.kubernetes().CoreV1().Pods(fleet.Namespace)
	first := l.state().Nodes[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec: corev1.PodSpec{
			NodeName: first.Name, ServiceAccountName: fleet.SamplePod, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "second", Image: "mooring-lab/second"}},
		},
	}
	if _, err := pods.Create(l.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	awaitPods := func(count int) {
		l.t.Helper()
		l.await(fmt.Sprintf("%d pods on %s", count, first.Name), func() error {
			state, err := l.client().State(l.t.Context())
			if err != nil {
				return err
			}
			have := state.Nodes[slices.IndexFunc(state.Nodes, func(n network.NodeState) bool { return n.Name == first.Name })].Pods
			if len(have) != count || !slices.Contains(have, first.Pods[0]) {
				return fmt.Errorf("it has %v", have)
			}
			return nil
		})
		l.awaitRoutes()
	}
	awaitPods(2)
	now := int64(0)
	if err := pods.Delete(l.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		l.t.Fatal(err)
	}
	awaitPods(1)
}

// theNetworkIsKilled sees that all it had started ends with it, and that the supervisor brings it back.
func theNetworkIsKilled(l *lab) {
	before := l.state().Processes
	if len(before) != 9 {
		l.t.Fatalf("%d processes run for 3 machines: %v", len(before), before)
	}
	l.stopNetwork(syscall.SIGKILL)
	l.await("the end of everything that the network had started", func() error { return gone(before) })
	l.await("the network to come back", func() error {
		_, err := l.client().State(l.t.Context())
		return err
	})
	l.awaitRoutes()
}

// downLeavesNothing sees that no process, no namespace and no interface outlives the lab.
func downLeavesNothing(l *lab, interfaces []string) {
	processes := l.state().Processes
	for name, identity := range l.runningState().Identities {
		processes[name] = identity.PID
	}
	namespaces := namespacesOf(l.t, processes[blueprint.BGPNetwork])
	if len(namespaces) != 4 {
		l.t.Fatalf("the network holds %d namespaces; want one for each of 3 machines and one for the bridge", len(namespaces))
	}
	l.run("down")
	if err := gone(processes); err != nil {
		l.t.Error(err)
	}
	for task, namespace := range allNamespaces(l.t, "/proc/[0-9]*/task/[0-9]*/ns/net") {
		if slices.Contains(namespaces, namespace) {
			l.t.Errorf("%s is still in a namespace of the network", task)
		}
	}
	if now := interfaceNames(l.t); !slices.Equal(now, interfaces) {
		l.t.Errorf("this machine's interfaces are %v; before the lab they were %v", now, interfaces)
	}
	if _, err := l.client().State(l.t.Context()); !errors.Is(err, network.ErrDown) {
		l.t.Errorf("the network is asked after its end: %v", err)
	}
}

// TestDroplets switches a droplet of a lab with a cloud off and on, and adds and deletes one.
func TestDroplets(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out")
	}
	testkit.Binary(t, blueprint.CloudControllerManager)
	l := start(t, 2, "--cloud", blueprint.CloudDigitalOcean)
	l.awaitRoutes()
	for _, step := range []struct {
		args []string
		want []string
	}{
		{[]string{"create", "late"}, []string{"late", "node-1", "node-2"}},
		{[]string{"power-off", "node-1"}, []string{"late", "node-2"}},
		{[]string{"power-on", "node-1"}, []string{"late", "node-1", "node-2"}},
		{[]string{"delete", "late"}, []string{"node-1", "node-2"}},
	} {
		begun := time.Now()
		l.run(append([]string{"droplet"}, step.args...)...)
		l.await(fmt.Sprint("machines after ", step.args), func() error {
			state, err := l.client().State(t.Context())
			if err != nil {
				return err
			}
			var names []string
			for _, n := range state.Nodes {
				names = append(names, n.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, step.want) || len(state.Pending) > 0 {
				return fmt.Errorf("%v, pending %v; want %v", names, state.Pending, step.want)
			}
			return nil
		})
		t.Logf("%v: followed after %v, every route there %v later", step.args, time.Since(begun), l.awaitRoutes())
	}
}

// kubernetes is the administrator's client of the lab's API server.
func (l *lab) kubernetes() kubernetes.Interface {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

func (l *lab) state() network.State {
	l.t.Helper()
	state, err := l.client().State(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return state
}

func (l *lab) startProbe() string {
	l.t.Helper()
	id, err := l.client().StartProbe(l.t.Context(), 20*time.Millisecond)
	if err != nil {
		l.t.Fatal(err)
	}
	return id
}

func (l *lab) stopProbe(id string) probe.Report {
	l.t.Helper()
	report, err := l.client().StopProbe(l.t.Context(), id, []string{newcomer})
	if err != nil {
		l.t.Fatal(err)
	}
	return report
}

// judgeOthers sees that nobody but the newcomer had an outage.
func (l *lab) judgeOthers(r probe.Report) {
	l.t.Helper()
	l.t.Logf("the others lost %d of %d", r.Collateral.Lost, r.Collateral.Sent)
	if r.Collateral.Sent == 0 || r.Collateral.Outages > 0 {
		l.t.Errorf("pairs of other machines: %+v; want no outage", r.Collateral)
	}
}

// routesTo asks the kernel, in the namespace of each bird, whether there is a route to the block of a pod.
func (l *lab) routesTo(pod netip.Addr) map[string]bool {
	l.t.Helper()
	out := map[string]bool{}
	for name, pid := range l.state().Processes {
		node, program, _ := strings.Cut(name, "/")
		if program != "bird" || node == newcomer {
			continue
		}
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/route", pid))
		if err != nil {
			l.t.Fatal(err)
		}
		out[node] = false
		for line := range strings.Lines(string(content)) {
			// Interface, destination, …, mask: four bytes in the machine's order, in hexadecimal.
			fields := strings.Fields(line)
			destination, ok := routeField(fields, 1)
			mask, okMask := routeField(fields, 7)
			if ok && okMask && mask != 0 && binary.NativeEndian.Uint32(pod.AsSlice())&mask == destination {
				out[node] = true
			}
		}
	}
	return out
}

func routeField(fields []string, i int) (uint32, bool) {
	if i >= len(fields) {
		return 0, false
	}
	bytes, err := hex.DecodeString(fields[i])
	if err != nil || len(bytes) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(bytes), true
}

func interfaceNames(t *testing.T) []string {
	t.Helper()
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	return names
}

// namespacesOf returns the network namespaces of a process's threads, without this test's own.
func namespacesOf(t *testing.T, pid int) []string {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(maps.Values(allNamespaces(t, filepath.Join("/proc", strconv.Itoa(pid), "task/[0-9]*/ns/net"))))
	return slices.DeleteFunc(slices.Compact(all), func(namespace string) bool { return namespace == own })
}

func allNamespaces(t *testing.T, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range paths {
		if namespace, err := os.Readlink(path); err == nil { // else it has just ended
			out[path] = namespace
		}
	}
	return out
}
