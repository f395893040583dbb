// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
)

// predecessorsAccount makes the upstream project's service account with its rules, and returns a kubeconfig for it.
func predecessorsAccount(t *testing.T, c *controlplane.Cluster) string {
	t.Helper()
	ctx := t.Context()
	api := must.Get(client.New(c.Config, client.Options{})).Or(t)
	const account, namespace = "cloud-controller-manager", "kube-system"
	for _, u := range upstream.CloudControllerManager() {
		if u.GetKind() != "Deployment" {
			must.Do(t, api.Create(ctx, u))
		}
	}
	token, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.Do(t, err)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData, CertificateAuthority: c.Config.CAFile, TLSServerName: c.Config.ServerName,
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, clientcmd.WriteToFile(*config, path))
	return path
}

func fetch(t *testing.T, address string) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)).Or(t)
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	body := must.Get(io.ReadAll(response.Body)).Or(t)
	return response.StatusCode, string(body)
}

// addressIn finds in the log where the program serves what a variable asked for.
func addressIn(t *testing.T, m *manager, variable string) string {
	t.Helper()
	for line := range strings.Lines(m.Output()) {
		if _, after, ok := strings.Cut(line, `"variable":"`+variable+`","address":"`); ok {
			address, _, _ := strings.Cut(after, `"`)
			return address
		}
	}
	t.Fatalf("the log does not say where %s is served", variable)
	return ""
}

// listening counts the TCP sockets of the program that listen (proc(5), /proc/PID/net/tcp: state 0A).
func listening(t *testing.T, m *manager) int {
	t.Helper()
	own := map[string]bool{}
	process := processOf(t, m)
	links := must.Get(filepath.Glob(filepath.Join(process, "fd", "*"))).Or(t)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	if len(own) == 0 {
		t.Fatal("no socket of the program was found")
	}
	count := 0
	for _, table := range []string{"tcp", "tcp6"} {
		data := must.Get(os.ReadFile(filepath.Join(process, "net", table))).Or(t)
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && own[f[9]] {
				count++
			}
		}
	}
	return count
}

// processOf returns the program's folder in /proc, which it tells by the address of its own simulator in the environment.
func processOf(t *testing.T, m *manager) string {
	t.Helper()
	environments := must.Get(filepath.Glob("/proc/[0-9]*/environ")).Or(t)
	for _, path := range environments {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), m.env[1]+"\x00") {
			return filepath.Dir(path)
		}
	}
	t.Fatal("the program is not in /proc")
	return ""
}
