// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

const web = `
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: default}
stringData: {key: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: default}
data: {color: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      securityContext: {runAsNonRoot: true, fsGroup: 65532}
      containers:
        - name: web
          image: mooring-lab/sample:dev
          env:
            - {name: COLOR, valueFrom: {configMapKeyRef: {name: config, key: color}}}
            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          ports: [{name: http, containerPort: 8080}]
          startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, failureThreshold: 600}
          readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, timeoutSeconds: 30}
          livenessProbe: {tcpSocket: {port: http}, failureThreshold: 600}
          securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          volumeMounts:
            - {name: secret, mountPath: /secret}
            - {name: scratch, mountPath: /tmp}
      volumes:
        - {name: secret, secret: {secretName: secret, defaultMode: 0440}}
        - {name: scratch, emptyDir: {}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`

// TestDeployment takes a Deployment through its life: pods become ready, see what they should, follow their Secret, reach each other by name, roll, come
// back after their agent was killed, and leave nothing.
func TestDeployment(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.apply(web)
	l.available("default", "web")
	pods := l.pods("default")
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
		l.expect("default", pod.Name, "/env", map[string]string{"name": "POD"}, pod.Name)
		if want := "10.244."; !strings.HasPrefix(pod.Status.PodIP, want) || !strings.HasPrefix(pod.Status.HostIP, "172.30.") {
			t.Errorf("pod %s has the addresses %s and %s", pod.Name, pod.Status.PodIP, pod.Status.HostIP)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("the scheduler has put both pods on one node: %v", nodes)
	}
	first := pods[0].Name
	l.expect("default", first, "/env", map[string]string{"name": "COLOR"}, "blue")
	l.expect("default", first, "/file", map[string]string{"path": "/secret/key"}, "one")
	l.expect("default", first, "/file", map[string]string{"path": "/var/run/secrets/kubernetes.io/serviceaccount/namespace"}, "default")
	if got, err := l.ask("default", first, "/fetch", map[string]string{"url": "http://web.default.svc/name"}); err != nil || !strings.HasPrefix(got, "web-") {
		t.Errorf("by its Service's name it is %q, %v", got, err)
	}

	if got := l.kubectl("", "logs", first); got != "serving on [::]:8080\n" {
		t.Errorf("its log is %q", got)
	}

	l.kubectl("", "patch", "secret", "secret", "-p", `{"stringData":{"key":"two"}}`)
	l.expect("default", first, "/file", map[string]string{"path": "/secret/key"}, "two")

	l.kubectl("", "set", "env", "deployment/web", "COLOR=green")
	l.available("default", "web")
	testkit.Eventually(t, "the old pods' end", func() string {
		for _, pod := range l.pods("default") {
			if got, err := l.ask("default", pod.Name, "/env", map[string]string{"name": "COLOR"}); err != nil || got != "green" {
				return fmt.Sprintf("pod %s says %q, %v", pod.Name, got, err)
			}
		}
		return ""
	})
	killedAgentStartsPodsAnew(t, l)

	l.kubectl(web, "delete", "-f", "-")
	testkit.Eventually(t, "the end of all pods", func() string {
		if pods, files := l.pods("default"), l.files(); len(pods)+len(files) > 0 {
			return fmt.Sprintf("%s; files of %v", l.podsOf("default"), files)
		}
		return ""
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), l.dir) {
		t.Errorf("something of the lab is still mounted:\n%s", mounts)
	}
}

func killedAgentStartsPodsAnew(t *testing.T, l *lab) {
	t.Helper()
	if out, err := l.command(t.Context(), "kill", "pods").CombinedOutput(); err != nil {
		t.Fatalf("lab kill: %v\n%s", err, out)
	}
	testkit.Eventually(t, "the pods' restart", func() string {
		for _, pod := range l.pods("default") {
			for _, c := range pod.Status.ContainerStatuses {
				if c.RestartCount != 1 || !c.Ready {
					return l.podsOf("default")
				}
			}
		}
		return ""
	})
	l.available("default", "web")
	for _, pod := range l.pods("default") { // what the agent keeps of a pod ends with it, logs of earlier runs included
		if got := l.kubectl("", "logs", pod.Name); got != "serving on [::]:8080\n" {
			t.Errorf("the log of pod %s is %q", pod.Name, got)
		}
	}
}

// TestPodsThatCannotRun sees that each one says why.
func TestPodsThatCannotRun(t *testing.T) {
	t.Parallel()
	l := start(t)
	pod := func(name, container, more string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {restartPolicy: Never, containers: [{name: main, %s}] %s}}\n---\n",
			name, container, more)
	}
	l.apply(pod("unknown", "image: nginx:1.29", "") +
		pod("lost", "image: mooring-lab/sample, envFrom: [{secretRef: {name: not-there}}]", "") +
		pod("hook", "image: mooring-lab/sample, readinessProbe: {exec: {command: ['true']}}", "") +
		pod("command", "image: mooring-lab/sample, command: [/bin/sh]", "") +
		pod("ends", "image: mooring-lab/sample, args: [--listen=nowhere], terminationMessagePolicy: FallbackToLogsOnError", ""))
	for name, want := range map[string]string{
		"unknown": `ErrImagePull: image "nginx:1.29" is unknown here, and the lab pulls nothing; it knows `,
		"lost":    `CreateContainerConfigError: secrets "not-there" not found`,
		"hook":    "CreateContainerConfigError: the readinessProbe of container main is of a kind that the lab does not have; use httpGet or tcpSocket",
		"command": `CreateContainerConfigError: command "/bin/sh" is not in the image, which holds /bin/lab only`,
		"ends":    "Error 1 Failed: ",
	} {
		testkit.Eventually(t, "the trouble of pod "+name, func() string {
			for _, pod := range l.pods("default") {
				if pod.Name == name {
					if got := trouble(pod); !strings.HasPrefix(got, want) {
						return got + " is not " + want
					}
					return ""
				}
			}
			return "there is no such pod"
		})
	}
	for _, pod := range l.pods("default") {
		if pod.Name == "ends" && !strings.Contains(trouble(pod), "missing port in address") {
			t.Errorf("the last words of a container that failed are %q", trouble(pod))
		}
	}
}

// trouble is what the status says of the only container.
func trouble(pod corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return "nothing is known"
	}
	switch state := pod.Status.ContainerStatuses[0].State; {
	case state.Waiting != nil:
		return state.Waiting.Reason + ": " + state.Waiting.Message
	case state.Terminated != nil:
		return fmt.Sprintf("%s %d %s: %s", state.Terminated.Reason, state.Terminated.ExitCode, pod.Status.Phase, state.Terminated.Message)
	default:
		return "it runs"
	}
}
