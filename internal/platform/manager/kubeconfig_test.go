// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	certutil "k8s.io/client-go/util/cert"
)

// pki returns a PEM certificate that serves as a CA, and a key.
func pki(t *testing.T) (cert, key []byte) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	must.Do(t, err)
	return cert, key
}

func write(t *testing.T, dir, name, data string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(path, []byte(data), 0o600))
	return path
}

// kubeconfig is a file with the given fields of its cluster and user.
func kubeconfig(cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
}

// inPod is the environment of a Pod, with which nothing may be mixed up.
func inPod(name string) string {
	return map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}[name]
}

func outside(string) string { return "" }

// account makes a service account's folder.
func account(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, _ := pki(t)
	write(t, dir, "token", "pod-token")
	write(t, dir, "ca.crt", string(ca))
	return dir
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	ca, _ := pki(t)
	caData := "certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca)
	dir := t.TempDir()
	write(t, dir, "ca.crt", string(ca))
	good := write(t, dir, "good", kubeconfig("server: https://a:1, "+caData, "token: file-token"))
	relative := write(t, dir, "relative", kubeconfig("server: https://b:1, certificate-authority: ca.crt", "token: file-token"))
	tests := map[string]struct {
		options             Options
		getenv              func(string) string
		wantHost, wantToken string
	}{
		"a Pod":                            {Options{}, inPod, "https://10.0.0.1:443", "pod-token"},
		"a kubeconfig":                     {Options{Kubeconfig: good}, outside, "https://a:1", "file-token"},
		"a kubeconfig in a Pod":            {Options{Kubeconfig: good}, inPod, "https://a:1", "file-token"},
		"paths relative to the kubeconfig": {Options{Kubeconfig: relative}, outside, "https://b:1", "file-token"},
		"another server":                   {Options{Kubeconfig: good, Master: "https://m:2"}, inPod, "https://m:2", "file-token"},
		"a server alone, no credentials":   {Options{Master: "http://127.0.0.1:8001"}, inPod, "http://127.0.0.1:8001", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(tt.options.loadConfig(tt.getenv, account(t))).Or(t)
			if got.Host != tt.wantHost || got.BearerToken != tt.wantToken {
				t.Errorf("host %q, token %q; want %q and %q", got.Host, got.BearerToken, tt.wantHost, tt.wantToken)
			}
		})
	}
}

// Each bad source is an error, in a Pod as outside: what it must never be is another cluster.
func TestLoadConfigNeverFallsBack(t *testing.T) {
	t.Parallel()
	ca, key := pki(t)
	b64 := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	_, otherKey := pki(t)
	tests := map[string]struct{ content, want string }{
		"empty":            {"", "names no current-context"},
		"no YAML":          {"{", "cannot be read"},
		"no context":       {"apiVersion: v1\nkind: Config\n", "names no current-context; set one with 'kubectl config use-context'"},
		"a context astray": {strings.Replace(kubeconfig("server: https://a", ""), "current-context: c", "current-context: d", 1), `current-context "d" does not exist in it`},
		"a cluster astray": {strings.Replace(kubeconfig("server: https://a", ""), "cluster: k, user", "cluster: z, user", 1), `names cluster "z", which has no server in it`},
		"a user astray":    {strings.Replace(kubeconfig("server: https://a", ""), "user: u}", "user: z}", 1), `names user "z", which does not exist in it`},
		"no server":        {kubeconfig("", "token: x"), `names cluster "k", which has no server in it`},
		"a CA without PEM": {kubeconfig("server: https://a, certificate-authority-data: "+b64([]byte("x")), ""), "the certificate-authority-data of server https://a is unusable"},
		"a CA not there":   {kubeconfig("server: https://a, certificate-authority: /nonexistent", ""), "no such file"},
		"a key that does not match": {
			kubeconfig("server: https://a", "client-certificate-data: "+b64(ca)+", client-key-data: "+b64(otherKey)),
			"the client certificate for server https://a is unusable: tls: private key does not match public key",
		},
		"a certificate without key": {kubeconfig("server: https://a", "client-certificate-data: "+b64(ca)), "client-key-data or client-key must be specified"},
		"a key as certificate": {
			kubeconfig("server: https://a", "client-certificate-data: "+b64(key)+", client-key-data: "+b64(key)),
			"the client certificate for server https://a is unusable",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, t.TempDir(), "kubeconfig", tt.content)
			for _, getenv := range []func(string) string{inPod, outside} {
				config, err := Options{Kubeconfig: path}.loadConfig(getenv, account(t))
				if err == nil {
					t.Fatalf("the answer is %s", config.Host)
				}
				if got := err.Error(); !strings.HasPrefix(got, "--kubeconfig "+`"`+path+`"`) || !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
					t.Errorf("error %q is not one line about the file with %q", got, tt.want)
				}
			}
		})
	}
}

