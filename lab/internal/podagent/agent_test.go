// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
	"github.com/mooring-dev/mooring/lab/internal/podnet"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// launch has the test binary be the launcher.
const launch = "launch"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == launch {
		_ = container.Launch(os.Args[2])
		os.Exit(1)
	}
	testkit.Main(m)
}

// network gives each pod a namespace without any cable, and the same address.
type network struct {
	mu       sync.Mutex
	attached map[string]*netns.Namespace
}

func (n *network) Attach(_ context.Context, key string) (podnet.Attachment, error) {
	namespace, err := netns.New()
	if err != nil {
		return podnet.Attachment{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attached[key] = namespace
	return podnet.Attachment{Key: key, IP: netip.MustParseAddr("10.244.0.2"), Namespace: namespace}, nil
}

func (n *network) Detach(key string) error {
	n.mu.Lock()
	namespace := n.attached[key]
	delete(n.attached, key)
	n.mu.Unlock()
	if namespace != nil {
		namespace.Close()
	}
	return nil
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.attached)
}

// rig is an agent for one machine, with a real API server and a namespace of the test's own.
type rig struct {
	*testing.T
	*controlplane.Cluster
	node, dir string
	network   *network
	stop      func()

	mu      sync.Mutex // guards what follows
	machine machines.Machine
	asked   int // how often the agent has read the list of machines
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		testkit.Skip(t, "it needs root: it makes mount and PID namespaces")
	}
	probe, err := netns.New()
	if errors.Is(err, netns.ErrNotAllowed) {
		testkit.Skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	probe.Close()
	cluster := controlplane.Shared(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	namespace, err = cluster.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := namespace.Name
	if _, err := cluster.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &rig{
		T: t, Cluster: cluster, node: node, dir: filepath.Join(t.TempDir(), "pods"), network: &network{attached: map[string]*netns.Namespace{}},
		machine: machines.Machine{Name: node, Address: netip.MustParseAddr("127.0.0.1"), State: machines.Running},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := r.Client.CoreV1().ServiceAccounts(node).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.start()
	return r
}

// start starts an agent and waits until it runs pods.
func (r *rig) start() {
	r.Helper()
	lab := testkit.Binary(r, "lab")
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	images, err := image.NewTable(filepath.Dir(lab), lab, nil)
	if err != nil {
		r.Fatal(err)
	}
	agent := New(Config{
		API: r.Client, Network: r.network, Images: images, Dir: r.dir, Launcher: container.Launcher{self, launch},
		Machines: func() (machines.List, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked++
			return machines.List{Machines: []machines.Machine{r.machine}}, nil
		},
		Variables: map[string]string{"FIRST": "1"}, ResolvConf: func(namespace string) string { return "search " + namespace + "\n" }, Logger: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- agent.Run(ctx, &record.FakeRecorder{}, func() error { close(ready); return nil })
	}()
	select {
	case <-ready:
	case err := <-ended:
		r.Fatal(err)
	}
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
		if n := r.network.count(); n > 0 {
			r.Errorf("%d networks are left of an agent that has ended", n)
		}
	})
	r.Cleanup(func() { r.stop() })
}

// become changes the machine and waits until the agent knows: it has read the list once more after it has read the new one.
func (r *rig) become(state machines.State) {
	r.Helper()
	r.mu.Lock()
	r.machine.State = state
	before := r.asked
	r.mu.Unlock()
	testkit.Eventually(r, "the agent to read the list of machines", func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.asked < before+2 {
			return fmt.Sprintf("it has read it %d times since", r.asked-before)
		}
		return ""
	})
}

// sample is a container of the sample image.
func sample(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image.Own + "sample", Args: args}
}

