// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// previousBinaries names a folder with etcd-storage-operator and etcd-storage-proxy of the previous version; without it those of bin/ play both versions.
// To make them: git worktree add /tmp/previous COMMIT, and there CGO_ENABLED=0 go build -o /tmp/previous/bin/ ./cmd/etcd-storage-{operator,proxy}, with the
// commit of test/charts/testdata/previous.
const previousBinaries = "MOORING_PREVIOUS_BINARIES"

// releaseChart names a release's package of the chart, and releasePrograms a folder with the programs of its archives, which then are this version
// (make release-check); without them it is the chart's folder and bin/.
const (
	releaseChart    = "MOORING_CHART"
	releasePrograms = "MOORING_PROGRAMS"
)

// previousImages is the registry of the previous version's images in the lab.
const previousImages = "previous/mooring"

// tenantReplicas is how many proxies the tenant has.
const tenantReplicas = 2

// trafficPod is a client of team-a.
const trafficPod = `
apiVersion: v1
kind: Pod
metadata: {name: traffic, namespace: team-a}
spec:
  containers:
    - name: main
      image: mooring-test/traffic
      env: [{name: ` + asTraffic + `, value: "https://etcd-team-a.kube-apiserver-storage.svc:2379"}]
      ports: [{containerPort: 8080}]
      readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}
      volumeMounts: [{name: ca, mountPath: /ca}, {name: cert, mountPath: /cert}]
  volumes:
    - {name: ca, configMap: {name: etcd-serving-ca}}
    - {name: cert, secret: {secretName: etcd-client-cert}}
`

// TestChartUpgradeWithTraffic takes the release of the etcd storage operator from the previous version of the chart to this one, back, and here again, while
// a tenant's client writes, reads and watches without a break. With each step the operator's pods and then the proxies are replaced.
func TestChartUpgradeWithTraffic(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	root := testkit.Root(t)
	l := start(t, append(append(previousFlags(t), releaseFlags()...), "--image", "mooring-test/traffic="+thisProgram(t))...)
	l.deployCore(t)
	l.kubectl("", "label", "namespace", proxies, "pod-security.kubernetes.io/enforce=restricted")
	previous := filepath.Join(root, "test/charts/testdata/previous/mooring")
	l.helm("install", "mooring-etcd", previous, "--wait", "--set", "etcdStorageOperator.enabled=true",
		"--set", "etcdStorageOperator.core.urls={https://etcd.etcd-core.svc:2379}", "--set", "etcdStorageOperator.image.repository="+previousImages+"/etcd-storage-operator",
		"--set", "etcdStorageOperator.proxyImage.repository="+previousImages+"/etcd-storage-proxy")
	team := read(t, filepath.Join(root, "config/etcd-storage-operator/example/team-a.yaml"))
	l.apply(strings.Replace(team, "\nspec:\n", fmt.Sprintf("\nspec:\n  replicas: %d\n", tenantReplicas), 1))
	l.storageReady("team-a")
	l.account("team-a")
	l.apply(trafficPod)
	l.flows()
	identities := l.identities()

	upgrade := []string{
		"upgrade", "mooring-etcd", cmp.Or(os.Getenv(releaseChart), filepath.Join(root, "charts/mooring")), "--wait", "--reset-then-reuse-values",
		"--set", "etcdStorageOperator.image.repository=mooring/etcd-storage-operator", "--set", "etcdStorageOperator.proxyImage.repository=mooring/etcd-storage-proxy",
	}
	steps := []struct {
		images string
		helm   []string
	}{
		{"mooring", upgrade},
		{previousImages, []string{"rollback", "mooring-etcd", "1", "--wait"}},
		{"mooring", upgrade},
	}
	for _, step := range steps {
		l.helm(step.helm...)
		l.runs(step.images)
		t.Logf("after helm %s: %+v", step.helm[0], l.flows())
	}
	report := l.ends()
	// A proxy that goes first says so to its Service, and then finishes what it has begun, so that usually no call fails. Where the Service takes longer than the
	// drain delay, as on a machine that is busy otherwise, a connection may still be begun to it: that costs each of the two callers one call for each proxy that goes.
	most := 2 * tenantReplicas * len(steps)
	t.Logf("at the end: %+v", report)
	if n := report.repeated(); n > most {
		t.Errorf("%d calls had to be made again, and %d is the most: %v", n, most, report.Repeated)
	}
	for failure := range report.Repeated {
		if !strings.Contains(failure, "Unavailable") {
			t.Errorf("a call failed otherwise than for want of a connection: %s", failure)
		}
	}
	if now := l.identities(); now != identities {
		t.Errorf("made anew on the way:\n%s\nbefore:\n%s", now, identities)
	}
}

