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
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
)

// TestRealNodes takes a lab of two real machines and a simulated one through what happens to a Service of type LoadBalancer: its traffic reaches pods by way
// of kube-proxy, but none whose readiness probe fails, and it goes on when the pod's machine is partitioned, switched off or destroyed. Then the lab is killed
// and its folder deleted, and nothing is left of it after `lab clean`.
func TestRealNodes(t *testing.T) {
	l := prepare(t)
	if out, err := l.try("up", "--real-nodes", "2", "--nodes", "3", "--calico-datastore", "none"); err != nil {
		t.Fatal(err, out)
	}
	api := l.client()
	checkNodes(t, api)
	createWeb(t, api)
	w := &web{lab: l, api: api}
	w.ready(2)
	await(t, "the address of the load balancer", func() error {
		service, err := api.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return errors.Join(err, errors.New("it has none"))
		}
		w.address = service.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	w.answeredBy(w.names)
	await(t, "the Service by the name that CoreDNS knows", func() error {
		_, err := l.ask("http://" + w.address + "/fetch?url=http://web.default.svc.cluster.local/name")
		return err
	})
	w.probeFails()
	for _, fault := range []struct{ name, begin, end string }{
		{"partition", "node freeze", "node thaw"},
		{"power off", "droplet power-off", "droplet power-on"},
		{"destruction", "droplet delete", ""},
	} {
		t.Run(fault.name, func(t *testing.T) { w.on(t).survives(fault.begin, fault.end) })
	}
	l.checkClean()
}

// checkClean leaves the control groups of two labs behind, one that never ran in this folder and this one, killed and with its folder deleted, and removes
// both with `lab clean`, which leaves a lab that runs alone.
func (l *lab) checkClean() {
	l.t.Helper()
	const other = "/mooring-lab-0000test"
	if err := cgroup.Make(other + "/node-1"); err != nil {
		l.t.Fatal(err)
	}
	if out := l.run("clean"); !strings.Contains(out, "removed: control group "+other+"\n") || strings.Contains(out, cgroup.Root(l.Dir)) {
		l.t.Errorf("beside a lab that runs it prints %q", out)
	}
	if err := l.state().Supervisor.Signal(unix.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	await(l.t, "all processes to end", func() error { return l.left(false) })
	if err := os.RemoveAll(l.Dir); err != nil {
		l.t.Fatal(err)
	}
	if out := l.run("clean"); !strings.Contains(out, "removed: control group "+cgroup.Root(l.Dir)+"\n") {
		l.t.Errorf("after a kill it prints %q", out)
	}
	if err := l.left(true); err != nil {
		l.t.Error(err)
	}
}

// web is the Deployment of createWeb, with the address of its load balancer.
type web struct {
	*lab
	api     kubernetes.Interface
	address string
}

// on is the same in a part of the test.
func (w *web) on(t *testing.T) *web {
	l := *w.lab
	l.t = t
	return &web{lab: &l, api: w.api, address: w.address}
}

// pods are those that are not about to end.
func (w *web) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.api.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func (w *web) names() (names []string) {
	w.t.Helper()
	for _, pod := range w.pods() {
		names = append(names, pod.Name)
	}
	return names
}

// ready waits until so many pods are.
func (w *web) ready(count int32) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%d pods that are ready", count), func() error {
		d, err := w.api.AppsV1().Deployments("default").Get(w.t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != count {
			err = fmt.Errorf("status %+v", d.Status)
		}
		return err
	})
}

// answeredBy waits until all of the pods that names returns have answered through the load balancer, and no other does any more.
func (w *web) answeredBy(names func() []string) {
	w.t.Helper()
	// Each connection goes to any of the ready pods: one of two is missed by sixty in a row once in 10^18 times.
	const most = 60
	await(w.t, "answers of all pods that are ready, and no other", func() error {
		wanted, seen := names(), map[string]bool{}
		for range most {
			name, err := w.ask("http://" + w.address + "/name")
			if err != nil {
				return err
			}
			if !slices.Contains(wanted, name) {
				return fmt.Errorf("%s answers instead of %v", name, wanted)
			}
			seen[name] = true
		}
		if len(seen) < len(wanted) {
			return fmt.Errorf("only %v answer of %v", seen, wanted)
		}
		return nil
	})
}

