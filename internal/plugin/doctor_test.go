// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// patient is a cluster for the doctors. Nothing runs in it: what the manifests make is looked at.
type patient struct {
	*testing.T
	cluster *controlplane.Cluster
}

// The doctors look at a cluster as our manifests make it, and at what goes wrong with it; the cluster is as before in the end.
func testDoctor(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	p := patient{t, cluster}
	const nobody = "note     components: no component of Mooring runs in this cluster\n"
	expect(t, 0, "", p.ask(), nobody, "note     routereflectors: not read: route reflectors: the API server serves Calico's BGPPeer neither in", "0 problems, 0 warnings, 2 notes, ")
	expect(t, 0, "", p.ask("rbac"), "0 problems, 0 warnings, 0 notes, 0 ok\n")
	p.forbidden()

	manifest := filepath.Join(testkit.Root(t), "dist", "calico-node-sync-kubernetes.yaml")
	mustKubectl(t, cluster, "", "apply", "--server-side", "-f", manifest)
	p.leader()
	p.rights()
	p.rival()
	p.formats()
	p.clear()
	expect(t, 0, "", p.ask("controllers"), nobody)
}

// ask is a doctor's command line.
func (p patient) ask(args ...string) []string {
	return append(append([]string{"doctor"}, args...), "--kubeconfig", p.cluster.Kubeconfig)
}

// Who may read nothing is told of each side that was not looked at, and never that all is well.
func (p patient) forbidden() {
	p.Helper()
	const no = `is forbidden: User "nobody" cannot`
	out := expect(p.T, 2, "", p.ask("--as", "nobody"), "warning  components: not read: Deployments: deployments.apps "+no, "not read: DaemonSets: daemonsets.apps "+no,
		"warning  leader: not read: Leases: leases.coordination.k8s.io "+no, "warning  rights: not read: Deployments: ", "0 ok\n")
	if strings.Contains(out, "no component of Mooring") {
		p.Errorf("what was not looked at is said not to be there:\n%s", out)
	}
}

// pods writes how many pods a Deployment of our manifest has, as its controller would.
func (p patient) pods(ready int) {
	p.Helper()
	mustKubectl(p.T, p.cluster, "", "-n", "mooring-system", "patch", "deployment", "calico-node-sync", "--subresource=status", "--type=merge",
		"-p", fmt.Sprintf(`{"status":{"replicas":2,"readyReplicas":%d}}`, ready))
}

// renewed makes a Lease that was renewed some time ago.
func (p patient) renewed(ago time.Duration) {
	p.Helper()
	leases := p.cluster.Client.CoordinationV1().Leases("mooring-system")
	const name, holder = "calico-node-sync.nodes.mooring.dev", "pod-1"
	if err := leases.Delete(p.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		p.Fatal(err)
	}
	seconds, who, at := int32(3600), holder, metav1.NewMicroTime(time.Now().Add(-ago)) // what is in order stays so for all of the test
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &at}}
	if _, err := leases.Create(p.Context(), lease, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}

func (p patient) leader() {
	p.Helper()
	ask := p.ask("controllers")
	expect(p.T, 2, "", ask, "PROBLEM  replicas: Deployment mooring-system/calico-node-sync: no pod of 2 pods is ready\n", "ok       components: of Mooring there is calico-node-sync\n")
	p.pods(2)
	expect(p.T, 2, "", ask, "PROBLEM  leader: Deployment mooring-system/calico-node-sync: there is no Lease mooring-system/calico-node-sync.nodes.mooring.dev, with which")
	p.renewed(2 * time.Hour)
	expect(p.T, 2, "", ask, "PROBLEM  leader: Deployment mooring-system/calico-node-sync: its Lease is no longer renewed\n",
		"do:  read the log: kubectl -n mooring-system logs deployment/calico-node-sync\n")
	p.renewed(0)
	expect(p.T, 0, "", ask, "ok       leader: Deployment mooring-system/calico-node-sync: pod-1 leads it\n", "0 problems, 0 warnings, 0 notes, 2 ok\n")
}

// A right that is missing is named, and the command alongside it brings it.
func (p patient) rights() {
	p.Helper()
	const well = "ok       rights: ServiceAccount mooring-system/calico-node-sync has every right of dist/calico-node-sync-kubernetes.yaml\n"
	const cure = "kubectl auth reconcile -f dist/calico-node-sync-kubernetes.yaml"
	expect(p.T, 0, "", p.ask("rbac"), well, "0 problems, 0 warnings, 0 notes, 1 ok\n")
	mustKubectl(p.T, p.cluster, "", "delete", "clusterrolebinding", "mooring-calico-node-sync-datastore")
	mustKubectl(p.T, p.cluster, "", "-n", "mooring-system", "patch", "role", "calico-node-sync", "--type=json", "-p", `[{"op":"remove","path":"/rules/1"}]`)
	const lease = "PROBLEM  rights: ServiceAccount mooring-system/calico-node-sync may not get, update leases.coordination.k8s.io calico-node-sync.nodes.mooring.dev in namespace " +
		"mooring-system, which Role calico-node-sync allows it\n"
	p.eventually(p.ask("rbac"), lease, "PROBLEM  rights: ServiceAccount mooring-system/calico-node-sync may not get clusterinformations.crd.projectcalico.org default, which "+
		"ClusterRole mooring-calico-node-sync-datastore allows it\n", "         do:  "+cure+"\n")
	mustKubectl(p.T, p.cluster, "", "create", "clusterrole", "watcher", "--verb=list", "--resource=deployments.apps,daemonsets.apps,statefulsets.apps")
	mustKubectl(p.T, p.cluster, "", "create", "clusterrolebinding", "watcher", "--clusterrole=watcher", "--user=watcher")
	p.eventually(p.ask("rbac", "--as", "watcher"), "warning  rights: not read: rights: subjectaccessreviews.authorization.k8s.io is forbidden", "0 problems, 1 warning, 0 notes, 0 ok\n")
	mustKubectl(p.T, p.cluster, "", "delete", "clusterrole/watcher", "clusterrolebinding/watcher")
	cmd := exec.CommandContext(p.Context(), testkit.Binary(p.T, "kubectl"), append(strings.Fields(cure)[1:], "--kubeconfig", p.cluster.Kubeconfig)...)
	cmd.Dir = testkit.Root(p.T)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("%s: %v\n%s", cure, err, out)
	}
	p.eventually(p.ask("rbac"), well)
}

