// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
)

// TestRealNodes takes a lab of two real machines and a simulated one through what happens to a Service of type LoadBalancer: its traffic reaches a pod by
// way of kube-proxy, also after the machine of that pod is destroyed. Then the lab is killed, and nothing is left of it.
func TestRealNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e-pods builds it and runs this")
	}
	l := prepare(t)
	if err := realnode.Judge(realnode.Examine(filepath.Dir(l.binary))); err != nil {
		need(t, err.Error())
	}
	if out, err := l.try("up", "--real-nodes", "2", "--nodes", "3", "--calico-datastore", "none"); err != nil {
		l.showMachines()
		t.Fatal(err, out)
	}
	api := l.client()
	checkNodes(t, api)
	createWeb(t, api)
	await(t, "the web Deployment", func() error {
		web, err := api.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && web.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("status %+v", web.Status)
		}
		return err
	})
	var address string
	await(t, "the address of the load balancer", func() error {
		service, err := api.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return errors.Join(err, errors.New("it has none"))
		}
		address = service.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	first := l.answer("http://"+address+"/name", "")
	l.answer("http://"+address+"/fetch?url=http://web.default.svc.cluster.local/name", first) // by a name that CoreDNS knows

	pods, err := api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	l.run("droplet", "delete", pods.Items[0].Spec.NodeName)
	var second string
	await(t, "another pod to answer", func() error {
		second, err = l.ask("http://" + address + "/name")
		if err == nil && second == first {
			err = fmt.Errorf("%s still answers", first)
		}
		return err
	})
	if _, err := os.Stat(l.RealNode(pods.Items[0].Spec.NodeName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the disk of the machine that was destroyed: %v", err)
	}
	l.checkKilled()
}

// checkNodes checks that the real machines' Nodes are as a kubelet and the cloud component make them, and that pods keep away from the simulated one.
func checkNodes(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	for i, name := range []string{"node-1", "node-2", "node-3"} {
		node, err := api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		realMachine := !strings.HasPrefix(node.Status.NodeInfo.OSImage, "Mooring")
		tainted := len(node.Spec.Taints) > 0 && node.Spec.Taints[0].Key == fleet.SimulatedTaint
		if realMachine != (i < 2) || tainted != (i == 2) || !fleet.IsUp(machines.Machine{Droplet: 1}, *node) {
			t.Errorf("%s: real %t, tainted %t, %+v, %+v", name, realMachine, tainted, node.Spec, node.Status.Conditions)
		}
	}
}

// createWeb creates a Deployment with one pod, which leaves a silent machine at once, and its Service.
func createWeb(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	soon := int64(1)
	pod := corev1.PodSpec{
		AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{
			Name: "web", Image: "docker.io/mooring-lab/sample:lab", ImagePullPolicy: corev1.PullNever,
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)},
			}},
		}},
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon,
		})
	}
	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: labels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// answer waits until a URL answers, with want unless that is empty, to somebody in the lab's network namespace.
func (l *lab) answer(url, want string) (got string) {
	l.t.Helper()
	await(l.t, url, func() (err error) {
		if got, err = l.ask(url); err == nil && want != "" && got != want {
			err = fmt.Errorf("it answers %q, want %q", got, want)
		}
		return err
	})
	return got
}

func (l *lab) ask(url string) (string, error) {
	const timeout = 3 * time.Second
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return string(content), err
}

// checkKilled kills the lab's supervisor, and checks that no process is left and that `lab down` removes what the kernel does not.
func (l *lab) checkKilled() {
	l.t.Helper()
	if err := unix.Kill(l.state().Supervisor.PID, unix.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	await(l.t, "all processes to end", l.processes)
	l.run("down")
	groups, err := filepath.Glob(filepath.Join(cgroup.Mount, "*", cgroup.Root(l.Dir)))
	if err != nil || len(groups) > 0 {
		l.t.Errorf("control groups are left: %v, %v", groups, err)
	}
}

// processes names the processes of this machine whose command line speaks of the lab's folder or of its pods.
func (l *lab) processes() error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		words, _ := os.ReadFile(file)
		mounts, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if strings.Contains(string(words), l.RealNodes()) || strings.Contains(string(mounts), cgroup.Root(l.Dir)+"/") {
			errs = append(errs, fmt.Errorf("%s: %s", file, strings.ReplaceAll(string(words), "\x00", " ")))
		}
	}
	return errors.Join(errs...)
}

// showMachines logs the ends of what the programs of real machines have said.
func (l *lab) showMachines() {
	const most = 2000
	files, _ := filepath.Glob(filepath.Join(l.RealNodes(), "*", "logs", "*.log"))
	for _, file := range append(files, l.Log(blueprint.RealNodes)) {
		if content, err := os.ReadFile(file); err == nil {
			l.t.Logf("%s:\n%s", file, content[max(0, len(content)-most):])
		}
	}
}
