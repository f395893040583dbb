// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	// secondImage is that of the second kube-apiserver, which is made of the lab's own program.
	secondImage = "registry.k8s.io/kube-apiserver:v1.37.2"
	proxies     = "kube-apiserver-storage" // namespace of the operator and the proxies
	// compaction is how often both API servers compact: upstream's default is 5 minutes.
	compaction = "--etcd-compaction-interval=30s"
)

// second is a kube-apiserver of its own, with no other component, on the storage team-b. Anyone who reaches it may do anything: the lab's
// API server, by way of which the test does, passes no credentials on.
const second = `
apiVersion: v1
kind: Secret
metadata: {name: kube-apiserver, namespace: team-b}
stringData:
  policy.jsonl: '{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec":
    {"group": "system:unauthenticated", "namespace": "*", "resource": "*", "apiGroup": "*", "nonResourcePath": "*"}}'
data: {sa.key: %[1]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kube-apiserver, namespace: team-b}
spec:
  selector: {matchLabels: {app: kube-apiserver}}
  template:
    metadata: {labels: {app: kube-apiserver}}
    spec:
      automountServiceAccountToken: false
      containers:
        - name: kube-apiserver
          image: ` + secondImage + `
          args:
            - --etcd-servers=https://etcd-team-b.kube-apiserver-storage.svc:2379
            - --etcd-cafile=/etcd/ca/serving-ca.crt
            - --etcd-certfile=/etcd/client/tls.crt
            - --etcd-keyfile=/etcd/client/tls.key
            - %[2]s
            - --advertise-address=$(IP)
            - --secure-port=6443
            - --cert-dir=/tmp/certificates
            - --service-account-issuer=https://kubernetes.default.svc
            - --service-account-key-file=/secret/sa.key
            - --service-account-signing-key-file=/secret/sa.key
            - --service-cluster-ip-range=10.97.0.0/16
            - --endpoint-reconciler-type=none
            - --authorization-mode=RBAC,ABAC
            - --authorization-policy-file=/secret/policy.jsonl
          env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
          ports: [{name: https, containerPort: 6443}]
          readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}, periodSeconds: 1, timeoutSeconds: 30}
          volumeMounts:
            - {name: secret, mountPath: /secret}
            - {name: etcd-ca, mountPath: /etcd/ca}
            - {name: etcd-client, mountPath: /etcd/client}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: secret, secret: {secretName: kube-apiserver}}
        - {name: etcd-ca, configMap: {name: etcd-serving-ca}}
        - {name: etcd-client, secret: {secretName: etcd-client-cert}}
        - {name: tmp, emptyDir: {}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: team-b}
spec: {selector: {app: kube-apiserver}, ports: [{name: https, port: 443, targetPort: https}]}
`

// administrator is a pod that reads the core with the operator's certificate.
const administrator = `
apiVersion: v1
kind: Pod
metadata: {name: administrator, namespace: kube-apiserver-storage}
spec:
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: mooring-lab/sample:lab
      ports: [{containerPort: 8080}]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: ca, mountPath: /ca}, {name: cert, mountPath: /cert}]
  volumes:
    - {name: ca, configMap: {name: etcd-coreserving-ca}}
    - {name: cert, secret: {secretName: etcd-coreserving-cert, defaultMode: 0440}}
`

// TestAPIServers runs an aggregated API server and a second kube-apiserver, both upstream's own, on two tenants of one core. Both are written to and
// watched all the while, as the proxies are rolled and killed, the certificates and a CA are replaced, the core is killed, and both compact:
// nothing that was acknowledged is lost, watchers that resume miss nothing and see nothing twice, and neither has a key of the other.
func TestAPIServers(t *testing.T) {
	needBinaries(t)
	l := start(t, images(coreImage, "mooring/etcd-storage-operator:dev", "mooring/etcd-storage-proxy:dev", secondImage,
		"registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2="+controlplane.BuildSampleAPIServer(t))...)
	l.deployOperator(t)
	example := filepath.Join(testkit.Root(t), "config/etcd-storage-operator/example")
	team := read(t, filepath.Join(example, "team-a.yaml"))
	l.apply(team + "\n---\n" + strings.ReplaceAll(team, "team-a", "team-b"))
	l.storageReady("team-a")
	l.storageReady("team-b")
	l.account("team-a")
	l.account("team-b")
	const anchor = "            - --secure-port=8443\n"
	sample := read(t, filepath.Join(example, "apiserver.yaml"))
	l.apply(strings.Replace(sample, anchor, anchor+"            - "+compaction+"\n", 1))
	key := testkit.NewAuthority(t, "accounts").Issue(t, testkit.Leaf{}).Key
	l.apply(fmt.Sprintf(second, base64.StdEncoding.EncodeToString(key), compaction))
	l.apply(administrator + "---" + client + "---" + strings.ReplaceAll(client, "team-a", "team-b"))
	l.available("team-b", "kube-apiserver")
	l.available("team-a", "apiserver")
	flundersByKubectl(t, l)

	flunders := begin(t, l.flunders(t), metav1.TypeMeta{APIVersion: "wardle.example.com/v1alpha1", Kind: "Flunder"}, "flunder")
	configMaps := begin(t, l.secondConfigMaps(t), metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, "configmap")
	progress := func() { t.Helper(); flunders.progress(10); configMaps.progress(10) }
	progress()
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"rolling restart of all proxies", l.rollProxies},
		{"kill -9 of one proxy of each tenant", func() { l.killProxies(1) }},
		{"kill -9 of all proxies", func() { l.killProxies(100) }},
		{"new certificates", func() { l.rotate(t) }},
		{"new certificates in new proxies", l.rollProxies},
		{"kill -9 of the core", func() { l.kill("etcd-core", "app=etcd", 1); l.available("etcd-core", "etcd") }},
		{"compaction by both", l.compacted},
	} {
		t.Log(fault.name)
		fault.do()
		progress()
	}
	flunders.end()
	configMaps.end()
	l.apart()
}

