// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// Certificates near their end are found wherever they are public, and in Secrets when that is asked for. The kind EtcdStorage is served already.
func testDoctorCertificates(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	p := patient{t, cluster}
	// The API server publishes its authorities some time after its start.
	p.eventually(p.ask("certificates"), "ok       certificates: ", " of ConfigMap kube-system/extension-apiserver-authentication, key client-ca-file, on ", "0 problems, 0 warnings, 0 notes, 1 ok\n")
	const day = 24 * time.Hour
	near := func(name string, left time.Duration) string {
		return base64.StdEncoding.EncodeToString(testkit.NewAuthorityFor(t, name, -300*day, left+time.Hour).PEM)
	}
	authority := testkit.NewAuthorityFor(t, "all", -300*day, 300*day)
	served := authority.Issue(t, testkit.Leaf{CommonName: "served", NotBefore: -300 * day, NotAfter: 4*day + time.Hour})
	for _, object := range []string{
		webhook("Validating", near("v", 5*day)), webhook("Mutating", near("m", -2*day)),
		`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.doctor.example.com"},"spec":{"group":"doctor.example.com","version":"v1",` +
			`"groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"default","name":"none"},"caBundle":"` + near("a", 6*day) + `"}}`,
		`{"apiVersion":"etcd.mooring.dev/v1alpha1","kind":"EtcdStorage","metadata":{"name":"doctor"},"spec":{"caCertConfigMap":[{"namespace":"default","name":"doctor"}],` +
			`"clientCertSecret":[{"namespace":"default","name":"doctor-client"}]}}`,
		config("doctor", map[string]string{"serving-ca.crt": decoded(t, near("c", 7*day)), "other": "x"}),
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/tls","metadata":{"name":"doctor-tls","namespace":"default"},"data":{"tls.crt":%q,"tls.key":%q}}`,
			base64.StdEncoding.EncodeToString(served.Cert), base64.StdEncoding.EncodeToString(served.Key)),
	} {
		mustKubectl(t, cluster, object, "create", "-f", "-")
	}
	mustKubectl(t, cluster, "", "patch", "etcdstorages.etcd.mooring.dev", "doctor", "--subresource=status", "--type=merge",
		"-p", `{"status":{"certificates":{"serving":"2020-01-02T03:04:05Z","servingCA":"2100-01-01T00:00:00Z"}}}`)
	public := []string{
		"warning  certificates: ValidatingWebhookConfiguration doctor, webhook doctor.example.com: CN=v expires in 5 days, on ",
		"PROBLEM  certificates: MutatingWebhookConfiguration doctor, webhook doctor.example.com: CN=m expired on ",
		"warning  certificates: APIService v1.doctor.example.com: CN=a expires in 6 days, on ",
		"PROBLEM  certificates: EtcdStorage doctor: certificate serving: it expired at 2020-01-02T03:04:05Z, ",
		"warning  certificates: ConfigMap default/doctor, key serving-ca.crt: CN=c expires in 7 days, on ",
	}
	closed := expect(t, 2, "", p.ask("certificates"), append(public, "note     certificates: not read: 1 Secret of type kubernetes.io/tls\n", "2 problems, 3 warnings, 1 note, 2 ok\n")...)
	if strings.Contains(closed, "doctor-tls") {
		t.Errorf("a Secret was read though nobody asked: %s", closed)
	}
	open := expect(t, 2, "", p.ask("certificates", "--secrets"), append(public, "warning  certificates: Secret default/doctor-tls: CN=served expires in 4 days, on ", "2 problems, 4 warnings, 0 notes, 2 ok\n")...)
	expect(t, 2, "", p.ask("--secrets"), "Secret default/doctor-tls: CN=served expires")
	if strings.Contains(open, "KEY") || strings.Contains(open, base64.StdEncoding.EncodeToString(served.Key)[:20]) {
		t.Errorf("a key is printed: %s", open)
	}
	const no = `is forbidden: User "nobody" cannot`
	for _, side := range []string{"ValidatingWebhookConfigurations", "MutatingWebhookConfigurations", "APIServices", "EtcdStorages", "ConfigMap kube-system/extension-apiserver-authentication"} {
		expect(t, 2, "", p.ask("certificates", "--as", "nobody"), "warning  certificates: not read: "+side+": ", no, "note     certificates: not read: Secrets of type kubernetes.io/tls: ")
	}
	expect(t, 2, "", p.ask("certificates", "--as", "nobody", "--secrets"), "warning  certificates: not read: Secrets: secrets "+no, "0 ok\n")
	mustKubectl(t, cluster, "", "delete", "validatingwebhookconfiguration/doctor", "mutatingwebhookconfiguration/doctor", "apiservice/v1.doctor.example.com",
		"etcdstorages.etcd.mooring.dev/doctor")
	mustKubectl(t, cluster, "", "-n", "default", "delete", "configmap/doctor", "secret/doctor-tls")
}

// webhook is one that is never called, for a resource that nobody has.
func webhook(kind, bundle string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfiguration","metadata":{"name":"doctor"},"webhooks":[{"name":"doctor.example.com",`+
		`"admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":"https://127.0.0.1:1","caBundle":%q},`+
		`"rules":[{"apiGroups":["doctor.example.com"],"apiVersions":["v1"],"resources":["none"],"operations":["CREATE"]}]}]}`, kind, bundle)
}

// config is a ConfigMap in the namespace default.
func config(name string, data map[string]string) string {
	text, _ := json.Marshal(data) // strings always can be
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":%s}`, name, text)
}

func decoded(t *testing.T, text string) string {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