func TestLoadConfigExplainsItself(t *testing.T) {
	t.Parallel()
	noCA, badCA := account(t), account(t)
	must.Do(t, os.Remove(filepath.Join(noCA, "ca.crt")))
	write(t, badCA, "ca.crt", "x")
	tests := map[string]struct {
		options Options
		getenv  func(string) string
		dir     string
		want    string
	}{
		"nothing configured": {Options{}, outside, "/nonexistent", "no API server is configured: pass --kubeconfig, or run as a Pod " +
			"(this is not one: KUBERNETES_SERVICE_HOST is unset); KUBECONFIG and ~/.kube/config are not read, so that no other cluster is changed by accident"},
		"a kubeconfig that is not there": {Options{Kubeconfig: "/nonexistent"}, inPod, noCA, `--kubeconfig "/nonexistent" cannot be read: no such file or directory`},
		"a Pod without a token": {Options{}, inPod, "/nonexistent", "the Pod has no service account token, check automountServiceAccountToken or pass --kubeconfig: " +
			"open /nonexistent/token: no such file or directory"},
		"a Pod without a CA":  {Options{}, inPod, noCA, "the CA of the Pod's service account is unusable: open " + noCA + "/ca.crt: no such file or directory"},
		"a Pod with a bad CA": {Options{}, inPod, badCA, "the CA of the Pod's service account is unusable: error creating pool from " + badCA + "/ca.crt: data does not contain any valid RSA or ECDSA certificates"},
		"no URL":              {Options{Master: "localhost"}, inPod, noCA, `--master "localhost" is not a URL like https://host:port`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := tt.options.loadConfig(tt.getenv, tt.dir); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// A developer's environment must not leak into a controller.
func TestRESTConfigIgnoresTheEnvironment(t *testing.T) {
	path := write(t, t.TempDir(), "kubeconfig", kubeconfig("server: https://wrong", "token: x"))
	home := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(home, ".kube"), 0o700))
	write(t, filepath.Join(home, ".kube"), "config", kubeconfig("server: https://wrong", "token: x"))
	for name, value := range map[string]string{
		"KUBECONFIG": path, "HOME": home, "KUBERNETES_MASTER": "https://wrong", "KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": "",
	} {
		t.Setenv(name, value)
	}
	if config, err := (Options{}).RESTConfig("test"); err == nil {
		t.Errorf("without flags the answer is %s", config.Host)
	}
	empty := write(t, t.TempDir(), "kubeconfig", "")
	if config, err := (Options{Kubeconfig: empty}).RESTConfig("test"); err == nil {
		t.Errorf("with an empty file the answer is %s", config.Host)
	}
	config, err := Options{Kubeconfig: write(t, t.TempDir(), "right", kubeconfig("server: https://right", ""))}.RESTConfig("agent")
	must.Do(t, err)
	if config.Host != "https://right" || config.UserAgent != "agent" || config.QPS >= 0 {
		t.Errorf("host %q, user agent %q, QPS %v", config.Host, config.UserAgent, config.QPS)
	}
}