// previousFlags are the lab's flags for the previous version's images.
func previousFlags(t *testing.T) []string {
	t.Helper()
	folder := os.Getenv(previousBinaries)
	var out []string
	for _, name := range []string{"etcd-storage-operator", "etcd-storage-proxy"} {
		path := filepath.Join(folder, name)
		if folder == "" {
			path = testkit.Binary(t, name)
		}
		out = append(out, "--image", previousImages+"/"+name+"="+path)
	}
	return out
}

// releaseFlags are the lab's flags for the images of a release.
func releaseFlags() []string {
	folder := os.Getenv(releasePrograms)
	var out []string
	for _, name := range []string{"etcd-storage-operator", "etcd-storage-proxy"} {
		if folder != "" {
			out = append(out, "--image", "mooring/"+name+"="+filepath.Join(folder, name))
		}
	}
	return out
}

// thisProgram is the path of the test's own binary. In a container there are no libraries: it must be static, as with CGO_ENABLED=0.
func thisProgram(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// helm runs Helm in the operator's namespace.
func (l *lab) helm(args ...string) {
	l.Helper()
	args = append(args, "--namespace", proxies, "--kubeconfig", filepath.Join(l.dir, "kubeconfig"))
	command := exec.CommandContext(l.Context(), testkit.Binary(l, "helm"), args...)
	command.Env = []string{"HOME=" + l.TempDir()}
	if out, err := command.CombinedOutput(); err != nil {
		l.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, l.podsOf(proxies))
	}
}

// runs waits until the operator, which Helm has waited for, and then the proxies run in images of a registry, all of them ready.
func (l *lab) runs(registry string) {
	l.Helper()
	operator, err := l.client.AppsV1().Deployments(proxies).Get(l.Context(), "etcd-storage-operator", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	image := operator.Spec.Template.Spec.Containers[0].Image
	if s := operator.Status; s.ReadyReplicas != 2 || s.UpdatedReplicas != 2 || image != registry+"/etcd-storage-operator:dev" {
		l.Errorf("after helm --wait the operator is %s, %+v", image, s)
	}
	testkit.Eventually(l, "proxies of "+registry, func() string {
		d, err := l.client.AppsV1().Deployments(proxies).Get(l.Context(), "etcd-team-a", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; image != registry+"/etcd-storage-proxy:dev" {
			return "they are " + image
		}
		return ""
	})
	l.available(proxies, "etcd-team-a")
	l.storageReady("team-a")
}

// identities are what must outlive each version: the kind, the tenant, what its clients know of it, and what it has of its own.
func (l *lab) identities() string {
	l.Helper()
	var out strings.Builder
	for _, object := range [][]string{
		{"crd", "etcdstorages.etcd.mooring.dev"}, {"etcdstorage", "team-a"},
		{"-n", proxies, "deployment", "etcd-storage-operator"}, {"-n", proxies, "lease", "etcd-storage-operator.etcd.mooring.dev"},
		{"-n", proxies, "service", "etcd-team-a"}, {"-n", proxies, "deployment", "etcd-team-a"}, {"-n", proxies, "secret", "team-a-signers"},
		{"-n", "team-a", "configmap", "etcd-serving-ca"}, {"-n", "team-a", "secret", "etcd-client-cert"},
	} {
		const uid = `jsonpath={.metadata.uid} {.data.tls\.crt} {.spec.clusterIP}`
		fmt.Fprintln(&out, object, l.kubectl("", append([]string{"get", "-o", uid}, object...)...))
	}
	return out.String()
}