// eventually waits until the API server's own list of roles has what was written.
func (p patient) eventually(args []string, wants ...string) {
	p.Helper()
	testkit.Eventually(p.T, "the doctor's findings", func() string {
		_, out, errs := run(p.T, args)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				return "no " + want + " in " + out + errs
			}
		}
		return ""
	})
}

// rival puts an upstream project alongside.
func (p patient) rival() {
	p.Helper()
	const old = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kube-calico-controller","namespace":"mooring-system"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"example.com/kube-calico-controller:0.0.3"}]}}}}`
	mustKubectl(p.T, p.cluster, old, "create", "-f", "-")
	expect(p.T, 2, "", p.ask("controllers"), "warning  fighting: Deployment mooring-system/kube-calico-controller is the old kube-calico-controller, and runs alongside Deployment mooring-system/calico-node-sync\n")
	mustKubectl(p.T, p.cluster, "", "-n", "mooring-system", "scale", "deployment", "kube-calico-controller", "--replicas=0")
	expect(p.T, 0, "", p.ask("controllers"), "0 problems, 0 warnings")
	mustKubectl(p.T, p.cluster, "", "-n", "mooring-system", "scale", "deployment", "kube-calico-controller", "--replicas=1")
}

// formats are those for programs, which say the same.
func (p patient) formats() {
	p.Helper()
	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(data []byte, v any) error { return yaml.Unmarshal(data, v) }} {
		code, out, errs := run(p.T, p.ask("-o", format))
		var got struct {
			Findings []finding.Finding `json:"findings"`
		}
		if err := decode([]byte(out), &got); err != nil || code != 2 || errs != "" || len(got.Findings) == 0 {
			p.Fatalf("%s: exit code %d, %v, %s%s", format, code, err, out, errs)
		}
		first := got.Findings[0]
		if first.Check != "fighting" || first.Severity != finding.Warning || first.Where != "Deployment mooring-system/kube-calico-controller" || first.Why == "" || first.Do == "" {
			p.Errorf("%s: %+v", format, first)
		}
		if !slices.ContainsFunc(got.Findings, func(f finding.Finding) bool { return f.Check == "rights" && f.Severity == finding.OK }) {
			p.Errorf("%s: the doctors of the whole have not all looked: %s", format, out)
		}
	}
}

// clear removes what the doctors were shown, and the namespace, which nobody else finishes here.
func (p patient) clear() {
	p.Helper()
	mustKubectl(p.T, p.cluster, "", "-n", "mooring-system", "delete", "deployments,leases", "--all")
	mustKubectl(p.T, p.cluster, "", "delete", "--ignore-not-found", "--wait=false", "-f", filepath.Join(testkit.Root(p.T), "dist", "calico-node-sync-kubernetes.yaml"))
	namespaces := p.cluster.Client.CoreV1().Namespaces()
	n, err := namespaces.Get(p.Context(), "mooring-system", metav1.GetOptions{})
	if err == nil {
		n.Spec.Finalizers = nil
		_, err = namespaces.Finalize(p.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
}

func TestDoctorRefusals(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "config")
	content := strings.ReplaceAll(kubeconfig, "https://a", "https://127.0.0.1:1")
	if err := os.WriteFile(nowhere, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an unknown doctor":    {[]string{"controler"}, `unknown command "controler" for "kubectl mooring doctor" (did you mean "controllers"?); see 'kubectl mooring doctor --help'`},
		"an argument":          {[]string{"rbac", "x"}, `unexpected argument "x": kubectl mooring doctor rbac takes flags only; see 'kubectl mooring doctor rbac --help'`},
		"an unknown format":    {[]string{"-o", "wide"}, `invalid value "wide" for --output (format): use one of text, json, yaml; see 'kubectl mooring doctor --help'`},
		"an unknown flag":      {[]string{"controllers", "--all"}, `unknown flag --all; see 'kubectl mooring doctor controllers --help'`},
		"no kubeconfig":        {[]string{"--kubeconfig", "/no/such/file"}, "reading the kubeconfig, pass --kubeconfig or --context to choose another: stat /no/such/file: no such file or directory"},
		"a cluster that is no": {[]string{"controllers", "--kubeconfig", nowhere}, "the API server of a at https://127.0.0.1:1 cannot be reached: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"doctor"}, test.args...))
			if code != 1 || out != "" || !strings.HasPrefix(errs, "error: "+test.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, test.want)
			}
		})
	}
}
