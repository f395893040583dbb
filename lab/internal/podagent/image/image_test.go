// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
)

func TestFind(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"etcd-storage-proxy", "etcd", "lab", "extra"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := image.NewTable(bin, filepath.Join(bin, "lab"), []string{"example.org/team/extra=" + filepath.Join(bin, "extra")})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(bin, name) }
	for reference, want := range map[string]image.Image{
		"mooring/etcd-storage-proxy:dev": {
			Program: at("etcd-storage-proxy"), Paths: []string{"/bin/etcd-storage-proxy", "/entrypoint"}, Entrypoint: []string{"/entrypoint"}, User: 65532,
		},
		"docker.io/mooring/etcd-storage-proxy@sha256:00": {
			Program: at("etcd-storage-proxy"), Paths: []string{"/bin/etcd-storage-proxy", "/entrypoint"}, Entrypoint: []string{"/entrypoint"}, User: 65532,
		},
		"quay.io/coreos/etcd:v3.7.3": {
			Program: at("etcd"), Paths: []string{"/usr/local/bin/etcd", "/bin/etcd", "/entrypoint"}, Entrypoint: []string{"/usr/local/bin/etcd"},
		},
		"mooring-lab/sample":                     {Program: at("lab"), Paths: []string{"/bin/lab"}, Entrypoint: []string{"/bin/lab", "sample"}, User: 65532},
		"registry.k8s.io/kube-apiserver:v1.36.3": {Program: at("lab"), Paths: []string{"/usr/local/bin/kube-apiserver"}, Entrypoint: []string{"/usr/local/bin/kube-apiserver"}},
		"example.org/team/extra:1":               {Program: at("extra"), Paths: []string{"/bin/extra", "/entrypoint"}, Entrypoint: []string{"/entrypoint"}, User: 65532},
	} {
		got, err := table.Find(reference)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", reference, err, diff)
		}
	}
	for reference, want := range map[string]string{
		"nginx:1.29": `image "nginx:1.29" is unknown here, and the lab pulls nothing; it knows example.org/team/extra, gcr.io/etcd-development/etcd, `,
		"mooring/calico-node-sync:dev": `image "mooring/calico-node-sync:dev" stands for ` + at("calico-node-sync") +
			", which is not built; run `make build`, or `make bin/calico-node-sync`",
		"mooring-lab/kubectl": `image "mooring-lab/kubectl" stands for ` + at("kubectl") + ", which is no program",
	} {
		if _, err := table.Find(reference); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", reference, err)
		}
	}
	if _, err := image.NewTable(bin, "", []string{"extra"}); err == nil || err.Error() != `image "extra" is not of the form REPOSITORY=/PATH/OF/BINARY` {
		t.Errorf("a pair that is none: %v", err)
	}
}

func TestRepository(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string]string{
		"a": "a", "a:1": "a", "a/b:1@sha256:2": "a/b", "localhost:5000/a": "localhost:5000/a", "localhost:5000/a:1": "localhost:5000/a", "docker.io/a/b:1": "a/b", "": "",
	} {
		if got := image.Repository(reference); got != want {
			t.Errorf("%s: %s", reference, got)
		}
	}
}

func FuzzRepository(f *testing.F) {
	f.Add("localhost:5000/a:1@sha256:2")
	f.Fuzz(func(t *testing.T, reference string) {
		if got := image.Repository(reference); len(got) > len(reference) || strings.Contains(got, "@") {
			t.Errorf("%q gives %q", reference, got)
		}
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for called, want := range map[string][]string{
		"/x/lab up": {"up"}, "lab": {}, "kube-apiserver --v=1": {"kube-apiserver", "--v=1"}, "/usr/local/bin/kube-apiserver": {"kube-apiserver"}, "": {},
	} {
		if got := image.Arguments(strings.Fields(called)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", called, got)
		}
	}
}
