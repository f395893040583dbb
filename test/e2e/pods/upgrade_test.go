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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// previousBinaries names a folder with etcd-storage-operator and etcd-storage-proxy of the previous version, which hack/previous.sh builds; without it those of
// bin/ run as both versions, so that the chart alone is upgraded.
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
      image: mooring-test/traffic:lab
      env: [{name: ` + asTraffic + `, value: "https://etcd-team-a.kube-apiserver-storage.svc:2379"}]
      ports: [{containerPort: 8080}]
      readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}
      volumeMounts: [{name: ca, mountPath: /ca}, {name: cert, mountPath: /cert}]
  volumes:
    - {name: ca, configMap: {name: etcd-serving-ca}}
    - {name: cert, secret: {secretName: etcd-client-cert}}
`

// TestChartUpgradeWithTraffic takes the release of the etcd storage operator from the previous version of the chart to this one, back, and here again, while
// a tenant's client writes, reads and watches without a break. With each step the operator's pods and then the proxies are replaced. In the end it installs this
// version where nothing of the operator is left.
func TestChartUpgradeWithTraffic(t *testing.T) {
	needBinaries(t)
	root := testkit.Root(t)
	previous := readChart(t, filepath.Join(root, "test/charts/testdata/previous/mooring"), previousImages, os.Getenv(previousBinaries))
	this := readChart(t, cmp.Or(os.Getenv(releaseChart), filepath.Join(root, "charts/mooring")), "mooring", os.Getenv(releasePrograms))
	l := start(t, images(append(append(previous.programs(t), this.programs(t)...), coreImage, "mooring-test/traffic:lab="+thisProgram(t))...)...)
	l.deployCore(t)
	l.kubectl("", "label", "namespace", proxies, "pod-security.kubernetes.io/enforce=restricted")
	l.install(previous)
	team := read(t, filepath.Join(root, "config/etcd-storage-operator/example/team-a.yaml"))
	team = strings.Replace(team, "\nspec:\n", fmt.Sprintf("\nspec:\n  replicas: %d\n  deletionPolicy: Delete\n", tenantReplicas), 1)
	l.apply(team)
	l.storageReady("team-a")
	l.account("team-a")
	l.apply(trafficPod)
	l.flows()
	identities := l.identities()
	certificate, authority := l.clientCertificate()

	upgrade := append([]string{"upgrade", "mooring-etcd", this.path, "--wait", "--reset-then-reuse-values"}, this.images()...)
	steps := []struct {
		to   chart
		helm []string
	}{
		{this, upgrade},
		{previous, []string{"rollback", "mooring-etcd", "1", "--wait"}},
		{this, upgrade},
	}
	for _, step := range steps {
		l.helm(step.helm...)
		l.runs(step.to)
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
		t.Errorf("created again on the way:\n%s\nbefore:\n%s", now, identities)
	}
	l.keepsCertificate(certificate, authority)

	l.kubectl("", "delete", "-n", "team-a", "pod", "traffic")
	l.kubectl("", "delete", "etcdstorage", "team-a")
	l.helm("uninstall", "mooring-etcd", "--wait")
	l.kubectl("", "delete", "crd", "etcdstorages.etcd.mooring.dev") // which the chart keeps
	l.install(this)
	l.apply(team)
	l.runs(this)
}

// chart is a version of the chart, where its images are in the lab, and the folder of their programs if that is not bin/.
type chart struct{ path, registry, tag, folder string }

// readChart reads from a chart the tag that its images have: dev of a folder of the repository, the version of a release's package.
func readChart(t *testing.T, path, registry, folder string) chart {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testkit.Binary(t, "helm"), "show", "chart", path).Output()
	if err != nil {
		t.Fatalf("helm show chart %s: %v", path, err)
	}
	for line := range strings.Lines(string(out)) {
		if tag, ok := strings.CutPrefix(line, "appVersion: "); ok {
			return chart{path, registry, strings.Trim(strings.TrimSpace(tag), `"`), folder}
		}
	}
	t.Fatalf("the chart %s has no appVersion", path)
	return chart{}
}

