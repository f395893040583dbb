// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// diagnosis is what doctor -o json prints.
type diagnosis struct {
	Worst    finding.Severity  `json:"worst"`
	Findings []finding.Finding `json:"findings"`
}

// examine runs doctor and fails unless it ends as its findings say.
func examine(t *testing.T, env []string, args ...string) diagnosis {
	t.Helper()
	code, out := program(t, env, append([]string{"doctor", "-o", "json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	want := map[finding.Severity]int{finding.OK: 0, finding.Note: 0, finding.Warning: 2, finding.Problem: 2}
	if code != want[d.Worst] || d.Worst != finding.Worst(d.Findings) {
		t.Errorf("got exit code %d for the worst severity %q of:\n%s", code, d.Worst, out)
	}
	return d
}

// expect fails unless there is a finding of the check and severity that says so.
func (d diagnosis) expect(t *testing.T, severity finding.Severity, check, what string) {
	t.Helper()
	for _, f := range d.Findings {
		if f.Check == check && f.Severity == severity && strings.Contains(f.What, what) {
			return
		}
	}
	t.Errorf("no finding %s %s: %q in:\n%s", severity, check, what, finding.Text(d.Findings, 0))
}

// settings name the datastore in full.
func (s *scene) settings() []string { return append(s.env(), "DATASTORE_TYPE=etcdv3") }

func TestDoctorCommand(t *testing.T) { //nolint:paralleltest // it looks at the whole cluster
	s := newScene(t, "doctor", 5)
	as := []string{"--kubeconfig", s.cluster.Kubeconfig, "--leader-election-namespace=default"}
	if code, out := s.run("apply", "--grace-period=0s", "--yes"); code != 0 {
		t.Fatalf("recording the cluster: got exit code %d and %s", code, out)
	}
	well := examine(t, s.settings(), as...)
	if well.Worst != finding.Note {
		t.Errorf("all is well, but:\n%s", finding.Text(well.Findings, 0))
	}
	// With all settings of a controller, of which those that a doctor has no use for change nothing.
	all := append(slices.Clone(as), "--leader-elect", "--mode=enforce", "--metrics-bind-address=0", "--journal-retention=24h", "--also-remove=HostEndpoint", "-v", "2", "-syncperiod", "60")
	if d := examine(t, s.settings(), all...); d.Worst != finding.Note {
		t.Errorf("with the controller's flags:\n%s", finding.Text(d.Findings, 0))
	}
	well.expect(t, finding.OK, "kubernetes", "Kubernetes v1.")
	well.expect(t, finding.OK, "datastore", "etcd 3.")
	well.expect(t, finding.OK, "cluster-information", "Calico v3.31.0 is supported")
	well.expect(t, finding.OK, "cluster-information", "recorded to belong to this cluster")
	well.expect(t, finding.OK, "drift", "nothing of machines that are gone")
	well.expect(t, finding.OK, "rights", " has all ")

	one, two := s.plant()
	before, versions := s.etcd.Revision(t), s.versions(one, two)
	ill := examine(t, s.settings(), as...)
	s.expectRevision(before, "doctor only reads")
	if diff := cmp.Diff(versions, s.versions(one, two)); diff != "" {
		t.Errorf("doctor only reads, but objects have changed:\n%s", diff)
	}
	ill.expect(t, finding.Warning, "kube-controllers", "kube-system/calico-kube-controllers runs its node controller")
	ill.expect(t, finding.Warning, "calico-node", "kube-system/calico-node does not set CALICO_K8S_NODE_REF")
	ill.expect(t, finding.Note, "calico-node", "1 Calico Node has no orchRef: "+s.name("reflector"))
	ill.expect(t, finding.Warning, "predecessor", "Deployment kube-system/kube-calico-controller is the old")
	ill.expect(t, finding.Warning, "installations", "2 installations of calico-node-sync are running, in namespaces "+one+", "+two)
	ill.expect(t, finding.Warning, "names", "Calico Nodes "+s.name("0")+", "+s.name("0-again")+" all refer to")
	ill.expect(t, finding.Warning, "names", "1 host is left alone for an ambiguous name: "+s.name("short.example.com"))
	ill.expect(t, finding.Warning, "drift", "Kubernetes Nodes have no Calico Node: ")
	ill.expect(t, finding.Note, "drift", "1 machine is held back by grace: "+s.name("1"))
	ill.expect(t, finding.Warning, "drift", "1 value is held back by unreadable: ")

	key := "/calico/resources/v3/projectcalico.org/clusterinformations/default"
	info := s.etcd.Dump(t)[key]
	put := func(value string) {
		must.Get(s.etcd.Client.Put(t.Context(), key, value)).Or(t)
	}
	put(strings.Replace(info, `"datastoreReady":true`, `"datastoreReady":false`, 1))
	examine(t, s.settings(), as...).expect(t, finding.Problem, "cluster-information", "does not report datastoreReady")
	put(strings.Replace(info, `cluster-uid":"`, `cluster-uid":"x`, 1))
	examine(t, s.settings(), as...).expect(t, finding.Problem, "cluster-information", "the datastore belongs to the cluster whose kube-system has UID x")
	put("{")
	examine(t, s.settings(), as...).expect(t, finding.Warning, "cluster-information", "not checked: it failed to read")
}

// plant puts one of everything that doctor looks for into the cluster and the datastore. It returns the namespaces of two Leases.
func (s *scene) plant() (one, two string) {
	s.t.Helper()
	one = hold(s.t, s.cluster, "doctor-one", "first", -time.Second)
	two = hold(s.t, s.cluster, "doctor-two", "second", -time.Second)
	s.deploy("calico-kube-controllers", "kube-controllers:v3.31.0", corev1.EnvVar{Name: "ENABLED_CONTROLLERS", Value: "policy,node"})
	s.deploy("kube-calico-controller", "kube-calico-controller:0.0.3")
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "calico-node"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "calico-node"}},
		Template: template("calico-node", "node:v3.31.0", corev1.EnvVar{Name: "ETCD_ENDPOINTS", Value: s.etcd.Endpoint}),
	}}
	sets := s.cluster.Client.AppsV1().DaemonSets("kube-system")
	must.Get(sets.Create(s.t.Context(), set, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() { _ = sets.Delete(context.Background(), "calico-node", metav1.DeleteOptions{}) })
	s.start("reflector", "")
	s.start("0-again", s.name("0"))
	s.start("short.example.com", s.name("short.example.com"))
	s.createNode(s.name("short"))
	s.createNode(s.name("lonely"))
	s.leave("1")
	must.Get(s.etcd.Client.Put(s.t.Context(), "/calico/resources/v3/projectcalico.org/nodes/"+s.name("broken"), "{")).Or(s.t)
	return one, two
}

