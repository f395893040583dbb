// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package hack_test

import (
	"bytes"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a program in dir and returns its standard output.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // what is compiled here shares the build cache of make build
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// copyTree copies what the script reads and the compiler needs: everything but what is built.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (name == ".git" || name == "bin" || d.Name() == ".lab"):
			return filepath.SkipDir
		case name == ".git": // of a worktree; the copy is a repository of its own
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm())
	})
	must.Do(t, err)
}

// TestRenameChangesEverything renames a copy of the repository, looks for what was forgotten, and compiles a piece of it.
func TestRenameChangesEverything(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("hack/rename.sh needs perl, which CI must have")
		}
		t.Skip("hack/rename.sh needs perl")
	}
	root := t.TempDir()
	copyTree(t, "..", root)
	command(t, root, "git", "init", "--quiet")
	command(t, root, "hack/rename.sh", "example.org/tether/tether", "tether.example.org", "registry.example/tether")

	for _, dir := range []string{root, filepath.Join(root, "lab")} {
		for path := range strings.FieldsSeq(command(t, dir, "go", "list", "./...")) {
			if !strings.HasPrefix(path, "example.org/tether/tether") {
				t.Errorf("package %s kept its path", path)
			}
		}
	}
	for name := range strings.SplitSeq(strings.TrimSpace(command(t, root, "git", "ls-files", "-co", "--exclude-standard")), "\n") {
		content := must.Get(os.ReadFile(filepath.Join(root, name))).Or(t)
		if strings.Contains(name, "mooring.dev") {
			t.Errorf("%s is still called so", name)
		}
		for _, old := range []string{"github.com/mooring-dev/mooring", "nodes.mooring.dev", "bgp.mooring.dev", " mooring/calico-node-sync:dev", " mooring/etcd-storage-proxy:dev"} {
			// This file must name what it looks for, and was renamed too: it looks for the new names there, which is as good.
			if bytes.Contains(content, []byte(old)) {
				t.Errorf("%s still says %s", name, old)
			}
		}
	}
	for file, want := range map[string]string{
		"charts/mooring/README.md": "oci://registry.example/tether/charts/mooring",
		"Makefile":                 "\nREGISTRY     ?= registry.example/tether\n", "charts/mooring/values.yaml": "\n  imageRegistry: registry.example/tether\n",
		"hack/release/chart.go": "\tdefaultRegistry = \"registry.example/tether\"\n", "dist/etcd-storage-operator.yaml": "image: registry.example/tether/etcd-storage-operator:dev\n",
	} {
		content := must.Get(os.ReadFile(filepath.Join(root, file))).Or(t)
		if !bytes.Contains(content, []byte(want)) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
	command(t, root, "go", "vet", "./internal/nodesync", "./internal/archtest")
}
