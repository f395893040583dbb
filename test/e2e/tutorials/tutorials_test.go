// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tutorials

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/pages"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// programs says what a tutorial runs alongside the lab and kubectl.
func programs() map[string][]string {
	return map[string][]string{
		"cloud.md":            {"digitalocean-cloud-controller-manager", "kubectl-mooring"},
		"calico-node-sync.md": {"calico-node-sync", "kubectl-mooring"},
		"etcd-storage.md":     {"etcd", "etcd-storage-operator", "etcd-storage-proxy", "kubectl-mooring"},
		"volumes.md":          {"digitalocean-cloud-controller-manager", "digitalocean-csi-driver", "kubectl-mooring"},
	}
}

func TestTutorials(t *testing.T) {
	t.Parallel()
	for page, programs := range programs() {
		t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) {
			t.Parallel()
			for _, name := range append([]string{"lab", "kubectl"}, programs...) {
				testkit.Binary(t, name)
			}
			switch page {
			case "volumes.md":
				needRealMachines(t)
				needDisks(t)
			case "etcd-storage.md":
				needRealMachines(t)
			}
			pages.Follow(t, "tutorials/"+page)
		})
	}
}

// needRealMachines skips the test where there can be none, and in a short run, for which none of their programs are built.
func needRealMachines(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e builds it and runs this")
	}
	out, err := exec.CommandContext(t.Context(), testkit.Binary(t, "lab"), "doctor", "--dir", t.TempDir()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "machines can run kubelet and containerd") {
		testkit.Skip(t, "it needs real machines: %v\n%s", err, out)
	}
}

// needDisks skips the test where volumes of real machines cannot be.
func needDisks(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/dev/loop-control", "/sbin/mkfs.ext4", "/sbin/mkfs.xfs", filepath.Join(testkit.Root(t), "bin", "csi", "counter")} {
		if _, err := os.Stat(path); err != nil {
			testkit.Skip(t, "volumes of real machines need loop devices, e2fsprogs, xfsprogs and make real-nodes: %v", err)
		}
	}
}

// Each page of the folder is followed, here or beside the BGP network.
func TestNoTutorialIsForgotten(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(testkit.Root(t), "docs", "tutorials", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	followed := programs()
	for _, path := range found {
		page := filepath.Base(path)
		if _, ok := followed[page]; ok || page == "README.md" {
			continue
		}
		elsewhere := filepath.Join(testkit.Root(t), "lab", "internal", "bgp", "e2e", "tutorial_test.go")
		if text, err := os.ReadFile(elsewhere); err != nil || !strings.Contains(string(text), `"tutorials/`+page+`"`) {
			t.Errorf("no test follows docs/tutorials/%s", page)
		}
	}
}
