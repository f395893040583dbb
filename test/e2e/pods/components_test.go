// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// component is one of the product's as the chart deploys it.
type component struct {
	namespace, deployment, account string
	// lease is the one that its replicas compete for.
	lease string
}

// components are those of the product that a Deployment runs and a Lease leads.
func components() []component {
	return []component{
		{"kube-system", "digitalocean-cloud-controller-manager", "cloud-controller-manager", "cloud-controller-manager"},
		{"mooring-system", "calico-node-sync", "calico-node-sync", "calico-node-sync.nodes.mooring.dev"},
		{"mooring-system", "calico-route-reflector-operator", "calico-route-reflector-operator", "calico-route-reflector-operator.bgp.mooring.dev"},
		{proxies, "etcd-storage-operator", "etcd-storage-operator", "etcd-storage-operator.etcd.mooring.dev"},
	}
}

// uninitialized is the taint that only the cloud component removes.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// TestComponents runs all four components in one cluster of two real machines and two simulated ones, each by the chart with its own account, rights, security
// context and probes, and sees that each does its job.
func TestComponents(t *testing.T) {
	needBinaries(t)
	wanted := []string{coreImage, "mooring/etcd-storage-proxy:dev"}
	for _, c := range components() {
		testkit.Binary(t, c.deployment)
		wanted = append(wanted, "mooring/"+c.deployment+":dev")
	}
	l := startLab(t, append([]string{
		"--real-nodes", "2", "--nodes", "4", "--pods-per-node", "1", "--cloud", "digitalocean", "--calico-datastore", "kubernetes",
		"--without", "digitalocean-cloud-controller-manager",
	}, images(wanted...)...)...)
	l.installCloud(t)
	l.initialized(t)
	l.installCalico(t)
	l.deployCore(t)
	l.releaseIn(t, proxies, "mooring-etcd", map[string]any{
		"etcdStorageOperator": map[string]any{"enabled": true, "core": map[string]any{"urls": []string{"https://etcd.etcd-core.svc:2379"}}},
	})
	for _, c := range components() {
		l.available(c.namespace, c.deployment)
		l.leads(c)
		l.confined(c)
	}
	t.Run("cloud and node sync", func(t *testing.T) { l.on(t).loadBalancer(); l.on(t).machineGoes() })
	t.Run("route reflectors", func(t *testing.T) { l.on(t).topologyAccepted() })
	t.Run("etcd storage", func(t *testing.T) { l.on(t).tenantStores(t) })
}

// on is the same lab in a part of the test.
func (l *lab) on(t *testing.T) *lab { return &lab{TB: t, dir: l.dir, client: l.client} }

// installCloud gives the cloud component the simulated account's token and authority, and its API's address on the machines' network.
func (l *lab) installCloud(t *testing.T) {
	t.Helper()
	var described struct {
		DigitalOcean struct{ APIURL, TokenFile, CAFile string }
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(l.dir, "lab.json"))), &described); err != nil {
		t.Fatal(err)
	}
	api, err := url.Parse(described.DigitalOcean.APIURL)
	if err != nil {
		t.Fatal(err)
	}
	const ca = "digitalocean-authority"
	l.kubectl("", "-n", "kube-system", "create", "secret", "generic", "digitalocean", "--from-file=access-token="+described.DigitalOcean.TokenFile)
	l.kubectl("", "-n", "kube-system", "create", "configmap", ca, "--from-file=ca.crt="+described.DigitalOcean.CAFile)
	l.releaseIn(t, "kube-system", "mooring-cloud", map[string]any{"digitaloceanCloudControllerManager": map[string]any{
		"enabled": true, "clusterID": "lab",
		"extraEnv": []any{
			map[string]any{"name": "DO_OVERRIDE_URL", "value": "https://172.30.0.1:" + api.Port()},
			map[string]any{"name": "SSL_CERT_FILE", "value": "/authority/ca.crt"},
		},
		"extraVolumes":      []any{map[string]any{"name": "authority", "configMap": map[string]any{"name": ca}}},
		"extraVolumeMounts": []any{map[string]any{"name": "authority", "mountPath": "/authority", "readOnly": true}},
	}})
}

// installCalico installs the two components that work on Calico's datastore, in one release.
func (l *lab) installCalico(t *testing.T) {
	t.Helper()
	l.kubectl("", "create", "namespace", "mooring-system")
	l.releaseIn(t, "mooring-system", "mooring-calico", map[string]any{
		"calicoNodeSync": map[string]any{"enabled": true, "datastore": "kubernetes", "gracePeriod": "10s"},
		// It tolerates every taint, and so that of simulated machines.
		"calicoRouteReflectorOperator": map[string]any{"enabled": true, "datastore": "kubernetes", "nodeSelector": map[string]any{"lab.mooring.dev/real": "true"}},
	})
}

// releaseIn installs a release of the repository's chart and waits for its pods.
func (l *lab) releaseIn(t *testing.T, namespace, name string, values map[string]any) {
	t.Helper()
	content, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	l.helmIn(namespace, "install", name, filepath.Join(testkit.Root(t), "charts/mooring"), "--values", file, "--wait", "--timeout", "10m")
}