// probeFails has the readiness probe of one pod fail, and succeed again.
func (w *web) probeFails() {
	w.t.Helper()
	names := w.names()
	become := func(well string) {
		w.t.Helper()
		await(w.t, "the pod to become well: "+well, func() error {
			return w.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/pods", names[0]+":8080", "proxy/become").Param("well", well).Do(w.t.Context()).Error()
		})
	}
	become("false")
	w.ready(1)
	w.answeredBy(func() []string { return names[1:] })
	become("true")
	w.ready(2)
	w.answeredBy(func() []string { return names })
}

// survives does to the machine of a pod what the words of the command say: pods run and answer elsewhere, and here again after its end, unless there is none.
func (w *web) survives(begin, end string) {
	w.t.Helper()
	machine := w.pods()[0].Spec.NodeName
	w.run(append(strings.Fields(begin), machine)...)
	await(w.t, "pods on other machines", func() error {
		pods := w.pods()
		for _, pod := range pods {
			if pod.Spec.NodeName == machine || !isReady(pod) {
				return fmt.Errorf("%s is on %s, ready: %t", pod.Name, pod.Spec.NodeName, isReady(pod))
			}
		}
		if len(pods) < 2 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	w.answeredBy(w.names)
	if end == "" {
		await(w.t, "the end of the machine's disk and Node", func() error {
			_, err := w.api.CoreV1().Nodes().Get(w.t.Context(), machine, metav1.GetOptions{})
			if _, statErr := os.Stat(w.RealNode(machine)); err == nil || !errors.Is(statErr, os.ErrNotExist) {
				return fmt.Errorf("the Node: %w; the disk: %w", err, statErr)
			}
			return nil
		})
		return
	}
	w.run(append(strings.Fields(end), machine)...)
	await(w.t, machine+" to be ready again", func() error {
		node, err := w.api.CoreV1().Nodes().Get(w.t.Context(), machine, metav1.GetOptions{})
		if err == nil && (!fleet.IsUp(machines.Machine{Droplet: 1}, *node, false) || len(node.Spec.Taints) > 0) {
			err = fmt.Errorf("taints %v, conditions %+v", node.Spec.Taints, node.Status.Conditions)
		}
		return err
	})
	for _, pod := range w.pods() { // the next ones are spread over all machines again
		err := w.api.CoreV1().Pods("default").Delete(w.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil {
			w.t.Fatal(err)
		}
		await(w.t, "two other pods", func() error {
			if now := w.names(); len(now) != 2 || slices.Contains(now, pod.Name) {
				return fmt.Errorf("they are %v", now)
			}
			return nil
		})
		w.ready(2)
	}
	w.answeredBy(w.names)
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
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
		if realMachine != (i < 2) || tainted != (i == 2) || !fleet.IsUp(machines.Machine{Droplet: 1}, *node, false) {
			t.Errorf("%s: real %t, tainted %t, %+v, %+v", name, realMachine, tainted, node.Spec, node.Status.Conditions)
		}
	}
}

// createWeb creates a Deployment with two pods, which leave a silent machine at once, and its Service.
func createWeb(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	soon, replicas := int64(1), int32(2)
	pod := corev1.PodSpec{
		AutomountServiceAccountToken: new(bool),
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		}},
		Containers: []corev1.Container{{
			Name: "web", Image: "docker.io/mooring-lab/sample:lab", ImagePullPolicy: corev1.PullNever,
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{
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
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
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

// ask asks a URL once, from the lab's network namespace.
func (l *lab) ask(url string) (string, error) {
	const timeout = 5 * time.Second
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