func (r *rig) create(name string, spec corev1.PodSpec) *corev1.Pod {
	r.Helper()
	no := false
	spec.NodeName, spec.AutomountServiceAccountToken = r.node, &no
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	created, err := r.Client.CoreV1().Pods(r.node).Create(r.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return created
}

func (r *rig) get(name string) corev1.Pod {
	r.Helper()
	pod, err := r.Client.CoreV1().Pods(r.node).Get(r.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return corev1.Pod{}
	}
	if err != nil {
		r.Fatal(err)
	}
	return *pod
}

// until waits until the pod is so.
func (r *rig) until(name, what string, is func(corev1.Pod) bool) corev1.Pod {
	r.Helper()
	var pod corev1.Pod
	testkit.Eventually(r, name+" to be "+what, func() string {
		if pod = r.get(name); is(pod) {
			return ""
		}
		return fmt.Sprintf("it is %+v", pod.Status)
	})
	return pod
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func isGone(pod corev1.Pod) bool { return pod.Name == "" }

func phaseIs(phase corev1.PodPhase) func(corev1.Pod) bool {
	return func(pod corev1.Pod) bool { return pod.Status.Phase == phase }
}

// serves waits until the sample program says that it serves.
func (r *rig) serves(pod *corev1.Pod) {
	r.Helper()
	testkit.Eventually(r, pod.Name+" to serve", func() string {
		content, err := os.ReadFile(logFile(filepath.Join(r.dir, string(pod.UID)), "main", 0))
		if strings.HasPrefix(string(content), "serving") {
			return ""
		}
		return fmt.Sprintf("its log is %q, %v", content, err)
	})
}

// nothingLeft waits until the agent keeps nothing of the pod.
func (r *rig) nothingLeft(pod *corev1.Pod) {
	r.Helper()
	testkit.Eventually(r, "the end of "+pod.Name+"'s files", func() string {
		if _, err := os.Stat(filepath.Join(r.dir, string(pod.UID))); !errors.Is(err, os.ErrNotExist) {
			return fmt.Sprintf("its folder: %v", err)
		}
		return ""
	})
}

// TestInitContainersFirst has one init container that works, and one that does not.
func TestInitContainersFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good := r.create("good", corev1.PodSpec{InitContainers: []corev1.Container{sample("init", "--exit=0")}, Containers: []corev1.Container{sample("main")}})
	pod := r.until("good", "ready", isReady)
	state := pod.Status.InitContainerStatuses[0].State.Terminated
	if main := pod.Status.ContainerStatuses[0].State.Running; state == nil || main == nil || main.StartedAt.Before(&state.FinishedAt) || state.Reason != "Completed" {
		t.Errorf("init %+v, main %+v", state, main)
	}
	if pod.Status.PodIP != "10.244.0.2" || pod.Status.HostIP != "127.0.0.1" {
		t.Errorf("addresses %s, %s", pod.Status.PodIP, pod.Status.HostIP)
	}
	bad := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{sample("init", "--exit=4")}, Containers: []corev1.Container{sample("main")},
	}
	r.create("bad", bad)
	pod = r.until("bad", "failed", phaseIs(corev1.PodFailed))
	if state := pod.Status.InitContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 4 || pod.Status.ContainerStatuses[0].State.Running != nil {
		t.Errorf("init %+v, main %+v", state, pod.Status.ContainerStatuses[0].State)
	}
	r.serves(good)
	if err := r.Client.CoreV1().Pods(r.node).Delete(t.Context(), "good", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("good", "gone", isGone)
	r.nothingLeft(good)
}

// TestRestartPolicy ends programs under each policy.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := func(name string, policy corev1.RestartPolicy, args ...string) {
		r.create(name, corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{sample("main", args...)}})
	}
	run("done", corev1.RestartPolicyOnFailure, "--exit=0")
	run("never", corev1.RestartPolicyNever, "--exit=3")
	run("always", corev1.RestartPolicyAlways, "--exit=0")
	run("again", corev1.RestartPolicyOnFailure, "--exit=1")
	r.until("done", "succeeded", phaseIs(corev1.PodSucceeded))
	pod := r.until("never", "failed", phaseIs(corev1.PodFailed))
	if state := pod.Status.ContainerStatuses[0].State.Terminated; state == nil || state.ExitCode != 3 || state.Reason != "Error" || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it is %+v", pod.Status.ContainerStatuses[0])
	}
	for _, name := range []string{"always", "again"} {
		pod := r.until(name, "restarted twice", func(pod corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount >= 2
		})
		if c := pod.Status.ContainerStatuses[0]; c.LastTerminationState.Terminated == nil || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s is %s, %+v", name, pod.Status.Phase, c)
		}
	}
	// What has ended for good stays so when the agent is another.
	r.stop()
	r.start()
	r.until("always", "restarted again", func(pod corev1.Pod) bool { return pod.Status.ContainerStatuses[0].RestartCount >= 4 })
	if pod := r.get("never"); pod.Status.Phase != corev1.PodFailed || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it is %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses[0])
	}
}