// flundersByKubectl sees that flunders are a resource like any other. Before what it says kubectl warns that they are deprecated.
func flundersByKubectl(t *testing.T, l *lab) {
	t.Helper()
	testkit.Eventually(t, "the APIService", func() string {
		const condition = `jsonpath={.status.conditions[?(@.type=="Available")]}`
		if got := l.kubectl("", "get", "apiservice", "v1alpha1.wardle.example.com", "-o", condition); !strings.Contains(got, `"status":"True"`) {
			return "it is " + got
		}
		return ""
	})
	l.kubectl(`{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": "first", "namespace": "default"}}`, "create", "-f", "-")
	l.kubectl("", "annotate", "flunder", "first", "color=blue")
	if got := l.kubectl("", "get", "flunders", "-o", "name"); !strings.HasSuffix("\n"+got, "\nflunder.wardle.example.com/first\n") {
		t.Errorf("kubectl get flunders says %q", got)
	}
	if got := l.kubectl("", "get", "flunders", "--watch", "--request-timeout=2s", "-o", "jsonpath={.metadata.annotations.color}"); !strings.HasSuffix("\n"+got, "\nblue") {
		t.Errorf("kubectl get flunders --watch says %q", got)
	}
}

func (l *lab) config() *rest.Config {
	l.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	if err != nil {
		l.Fatal(err)
	}
	config.QPS, config.Burst, config.WarningHandler = -1, -1, rest.NoWarnings{} // flunders are deprecated
	return config
}

func (l *lab) flunders(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return dynamic.NewForConfigOrDie(l.config()).Resource(schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}).Namespace("default")
}

// secondConfigMaps are those of the second kube-apiserver, reached as any Service is from outside of the lab.
func (l *lab) secondConfigMaps(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	config := l.config()
	config.Host += "/api/v1/namespaces/team-b/services/https:kube-apiserver:https/proxy"
	return dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
}

func (l *lab) rollProxies() {
	l.Helper()
	for _, name := range []string{"etcd-team-a", "etcd-team-b"} {
		l.kubectl("", "-n", proxies, "rollout", "restart", "deployment/"+name)
	}
	for _, name := range []string{"etcd-team-a", "etcd-team-b"} {
		l.available(proxies, name)
	}
}

func (l *lab) killProxies(most int) {
	l.Helper()
	for _, name := range []string{"team-a", "team-b"} {
		l.kill(proxies, v1alpha1.PodLabel+"="+name, most)
	}
	for _, name := range []string{"etcd-team-a", "etcd-team-b"} {
		l.available(proxies, name)
	}
}

// kill kills the containers of some of the pods with a label, and waits until they run again. A container's process is found by its control group.
func (l *lab) kill(namespace, label string, most int) {
	l.Helper()
	list, err := l.client.CoreV1().Pods(namespace).List(l.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		l.Fatal(err)
	}
	ending := func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil } // from a rollout before
	pods := slices.DeleteFunc(list.Items, ending)
	if len(pods) == 0 {
		l.Fatalf("there is no pod with %s", label)
	}
	pods = pods[:min(most, len(pods))]
	for _, pod := range pods {
		found := l.processes(pod.UID)
		if len(found) == 0 {
			l.Fatalf("pod %s has no process", pod.Name)
		}
		for _, pid := range found {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				l.Fatal(err)
			}
		}
	}
	for _, pod := range pods {
		before := pod.Status.ContainerStatuses[0].RestartCount
		testkit.Eventually(l, "the restart of pod "+pod.Name, func() string {
			now, err := l.client.CoreV1().Pods(namespace).Get(l.Context(), pod.Name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if s := now.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount <= before || !s[0].Ready {
				return "the pods: " + l.podsOf(namespace)
			}
			return ""
		})
	}
}

