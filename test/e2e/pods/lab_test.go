// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// lab is one with real machines.
type lab struct {
	testing.TB
	dir    string
	client kubernetes.Interface
}

// images are the lab's flags for images that are made of programs in bin/.
func images(names ...string) (flags []string) {
	for _, name := range names {
		flags = append(flags, "--image", name)
	}
	return flags
}

// coreImage is that of the core etcd.
const coreImage = "quay.io/coreos/etcd:v3.7.3"

// start starts a lab with two real machines, without a cloud, and what further flags ask for. No machine fails in it, so one that is silent is only slow, as this
// one may be, and keeps its pods.
func start(t *testing.T, more ...string) *lab {
	t.Helper()
	return startLab(t, append([]string{
		"--real-nodes", "2", "--nodes", "2", "--cloud", "none", "--calico-datastore", "none", "--node-monitor-grace-period", "5m",
	}, more...)...)
}

// startLab starts a lab with real machines, or skips the test where there can be none.
func startLab(t *testing.T, flags ...string) *lab {
	t.Helper()
	l := &lab{TB: t, dir: filepath.Join(t.TempDir(), "lab")}
	t.Cleanup(func() {
		if t.Failed() {
			l.tellLogs()
		}
		if out, err := l.try("down", "--delete"); err != nil {
			t.Log(err, out)
		}
	})
	out, err := l.try(append([]string{"up"}, flags...)...)
	if err != nil && strings.Contains(err.Error(), "lab up: --real-nodes: ") {
		testkit.Skip(t, "it needs real machines: %v", err)
	}
	if err != nil {
		t.Fatal(err, out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	l.client = kubernetes.NewForConfigOrDie(config)
	l.account("default")
	return l
}

// account waits until pods may be created in a namespace: kube-controller-manager makes its service account after it.
func (l *lab) account(namespace string) {
	l.Helper()
	testkit.Eventually(l, "the service account of namespace "+namespace, func() string {
		if _, err := l.client.CoreV1().ServiceAccounts(namespace).Get(l.Context(), "default", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// try runs a command of the lab.
func (l *lab) try(args ...string) (string, error) {
	return testkit.TryLab(l, 10*time.Minute, l.dir, args...)
}

// tellLogs prints the end of what the machines' programs and the pods have written.
func (l *lab) tellLogs() {
	var logs []string
	for _, pattern := range []string{"real-nodes/*/disk/log/pods/*/*/*.log", "real-nodes/*/logs/*.log", "logs/real-nodes.log"} {
		found, _ := filepath.Glob(filepath.Join(l.dir, pattern))
		logs = append(logs, found...)
	}
	testkit.LogEnds(l, 2000, logs...)
}

// kubectl runs kubectl with a manifest as its input.
func (l *lab) kubectl(input string, args ...string) string {
	l.Helper()
	command := exec.CommandContext(l.Context(), testkit.Binary(l, "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.dir, "kubeconfig"))
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		l.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (l *lab) apply(manifest string) { l.Helper(); l.kubectl(manifest, "apply", "-f", "-") }

// available waits until a Deployment is as its spec wants it, and nothing of an earlier spec is left.
func (l *lab) available(namespace, name string) {
	l.Helper()
	testkit.Eventually(l, "deployment "+name, func() string {
		d, err := l.client.AppsV1().Deployments(namespace).Get(l.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		s := d.Status
		if s.ObservedGeneration == d.Generation && s.Replicas == *d.Spec.Replicas && s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas {
			return ""
		}
		return fmt.Sprintf("%d of %d updated, %d available, %d in all; %s", s.UpdatedReplicas, *d.Spec.Replicas, s.AvailableReplicas, s.Replicas, l.podsOf(namespace))
	})
}

// podsOf tells how the pods of a namespace are.
func (l *lab) podsOf(namespace string) string {
	l.Helper()
	var out []string
	for _, pod := range l.pods(namespace) {
		text := fmt.Sprintf("%s is %s", pod.Name, pod.Status.Phase)
		for _, c := range pod.Status.ContainerStatuses {
			text += fmt.Sprintf(", %s ready %t, restarts %d, %+v", c.Name, c.Ready, c.RestartCount, c.State)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func (l *lab) pods(namespace string) []corev1.Pod {
	l.Helper()
	list, err := l.client.CoreV1().Pods(namespace).List(l.Context(), metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return list.Items
}

// ask asks a pod of the image mooring-lab/sample:lab, by way of the API server.
func (l *lab) ask(namespace, pod, path string, parameters map[string]string) (string, error) {
	l.Helper()
	body, err := l.client.CoreV1().Pods(namespace).ProxyGet("http", pod, "8080", path, parameters).DoRaw(l.Context())
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, body)
	}
	return string(body), nil
}

// expect asks a pod until it answers so.
func (l *lab) expect(namespace, pod, path string, parameters map[string]string, want string) {
	l.Helper()
	testkit.Eventually(l, fmt.Sprintf("%q from %s %v", want, path, parameters), func() string {
		got, err := l.ask(namespace, pod, path, parameters)
		if err != nil {
			return err.Error()
		}
		if got != want {
			return fmt.Sprintf("it answers %q", got)
		}
		return ""
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
