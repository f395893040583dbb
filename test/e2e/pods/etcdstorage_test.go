// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// core is an etcd with client certificates at the address that the operator's manifests name.
const core = `
apiVersion: v1
kind: Namespace
metadata: {name: etcd-core}
---
apiVersion: v1
kind: Secret
metadata: {name: etcd, namespace: etcd-core}
data: {ca.crt: %[1]s, tls.crt: %[2]s, tls.key: %[3]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: etcd, namespace: etcd-core}
spec:
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, runAsNonRoot: true}
      containers:
        - name: etcd
          image: ` + coreImage + `
          command: [etcd]
          args:
            - --name=core
            - --data-dir=/data/etcd
            - --listen-client-urls=https://0.0.0.0:2379
            - --advertise-client-urls=https://etcd.etcd-core.svc:2379
            - --listen-peer-urls=http://127.0.0.1:2380
            - --initial-advertise-peer-urls=http://127.0.0.1:2380
            - --initial-cluster=core=http://127.0.0.1:2380
            - --listen-metrics-urls=http://$(IP):2381
            - --client-cert-auth
            - --trusted-ca-file=/tls/ca.crt
            - --cert-file=/tls/tls.crt
            - --key-file=/tls/tls.key
          env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
          readinessProbe: {httpGet: {path: /readyz, port: 2381}, periodSeconds: 1, timeoutSeconds: 30}
          volumeMounts: [{name: data, mountPath: /data}, {name: tls, mountPath: /tls, readOnly: true}]
      volumes: [{name: data, emptyDir: {}}, {name: tls, secret: {secretName: etcd, defaultMode: 0440}}]
---
apiVersion: v1
kind: Service
metadata: {name: etcd, namespace: etcd-core}
spec: {selector: {app: etcd}, ports: [{port: 2379}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-apiserver-storage}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: etcd-coreserving-ca, namespace: kube-apiserver-storage}
data: {ca.crt: %[6]q}
---
apiVersion: v1
kind: Secret
metadata: {name: etcd-coreserving-cert, namespace: kube-apiserver-storage}
data: {tls.crt: %[4]s, tls.key: %[5]s}
`

// client is a pod of the tenant that has what the operator delivers.
const client = `
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: team-a}
spec:
  containers:
    - name: main
      image: mooring-lab/sample:lab
      ports: [{containerPort: 8080}]
      volumeMounts: [{name: ca, mountPath: /ca}, {name: cert, mountPath: /cert}]
  volumes:
    - {name: ca, configMap: {name: etcd-serving-ca}}
    - {name: cert, secret: {secretName: etcd-client-cert}}
`

// TestEtcdStorage deploys the operator from its manifests and asks for a storage: another pod puts and gets there, by the endpoint's name and with what
// the operator has delivered, also while one proxy's pod is replaced.
func TestEtcdStorage(t *testing.T) {
	needBinaries(t)
	l := start(t, images(coreImage, "mooring/etcd-storage-operator:dev", "mooring/etcd-storage-proxy:dev")...)
	l.deployOperator(t)
	l.apply(read(t, filepath.Join(testkit.Root(t), "config/etcd-storage-operator/example/team-a.yaml")))
	l.storageReady("team-a")
	l.account("team-a")
	l.apply(client)
	asked := map[string]string{
		"endpoint": "https://etcd-team-a.kube-apiserver-storage.svc:2379", "ca": "/ca/serving-ca.crt", "cert": "/cert/tls.crt", "key": "/cert/tls.key",
		"name": "/registry/key", "put": "value",
	}
	l.expect("team-a", "client", "/etcd", asked, "value")

	delete(asked, "put")
	l.kubectl("", "-n", "kube-apiserver-storage", "rollout", "restart", "deployment/etcd-team-a")
	l.available("kube-apiserver-storage", "etcd-team-a")
	l.expect("team-a", "client", "/etcd", asked, "value")

	l.kubectl("", "delete", "etcdstorage", "team-a", "--timeout=110s")
	testkit.Eventually(t, "the proxies' end", func() string {
		list, err := l.client.CoreV1().Pods("kube-apiserver-storage").List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.PodLabel + "=team-a"})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) > 0 {
			return l.podsOf("kube-apiserver-storage")
		}
		return ""
	})
}

// needBinaries skips the test if a program is not built that pods run, and in a short run, for which no machine's programs are built.
func needBinaries(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e builds it and runs this")
	}
	for _, name := range []string{"etcd", "etcd-storage-operator", "etcd-storage-proxy"} {
		testkit.Binary(t, name)
	}
}

// deployCore makes a core etcd, and what the operator and its proxies need to reach it.
func (l *lab) deployCore(t *testing.T) {
	t.Helper()
	authority := testkit.NewAuthority(t, "core")
	server := authority.Issue(t, testkit.Leaf{CommonName: "etcd", DNSNames: []string{"etcd.etcd-core.svc", "localhost"}})
	operator := authority.Issue(t, testkit.Leaf{CommonName: "operator"})
	text := base64.StdEncoding.EncodeToString
	l.apply(fmt.Sprintf(core, text(authority.PEM), text(server.Cert), text(server.Key), text(operator.Cert), text(operator.Key), authority.PEM))
	l.available("etcd-core", "etcd")
}

// deployOperator makes a core etcd and the operator, from its own manifests.
func (l *lab) deployOperator(t *testing.T) {
	t.Helper()
	l.deployCore(t)
	config := filepath.Join(testkit.Root(t), "config")
	l.kubectl("", "apply", "--server-side", "-f", filepath.Join(config, "crd/bases", v1alpha1.GroupVersion.Group+"_etcdstorages.yaml"))
	testkit.Eventually(t, "the kind to be served", func() string { // kubectl wait ends at once where a kind has no conditions yet
		if _, err := l.client.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String()); err != nil {
			return err.Error()
		}
		return ""
	})
	l.kubectl("", "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(config, "etcd-storage-operator/base"))
	l.available("kube-apiserver-storage", "etcd-storage-operator")
}

// storageReady waits until an EtcdStorage is.
func (l *lab) storageReady(name string) {
	l.Helper()
	testkit.Eventually(l, "EtcdStorage "+name, func() string {
		ready := l.kubectl("", "get", "etcdstorage", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if ready == "True" {
			return ""
		}
		return "not ready: " + l.kubectl("", "get", "etcdstorage", name, "-o", "jsonpath={.status.conditions}") + l.podsOf("kube-apiserver-storage")
	})
}