// processes are those of the containers of a pod, without the one that holds its namespaces.
func (l *lab) processes(pod types.UID) []int {
	l.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		l.Fatal(err)
	}
	var out []int
	for _, path := range groups {
		group, _ := os.ReadFile(path) // which fails for a process that has ended meanwhile
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if !strings.Contains(string(group), "/pod"+string(pod)+"/") || strings.HasPrefix(string(words), "/bin/pause") {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			l.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

// rotate replaces the certificates of the proxies, and the CA of their clients with the certificates that it made.
func (l *lab) rotate(t *testing.T) {
	t.Helper()
	served, delivered := map[string]string{}, map[string]string{}
	certificate := func(namespace, secret string) string {
		return l.kubectl("", "-n", namespace, "get", "secret", secret, "--ignore-not-found", "-o", `jsonpath={.data.tls\.crt}`)
	}
	for _, name := range []string{"team-a", "team-b"} {
		served[name], delivered[name] = certificate(proxies, name+"-server-cert"), certificate(name, "etcd-client-cert")
		l.kubectl("", "-n", proxies, "delete", "secret", name+"-server-cert")
		l.kubectl("", "-n", proxies, "patch", "secret", name+"-signers", "--type=json", "-p", `[{"op": "remove", "path": "/data/client-1.key"}]`)
		// What a CA has signed whose key is lost stays until it is due, unless it is lost, too.
		l.kubectl("", "-n", name, "patch", "secret", "etcd-client-cert", "--type=json", "-p", `[{"op": "remove", "path": "/data/tls.crt"}]`)
	}
	for _, name := range []string{"team-a", "team-b"} {
		testkit.Eventually(t, "new certificates of "+name, func() string {
			if got := certificate(proxies, name+"-server-cert"); got == "" || got == served[name] {
				return "that of the proxies is the old one, or missing"
			}
			if got := certificate(name, "etcd-client-cert"); got == "" || got == delivered[name] {
				return "that of the clients is the old one, or missing"
			}
			return ""
		})
		l.storageReady(name)
	}
}

// compacted waits until each API server has compacted further than now.
func (l *lab) compacted() {
	l.Helper()
	revision := func(name string) int {
		got, err := l.ask(proxies, "administrator", "/etcd", l.core("name", "/"+name+"/compact_rev_key"))
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(got) // 0 at first
		return n
	}
	before := map[string]int{"team-a": revision("team-a"), "team-b": revision("team-b")}
	for name := range before {
		testkit.Eventually(l, "compaction by "+name, func() string {
			if now := revision(name); now <= before[name] || now == 0 {
				return fmt.Sprintf("it has compacted %d, and before %d", now, before[name])
			}
			return ""
		})
	}
}

// core are parameters that ask the core.
func (l *lab) core(name, value string) map[string]string {
	return map[string]string{"endpoint": "https://etcd.etcd-core.svc:2379", "ca": "/ca/ca.crt", "cert": "/cert/tls.crt", "key": "/cert/tls.key", name: value}
}

// apart sees that each key of the core is one of the operator's or is one tenant's and what that one's API server writes, and that anyone
// who asks for all keys with a tenant's certificate gets that tenant's.
func (l *lab) apart() {
	l.Helper()
	core := l.keys(proxies, "administrator", l.core("prefix", ""))
	own := map[string]int{}
	for _, key := range core {
		tenant, rest, _ := strings.Cut(strings.TrimPrefix(key, "/"), "/")
		if tenant != "."+v1alpha1.GroupVersion.Group && !writes(tenant, rest) {
			l.Errorf("the core has the key %q", key)
		}
		own[tenant]++
	}
	for _, tenant := range []string{"team-a", "team-b"} {
		seen := l.keys(tenant, "client", map[string]string{
			"endpoint": "https://etcd-" + tenant + "." + proxies + ".svc:2379", "ca": "/ca/serving-ca.crt", "cert": "/cert/tls.crt", "key": "/cert/tls.key", "prefix": "",
		})
		for _, key := range seen {
			if !writes(tenant, key) {
				l.Errorf("%s sees the key %q", tenant, key)
			}
		}
		if len(seen) < lives || own[tenant] < lives {
			l.Errorf("%s sees %d keys, and the core has %d of it", tenant, len(seen), own[tenant])
		}
	}
	l.Logf("keys in the core by their first part: %v", own)
}

// writes reports whether a key, without the tenant's prefix, is one that the tenant's API server writes.
func writes(tenant, key string) bool {
	flunder := strings.HasPrefix(key, "/registry/wardle.example.com/")
	switch {
	case key == "compact_rev_key":
		return true
	case tenant == "team-a":
		return flunder
	case tenant == "team-b":
		return strings.HasPrefix(key, "/registry/") && !flunder
	default:
		return false
	}
}

// keys asks a pod for the keys of an etcd.
func (l *lab) keys(namespace, pod string, parameters map[string]string) []string {
	l.Helper()
	var answer string
	testkit.Eventually(l, "the keys that "+namespace+" sees", func() (state string) {
		var err error
		if answer, err = l.ask(namespace, pod, "/etcd/keys", parameters); err != nil {
			return err.Error()
		}
		return ""
	})
	return strings.Split(strings.TrimSuffix(answer, "\n"), "\n")
}
