// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package labtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/demo"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// TestLab boots one whole lab and then goes through it; the order of its parts matters.
func TestLab(t *testing.T) {
	l := newLab(t)
	l.up("--nodes=3", "--zones=2", "--pods-per-node=1")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *lab)
	}{
		{"nodes and pods", nodesAndPods},
		{"Calico", calicoFollowsMachines},
		{"rights", rightsAreLimited},
		{"loopback only", listensOnLoopbackOnly},
		{"kill", killedProcessesComeBack},
		{"machines", machinesComeAndGo},
		{"damaged list", damagedListDeletesNothing},
		{"second up", secondUpIsRefused},
		{"crash", downAfterACrash},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, &lab{t: t, Layout: l.Layout}) }) {
			break
		}
	}
}

func nodesAndPods(t *testing.T, l *lab) {
	client := l.client()
	nodes := must.Get(client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})).Or(t)
	zones := map[string]int{}
	for _, node := range nodes.Items {
		if got := ready(&node); got != corev1.ConditionTrue {
			t.Errorf("%s: Ready is %s", node.Name, got)
		}
		zones[node.Labels[corev1.LabelTopologyZone]]++
	}
	if len(nodes.Items) != 3 || zones["zone-a"] != 2 || zones["zone-b"] != 1 {
		t.Errorf("%d nodes in zones %v", len(nodes.Items), zones)
	}
	pods := must.Get(client.CoreV1().Pods("lab").List(t.Context(), metav1.ListOptions{})).Or(t)
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning || !strings.HasPrefix(pod.Status.PodIP, "10.244.") {
			t.Errorf("pod %s on %s: %s with address %q", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIP)
		}
	}
	if len(pods.Items) != 3 {
		t.Errorf("%d pods", len(pods.Items))
	}
}

func calicoFollowsMachines(t *testing.T, l *lab) {
	snapshot := must.Get(demo.Read(t.Context(), *l.described().CalicoEtcd)).Or(t)
	if got := fmt.Sprint(snapshot.Nodes()); got != "[node-1 node-2 node-3]" {
		t.Errorf("Calico's Nodes: %s", got)
	}
	for _, name := range snapshot.Nodes() {
		items := must.Get(snapshot.Of(name)).Or(t)
		kinds := map[string]int{}
		for _, item := range items {
			kinds[item.Kind]++
		}
		// One address and one handle each for the pod and for the tunnel.
		want := map[string]int{
			demo.KindNode: 1, demo.KindFelix: 1, demo.KindEndpoint: 1, demo.KindAddress: 2, demo.KindHandle: 2,
			demo.KindAffinity: 1, demo.KindBlock: 1,
		}
		if fmt.Sprint(kinds) != fmt.Sprint(want) {
			t.Errorf("Calico holds of %s %v, want %v", name, kinds, want)
		}
	}
}

// rightsAreLimited checks that RBAC is on: the user of the simulated machines may do its job and no more.
func rightsAreLimited(t *testing.T, l *lab) {
	admin := l.client()
	client := l.clientFrom(l.ProcessKubeconfig("nodes"))
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("machines may not list nodes: %v", err)
	}
	if l.described().DigitalOcean != nil {
		if err := client.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{DryRun: []string{"All"}}); !apierrors.IsForbidden(err) {
			t.Errorf("machines delete Nodes, which is the cloud controller manager's to do: %v", err)
		}
		for name, path := range map[string]string{"the token": l.CloudToken(), "the state of the cloud": l.CloudState()} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("machines read secrets: %v", err)
	}
	if _, err := admin.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the administrator may not read secrets: %v", err)
	}
}

// listensOnLoopbackOnly asks the kernel what the lab's processes listen on.
func listensOnLoopbackOnly(t *testing.T, l *lab) {
	listening := 0
	for name, identity := range l.state().Identities {
		for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
			for _, address := range listeners(t, identity.PID, table) {
				listening++
				if !strings.HasPrefix(address, "0100007F:") {
					t.Errorf("%s listens beyond loopback: %s in /proc/net/%s", name, address, table)
				}
			}
		}
	}
	if listening < 6 { // two of each etcd, one of kube-apiserver, one of kube-controller-manager
		t.Errorf("only %d listeners were found", listening)
	}
}