// initialized waits until the cloud component has given every Node its identity, which CoreDNS waits for, too.
func (l *lab) initialized(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "the Nodes' identities", func() string {
		nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 4 {
			return fmt.Sprintf("%d Nodes, %v", len(nodes.Items), err)
		}
		for _, node := range nodes.Items {
			waits := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == uninitialized })
			if waits || !strings.HasPrefix(node.Spec.ProviderID, "digitalocean://") {
				return fmt.Sprintf("%s has the provider ID %q and the taints %v", node.Name, node.Spec.ProviderID, node.Spec.Taints)
			}
		}
		return ""
	})
	l.available("kube-system", "coredns")
}

// podsWith are the pods of a component.
func (l *lab) podsWith(c component) []corev1.Pod {
	l.Helper()
	return slices.DeleteFunc(l.pods(c.namespace), func(pod corev1.Pod) bool {
		return !strings.HasPrefix(pod.Name, c.deployment+"-") || pod.DeletionTimestamp != nil
	})
}

// leads waits until a pod of the component has its Lease. A pod on its machine's network has that one's name.
func (l *lab) leads(c component) {
	l.Helper()
	testkit.Eventually(l, "the leader of "+c.deployment, func() string {
		lease, err := l.client.CoordinationV1().Leases(c.namespace).Get(l.Context(), c.lease, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return fmt.Sprintf("the Lease %s: %v", c.lease, err)
		}
		for _, pod := range l.podsWith(c) {
			if holder := *lease.Spec.HolderIdentity; strings.HasPrefix(holder, pod.Name) || pod.Spec.HostNetwork && strings.HasPrefix(holder, pod.Spec.NodeName) {
				return ""
			}
		}
		return "it is held by " + *lease.Spec.HolderIdentity
	})
}

// confined checks the accounts, probes and restarts of a component's pods, and what its processes may do on this machine: nothing that a user may not.
func (l *lab) confined(c component) {
	l.Helper()
	for _, pod := range l.podsWith(c) {
		main := pod.Spec.Containers[0]
		if pod.Spec.ServiceAccountName != c.account || main.LivenessProbe == nil || main.ReadinessProbe == nil {
			l.Errorf("%s runs as %s, with the probes %v and %v", pod.Name, pod.Spec.ServiceAccountName, main.LivenessProbe, main.ReadinessProbe)
		}
		found := l.processes(pod.UID)
		if len(found) != 1 {
			l.Errorf("%s has the processes %v", pod.Name, found)
		}
		for _, pid := range found {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				l.Error(err)
			}
			for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
				if !strings.Contains(string(status), want) {
					l.Errorf("the process of %s has not %q:\n%s", pod.Name, want, status)
				}
			}
		}
	}
}

// loadBalancer waits until a Service of that type has an address.
func (l *lab) loadBalancer() {
	l.Helper()
	l.kubectl("", "create", "service", "loadbalancer", "web", "--tcp=80:8080")
	testkit.Eventually(l, "the load balancer", func() string {
		if l.kubectl("", "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}") == "" {
			return l.kubectl("", "get", "events", "--field-selector=involvedObject.name=web")
		}
		return ""
	})
}

// machineGoes destroys a machine: the cloud component deletes its Node, and then node sync what Calico has of it.
func (l *lab) machineGoes() {
	l.Helper()
	const machine = "node-4"
	affinities := func() string {
		return l.kubectl("", "get", "blockaffinities.crd.projectcalico.org", "-o", `jsonpath={range .items[?(@.spec.node=="`+machine+`")]}{.metadata.name} {end}`)
	}
	if affinities() == "" {
		l.Fatalf("Calico's datastore knows nothing of %s", machine)
	}
	if _, err := l.try("droplet", "delete", machine); err != nil {
		l.Fatal(err)
	}
	testkit.Eventually(l, "the end of what is known of "+machine, func() string {
		if node := l.kubectl("", "get", "node", machine, "--ignore-not-found", "-o", "name"); node != "" {
			return node + " is there"
		}
		if left := affinities(); left != "" {
			return "Calico's datastore has " + left
		}
		return ""
	})
}

// topologyAccepted asks for route reflectors. No machine of this lab has BGP, so more than a plan comes of it in the lab's BGP network only.
func (l *lab) topologyAccepted() {
	l.Helper()
	l.apply(`{apiVersion: bgp.mooring.dev/v1alpha1, kind: RouteReflectorTopology, metadata: {name: main}, spec: {redundancy: 2, failure: {stabilization: 0s}}}`)
	testkit.Eventually(l, "the verdict on the topology", func() string {
		conditions := l.kubectl("", "get", "rrt", "main", "-o", "jsonpath={.status.conditions}")
		if l.kubectl("", "get", "rrt", "main", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status}`) != "True" {
			return "it is not accepted: " + conditions
		}
		return ""
	})
}

// tenantStores gives a tenant its storage, in which a pod of the tenant puts a key.
func (l *lab) tenantStores(t *testing.T) {
	t.Helper()
	l.apply(read(t, filepath.Join(testkit.Root(t), "config/etcd-storage-operator/example/team-a.yaml")))
	l.storageReady("team-a")
	l.account("team-a")
	l.apply(client)
	l.expect("team-a", "client", "/etcd", map[string]string{
		"endpoint": "https://etcd-team-a.kube-apiserver-storage.svc:2379", "ca": "/ca/serving-ca.crt", "cert": "/cert/tls.crt", "key": "/cert/tls.key",
		"name": "/registry/key", "put": "value",
	}, "value")
}