func template(name, image string, env ...corev1.EnvVar) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image, Env: env}}},
	}
}

func (s *scene) deploy(name, image string, env ...corev1.EnvVar) {
	s.t.Helper()
	deployments := s.cluster.Client.AppsV1().Deployments("kube-system")
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, image, env...),
	}}
	must.Get(deployments.Create(s.t.Context(), deployment, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() { _ = deployments.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// versions are the resourceVersions of all that doctor reads, and of what it could write.
func (s *scene) versions(namespaces ...string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	ctx, list := s.t.Context(), metav1.ListOptions{}
	add := func(kind string, objects map[string]string, err error) {
		if err != nil {
			s.t.Fatal(err)
		}
		for name, version := range objects {
			out[kind+" "+name] = version
		}
	}
	nodes, err := s.cluster.Client.CoreV1().Nodes().List(ctx, list)
	add("Node", versionsOf(nodes.Items, func(o *corev1.Node) metav1.Object { return o }), err)
	configMaps, err := s.cluster.Client.CoreV1().ConfigMaps("").List(ctx, list)
	add("ConfigMap", versionsOf(configMaps.Items, func(o *corev1.ConfigMap) metav1.Object { return o }), err)
	events, err := s.cluster.Client.CoreV1().Events("").List(ctx, list)
	add("Event", versionsOf(events.Items, func(o *corev1.Event) metav1.Object { return o }), err)
	deployments, err := s.cluster.Client.AppsV1().Deployments("").List(ctx, list)
	add("Deployment", versionsOf(deployments.Items, func(o *appsv1.Deployment) metav1.Object { return o }), err)
	sets, err := s.cluster.Client.AppsV1().DaemonSets("").List(ctx, list)
	add("DaemonSet", versionsOf(sets.Items, func(o *appsv1.DaemonSet) metav1.Object { return o }), err)
	for _, namespace := range append(namespaces, "default") {
		leases := must.Get(s.cluster.Client.CoordinationV1().Leases(namespace).List(ctx, list)).Or(s.t)
		for _, l := range leases.Items {
			out["Lease "+namespace+"/"+l.Name] = l.ResourceVersion
		}
	}
	return out
}

func versionsOf[T any](items []T, object func(*T) metav1.Object) map[string]string {
	out := map[string]string{}
	for i := range items {
		o := object(&items[i])
		out[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
	}
	return out
}

// Whatever is missing, doctor says so and goes on with the rest.
func TestDoctorCommandWithoutThisOrThat(t *testing.T) {
	t.Parallel()
	s := newScene(t, "doctor-less", 2)
	nowhere := []string{"ETCD_ENDPOINTS=http://127.0.0.1:1", "DATASTORE_TYPE=etcdv3"}
	kubeconfig := []string{"--kubeconfig", s.cluster.Kubeconfig}

	nothing := examine(t, nil)
	nothing.expect(t, finding.Problem, "settings", "no datastore is named")
	nothing.expect(t, finding.Problem, "kubernetes", "no API server is configured")

	contradicting := examine(t, []string{"ETCD_ENDPOINTS=http://127.0.0.1:1", "DATASTORE_TYPE=kubernetes", "ETCD_PASSWORD=hunter2"}, kubeconfig...)
	contradicting.expect(t, finding.Problem, "settings", "unset one of them")
	contradicting.expect(t, finding.OK, "kubernetes", "Kubernetes v1.")

	noEtcd := examine(t, nowhere, kubeconfig...)
	noEtcd.expect(t, finding.Problem, "datastore", "at http://127.0.0.1:1 does not respond to a quorum read")
	noEtcd.expect(t, finding.OK, "kubernetes", "Kubernetes v1.")

	noCluster := examine(t, s.settings(), "--master=https://127.0.0.1:1")
	noCluster.expect(t, finding.Problem, "kubernetes", "the API server at https://127.0.0.1:1 does not respond")
	noCluster.expect(t, finding.OK, "datastore", "etcd 3.")
	noCluster.expect(t, finding.OK, "names", "each Calico Node of Kubernetes refers")

	nobody := examine(t, s.settings(), "--kubeconfig", kubeconfigAs(t, s.cluster.Kubeconfig, "nobody"), "--leader-election-namespace=default")
	nobody.expect(t, finding.Note, "kube-controllers", "because of the missing right to list Deployments in namespace kube-system")
	nobody.expect(t, finding.Note, "installations", "because of the missing right to list Leases")
	nobody.expect(t, finding.Note, "cluster-information", "because of the missing right to get namespace kube-system")
	nobody.expect(t, finding.Note, "drift", "because of the missing right to list Kubernetes Nodes")
	nobody.expect(t, finding.Warning, "rights", "nobody may not get nodes, list nodes")
	nobody.expect(t, finding.OK, "datastore", "etcd 3.")

	account := "system:serviceaccount:default:nobody"
	other := examine(t, s.settings(), append(kubeconfig, "--as="+account)...)
	other.expect(t, finding.Problem, "rights", account+" may not get nodes, list nodes")
}

// kubeconfigAs is a kubeconfig that acts as somebody else.
func kubeconfigAs(t *testing.T, file, user string) string {
	t.Helper()
	config := must.Get(clientcmd.LoadFromFile(file)).Or(t)
	for name := range config.AuthInfos {
		config.AuthInfos[name].Impersonate = user
		config.AuthInfos[name].ImpersonateGroups = []string{"system:authenticated"}
	}
	must.Do(t, clientcmdapi.FlattenConfig(config))
	out := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, clientcmd.WriteToFile(*config, out))
	return out
}

// With TLS: the certificates are read, and an etcd that is not Calico's is recognized.
func TestDoctorCommandWithTLS(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	endpoint, caFile := cluster.Etcd(t)
	pair := filepath.Join(cluster.Dir, "pki", "kube-apiserver-etcd-client")
	env := []string{
		"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + endpoint, "ETCD_CA_CERT_FILE=" + caFile,
		"ETCD_CERT_FILE=" + pair + ".crt", "ETCD_KEY_FILE=" + pair + ".key",
	}
	d := examine(t, env, "--kubeconfig", cluster.Kubeconfig)
	d.expect(t, finding.OK, "certificates", "4 certificates are not about to expire")
	d.expect(t, finding.OK, "datastore", "etcd 3.")
	d.expect(t, finding.Problem, "cluster-information", "the datastore holds no ClusterInformation")
}

// In the kubernetes datastore there is nothing but the API server to ask.
func TestDoctorCommandWithTheKubernetesDatastore(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	env := []string{"DATASTORE_TYPE=kubernetes"}
	cluster.InstallCalicoCRDs(t)
	d := examine(t, env, "--kubeconfig", cluster.Kubeconfig)
	d.expect(t, finding.OK, "datastore", "Calico's datastore is the Kubernetes API")
	d.expect(t, finding.Problem, "cluster-information", "the datastore holds no ClusterInformation")
}