func killedProcessesComeBack(t *testing.T, l *lab) {
	client := l.client()
	const key = "survives"
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key, Namespace: "default"}}
	must.Get(client.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})).Or(t)
	names := []string{"etcd", "kube-apiserver", "calico-etcd", "nodes"}
	if l.described().DigitalOcean != nil {
		names = append(names, "digitalocean", "digitalocean-cloud-controller-manager")
	}
	for _, name := range names {
		before := l.process(name)
		l.run("kill", name)
		await(t, name+" to come back", func(context.Context) (bool, any) {
			now := l.process(name)
			// On a busy machine kube-apiserver may give its first start up, and end by itself.
			return now.State == "ready" && now.Restarts > before.Restarts && now.PID != before.PID &&
				fmt.Sprint(now.Addresses) == fmt.Sprint(before.Addresses), now
		})
	}
	await(t, "what was written before", func(ctx context.Context) (bool, any) {
		_, err := client.CoreV1().ConfigMaps("default").Get(ctx, key, metav1.GetOptions{})
		return err == nil, err
	})
	if output, err := l.try("kill", "kube-proxy"); err == nil || !strings.Contains(output, "it has: etcd, ") {
		t.Errorf("killing what is not there: %v, %s", err, output)
	}
}

func machinesComeAndGo(t *testing.T, l *lab) {
	client := l.client()
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}
	must.Get(client.CoreV1().Nodes().Create(t.Context(), foreign, metav1.CreateOptions{})).Or(t)
	l.run("node", "remove", "node-3")
	l.run("node", "freeze", "node-2")
	l.run("node", "add", "late", "--zone=zone-b")
	await(t, "node-3 to go", func(ctx context.Context) (bool, any) {
		_, err := client.CoreV1().Nodes().Get(ctx, "node-3", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	conditionOf := func(name string, want corev1.ConditionStatus) {
		t.Helper()
		await(t, fmt.Sprintf("Ready of %s to be %s", name, want), func(ctx context.Context) (bool, any) {
			node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return ready(node) == want, ready(node)
		})
	}
	conditionOf("late", corev1.ConditionTrue)
	conditionOf("node-2", corev1.ConditionUnknown)
	l.run("node", "thaw", "node-2")
	conditionOf("node-2", corev1.ConditionTrue)
	if _, err := client.CoreV1().Nodes().Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("a Node that is not of the lab's machines: %v", err)
	}
	if output, err := l.try("node", "remove", "node-3"); err == nil || !strings.Contains(output, "there is no such machine as node-3") {
		t.Errorf("removing a machine twice: %v, %s", err, output)
	}
}

// damagedListDeletesNothing takes the list of machines away and makes it unreadable: absence is never evidence.
func damagedListDeletesNothing(t *testing.T, l *lab) {
	client := l.client()
	nodes := func() string {
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "lab.mooring.dev/machine=true"})
		must.Do(t, err)
		var names []string
		for _, node := range list.Items {
			names = append(names, fmt.Sprint(node.Name, node.UID))
		}
		return fmt.Sprint(names)
	}
	complaints := func() int {
		log := must.Get(os.ReadFile(l.Log("nodes"))).Or(t)
		return strings.Count(string(log), "does not follow the list")
	}
	before, aside := nodes(), l.MachinesFile()+".aside"
	must.Do(t, os.Rename(l.MachinesFile(), aside))
	for _, damage := range []string{"missing", "{", ""} {
		if damage != "missing" {
			must.Do(t, os.WriteFile(l.MachinesFile(), []byte(damage), 0o600))
		}
		seen := complaints()
		await(t, "the nodes process to see the damage", func(context.Context) (bool, any) { return complaints() >= seen+2, damage })
		if after := nodes(); after != before {
			t.Errorf("with the list %q the Nodes are %s, no longer %s", damage, after, before)
		}
	}
	must.Do(t, os.Rename(aside, l.MachinesFile()))
}

func secondUpIsRefused(t *testing.T, l *lab) {
	if output, err := l.try("up"); err == nil || !strings.Contains(output, "already runs in") {
		t.Errorf("a second `lab up`: %v, %s", err, output)
	}
	if output := l.run("status"); !strings.Contains(output, "kube-apiserver") || !strings.Contains(output, "ready") {
		t.Errorf("status: %s", output)
	}
	if output := l.run("kubeconfig"); output != l.Kubeconfig()+"\n" {
		t.Errorf("kubeconfig: %q", output)
	}
	if output := l.run("logs", "kube-apiserver"); !strings.Contains(output, "v1.37") {
		t.Error("the log of kube-apiserver does not say its version")
	}
}