// TestProbes has a container on the host's network be ready, and one be ended because it is not alive.
func TestProbes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)
	dial := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}
	main := sample("main", "--listen=127.0.0.1:0")
	main.StartupProbe = &corev1.Probe{ProbeHandler: dial, PeriodSeconds: 1, FailureThreshold: 600}
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: dial, PeriodSeconds: 1, TimeoutSeconds: 30}
	main.LivenessProbe = &corev1.Probe{ProbeHandler: dial, PeriodSeconds: 1, TimeoutSeconds: 30, FailureThreshold: 1}
	r.create("probed", corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{main}})
	r.until("probed", "ready", isReady)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	pod := r.until("probed", "restarted", func(pod corev1.Pod) bool { return pod.Status.ContainerStatuses[0].RestartCount > 0 })
	if isReady(pod) || pod.Status.PodIP != "127.0.0.1" {
		t.Errorf("it is %+v", pod.Status)
	}
	// Its startup probe has not succeeded since, so that nothing else is asked and it goes on.
	r.until("probed", "running", func(pod corev1.Pod) bool {
		c := pod.Status.ContainerStatuses[0]
		return c.State.Running != nil && !c.Ready && !*c.Started
	})
}

// TestStubbornProgramIsKilled deletes a pod that does not listen, and one by force.
func TestStubbornProgramIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, grace := range map[string]int64{"polite": 600, "stubborn": 1, "forced": 0} {
		var args []string
		if name != "polite" {
			args = append(args, "--stubborn")
		}
		pod := r.create(name, corev1.PodSpec{Containers: []corev1.Container{sample("main", args...)}})
		r.until(name, "ready", isReady)
		r.serves(pod) // only then it hears what it is told, as the first process of its namespace
		if err := r.Client.CoreV1().Pods(r.node).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
		r.until(name, "gone", isGone)
		r.nothingLeft(pod)
	}
	if n := r.network.count(); n > 0 {
		t.Errorf("%d networks are left", n)
	}
}

// TestMachineIsFrozenAndOff sees that nothing is heard of the machine's pods, and what becomes of them.
func TestMachineIsFrozenAndOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.create("one", corev1.PodSpec{Containers: []corev1.Container{sample("main")}})
	before := r.until("one", "ready", isReady)
	r.become(machines.Frozen)
	grace := int64(0)
	if err := r.Client.CoreV1().Pods(r.node).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := r.get("one"); isGone(now) || now.DeletionTimestamp == nil || !isReady(now) {
		t.Errorf("a machine that is frozen has said %+v", now.Status)
	}
	r.become(machines.Off)
	r.nothingLeft(pod)
	if after := r.get("one"); after.UID != before.UID || after.Status.Phase != corev1.PodRunning || r.network.count() > 0 {
		t.Errorf("a machine that is off has said %+v, or has %d networks left", after.Status, r.network.count())
	}
	if err := r.Client.CoreV1().Pods(r.node).Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	r.become(machines.Running)
	r.create("two", corev1.PodSpec{Containers: []corev1.Container{sample("main")}})
	r.until("two", "ready", isReady)
}

// TestVolumesAndToken reads, from outside, what the pod has in its volumes.
func TestVolumesAndToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	main := sample("main")
	main.VolumeMounts = []corev1.VolumeMount{{Name: "all", MountPath: "/all"}}
	pod := r.create("pod", corev1.PodSpec{
		Containers: []corev1.Container{main},
		Volumes: []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
		}}}}},
	})
	// It waits for the ConfigMap, and says so.
	r.until("pod", "waiting", func(pod corev1.Pod) bool { return pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodPending })
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "1"}}
	if _, err := r.Client.CoreV1().ConfigMaps(r.node).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("pod", "ready", isReady)
	file := func(name string) string {
		content, err := os.ReadFile(filepath.Join(r.dir, string(pod.UID), volumesFolder, "all", name))
		if err != nil {
			return err.Error()
		}
		return string(content)
	}
	if strings.Count(file("token"), ".") != 2 || file("key") != "1" {
		t.Errorf("token %s, key %s", file("token"), file("key"))
	}
	config.Data["key"] = "2"
	if _, err := r.Client.CoreV1().ConfigMaps(r.node).Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the new content", func() string {
		if got := file("key"); got != "2" {
			return got
		}
		return ""
	})
}
