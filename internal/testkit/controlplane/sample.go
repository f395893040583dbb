// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// BuildSampleAPIServer builds Kubernetes' sample-apiserver with the versions that the lab is made of, in a module of its own since nothing else needs it, and
// returns the path of the program. With an empty build cache that takes minutes.
func BuildSampleAPIServer(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	lab := filepath.Join(testkit.Root(tb), "lab")
	var goMod string
	for _, name := range []string{"go.sum", "go.mod"} {
		content := must.Get(os.ReadFile(filepath.Join(lab, name))).Or(tb)
		must.Do(tb, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		goMod = string(content)
	}
	version := regexp.MustCompile(`k8s\.io/api (v\S+)`).FindStringSubmatch(goMod)
	if version == nil {
		tb.Fatal("lab/go.mod requires no k8s.io/api")
	}
	const module, own = "k8s.io/sample-apiserver", "github.com/mooring-dev/mooring"
	program := filepath.Join(dir, "sample-apiserver")
	for _, args := range [][]string{
		{"mod", "edit", "-module=sample", "-droprequire=" + own, "-dropreplace=" + own, "-require=" + module + "@" + version[1]},
		{"build", "-mod=mod", "-buildvcs=false", "-ldflags=-s -w", "-o", program, module},
	} {
		command := exec.CommandContext(tb.Context(), "go", args...)
		command.Dir = dir
		command.Env = append(slices.Clone(os.Environ()), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if out, err := command.CombinedOutput(); err != nil {
			tb.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return program
}

// NewSampleAPIServer starts a sample-apiserver, whose path program is, on an etcd, with a kube-apiserver to ask who may do what, and waits until it is ready.
func NewSampleAPIServer(tb testing.TB, program, etcd string, host *APIServer) *APIServer {
	tb.Helper()
	dir := tb.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := api.Config{
		CurrentContext: "host", Contexts: map[string]*api.Context{"host": {Cluster: "host", AuthInfo: "host"}},
		Clusters:  map[string]*api.Cluster{"host": {Server: host.Config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos: map[string]*api.AuthInfo{"host": {Token: host.Config.BearerToken}},
	}
	must.Do(tb, clientcmd.WriteToFile(config, kubeconfig))
	return startAPIServer(tb, []string{program}, dir, "--etcd-servers="+etcd, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--authentication-tolerate-lookup-failure")
}