// downAfterACrash kills the supervisor, after which nothing may be left, and starts the lab again with its data.
func downAfterACrash(t *testing.T, l *lab) {
	state := l.state()
	must.Do(t, state.Supervisor.Signal(syscall.SIGKILL))
	for name, identity := range state.Identities {
		await(t, name+" to die with its supervisor", func(context.Context) (bool, any) { return !identity.Alive(), identity })
	}
	if output, err := l.try("status"); err == nil || !strings.Contains(output, "no lab runs in") {
		t.Errorf("status after a crash: %v, %s", err, output)
	}
	l.run("down")
	l.run("down")
	if _, err := os.Stat(l.LabFile()); err == nil {
		t.Error("lab.json speaks of a lab that does not run")
	}
	if output, err := l.try("up", "--nodes=7"); err == nil || !strings.Contains(output, "--nodes 7 contradicts the lab in") {
		t.Errorf("other options for the same folder: %v, %s", err, output)
	}
	l.run("up")
	if _, err := l.client().CoreV1().Nodes().Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
		t.Errorf("the data of the first start: %v", err)
	}
}

// TestTwoLabs starts two labs at the same moment. Neither may reach the other's etcd.
func TestTwoLabs(t *testing.T) {
	labs := []*lab{newLab(t), newLab(t)}
	var outputs []*bufio.Scanner
	for _, l := range labs {
		stdout, stop := l.foreground("--components=etcd,kube-apiserver", "--calico-datastore=none", "--nodes=0")
		t.Cleanup(stop)
		outputs = append(outputs, stdout)
	}
	for i, l := range labs {
		l.awaitLine(outputs[i], "lab ready")
	}
	for i, l := range labs {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("of-lab-", i), Namespace: "default"}}
		await(t, "the default namespace", func(ctx context.Context) (bool, any) {
			_, err := l.client().CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{})
			return err == nil, err
		})
	}
	for i, l := range labs {
		list, err := l.client().CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		must.Do(t, err)
		if len(list.Items) != 1 || list.Items[0].Name != fmt.Sprint("of-lab-", i) {
			t.Errorf("lab %d holds %v", i, list.Items)
		}
	}
	first, second := labs[0].described(), labs[1].described()
	if first.APIServer.URL == second.APIServer.URL || first.Etcd.Endpoints[0] == second.Etcd.Endpoints[0] {
		t.Errorf("ports are shared: %+v and %+v", first, second)
	}
	// Certificates of one lab open nothing in the other.
	mixed := *first.Etcd
	mixed.Endpoints = second.Etcd.Endpoints
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := demo.Read(ctx, mixed); err == nil {
		t.Error("one lab's certificates open the other's etcd")
	}
}

// foreground starts the lab in the foreground and returns its output and a function which stops it by ending its standard input.
func (l *lab) foreground(args ...string) (*bufio.Scanner, func()) {
	l.t.Helper()
	command := exec.Command(testkit.Binary(l.t, "lab"), append([]string{"up", "--foreground", "--stop-with-stdin", "--dir", l.Dir}, args...)...)
	stdin := must.Get(command.StdinPipe()).Or(l.t)
	stdout := must.Get(command.StdoutPipe()).Or(l.t)
	must.Do(l.t, command.Start())
	return bufio.NewScanner(stdout), func() {
		identities := l.state().Identities
		_ = stdin.Close()
		if err := command.Wait(); err != nil {
			l.t.Errorf("the lab ended with %v", err)
		}
		for name, identity := range identities {
			if identity.Alive() {
				l.t.Errorf("%s outlived its supervisor", name)
			}
		}
	}
}

func (l *lab) awaitLine(lines *bufio.Scanner, want string) {
	l.t.Helper()
	for lines.Scan() {
		if lines.Text() == want {
			return
		}
	}
	l.t.Fatalf("the lab ended without %q; its logs are in %s", want, l.Logs())
}

// TestEtcdAlone runs the etcd subcommand as internal/testkit does.
func TestEtcdAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readyFile := filepath.Join(dir, "ready.json")
	command := exec.CommandContext(t.Context(), testkit.Binary(t, "lab"), "etcd", "--data-dir", filepath.Join(dir, "data"),
		"--listen-client", "http://127.0.0.1:0", "--listen-peer", "http://127.0.0.1:0", "--unsafe-no-fsync", "--ready-file", readyFile)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	must.Do(t, command.Start())
	var ready struct{ Client string }
	await(t, "the ready file", func(context.Context) (bool, any) {
		err := folder.ReadJSON(readyFile, &ready)
		return err == nil, err
	})
	if !strings.HasPrefix(ready.Client, "http://127.0.0.1:") || strings.HasSuffix(ready.Client, ":0") {
		t.Errorf("ready file: %+v", ready)
	}
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	if err := command.Wait(); err != nil {
		t.Errorf("etcd ended with %v", err)
	}
}