// programs are the images of the operator and its proxies, each with the path of its program.
func (c chart) programs(t *testing.T) (out []string) {
	t.Helper()
	for _, name := range []string{"etcd-storage-operator", "etcd-storage-proxy"} {
		path := filepath.Join(c.folder, name)
		if c.folder == "" {
			path = testkit.Binary(t, name)
		}
		out = append(out, c.image(name)+"="+path)
	}
	return out
}

// image is that of a program.
func (c chart) image(program string) string { return c.registry + "/" + program + ":" + c.tag }

// images are Helm's flags for them.
func (c chart) images() []string {
	return []string{
		"--set", "etcdStorageOperator.image.repository=" + c.registry + "/etcd-storage-operator", "--set", "etcdStorageOperator.proxyImage.repository=" + c.registry + "/etcd-storage-proxy",
	}
}

// install installs a version of the chart with the operator.
func (l *lab) install(c chart) {
	l.Helper()
	l.helm(append(c.images(), "install", "mooring-etcd", c.path, "--wait", "--set", "etcdStorageOperator.enabled=true",
		"--set", "etcdStorageOperator.core.urls={https://etcd.etcd-core.svc:2379}")...)
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

// helm runs Helm in the operator's namespace and returns what it prints.
func (l *lab) helm(args ...string) string { l.Helper(); return l.helmIn(proxies, args...) }

// helmIn runs Helm in a namespace and returns what it prints.
func (l *lab) helmIn(namespace string, args ...string) string {
	l.Helper()
	args = append(args, "--namespace", namespace, "--kubeconfig", filepath.Join(l.dir, "kubeconfig"))
	command := exec.CommandContext(l.Context(), testkit.Binary(l, "helm"), args...)
	command.Env = []string{"HOME=" + l.TempDir()}
	out, err := command.CombinedOutput()
	if err != nil {
		l.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, l.podsOf(namespace))
	}
	return string(out)
}

// runs waits until the operator, which Helm has waited for, and then the proxies run in the images of a version, all of them ready.
func (l *lab) runs(c chart) {
	l.Helper()
	operator, err := l.client.AppsV1().Deployments(proxies).Get(l.Context(), "etcd-storage-operator", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	image := operator.Spec.Template.Spec.Containers[0].Image
	if s := operator.Status; s.ReadyReplicas != 2 || s.UpdatedReplicas != 2 || image != c.image("etcd-storage-operator") {
		l.Errorf("after helm --wait the operator is %s instead of %s, %+v", image, c.image("etcd-storage-operator"), s)
	}
	testkit.Eventually(l, "proxies in "+c.image("etcd-storage-proxy"), func() string {
		d, err := l.client.AppsV1().Deployments(proxies).Get(l.Context(), "etcd-team-a", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; image != c.image("etcd-storage-proxy") {
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
		const uid = `jsonpath={.metadata.uid} {.spec.clusterIP}`
		fmt.Fprintln(&out, object, l.kubectl("", append([]string{"get", "-o", uid}, object...)...))
	}
	return out.String()
}

// keepsCertificate sees that the tenant's client certificate is still signed by the same CA. It is the very same one where the same programs run as both
// versions; a newer version may put more into it, and then issues it again.
func (l *lab) keepsCertificate(certificate, authority string) {
	l.Helper()
	now, signer := l.clientCertificate()
	if signer != authority {
		l.Errorf("the client certificate has another CA:\n%s\nbefore:\n%s", signer, authority)
	}
	if os.Getenv(previousBinaries) == "" && now != certificate {
		l.Errorf("the client certificate was issued again:\n%s\nbefore:\n%s", now, certificate)
	}
}

// clientCertificate returns the tenant's client certificate and that of the CA which signed it, the two that a Secret for clients has.
func (l *lab) clientCertificate() (certificate, authority string) {
	l.Helper()
	secret, err := l.client.CoreV1().Secrets("team-a").Get(l.Context(), "etcd-client-cert", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	const end = "-----END CERTIFICATE-----\n"
	chain := strings.SplitAfter(string(secret.Data[corev1.TLSCertKey]), end)
	if len(chain) != 3 || chain[2] != "" {
		l.Fatalf("the client certificate is a chain of %d instead of 2:\n%s", len(chain)-1, secret.Data[corev1.TLSCertKey])
	}
	return chain[0], chain[1]
}
