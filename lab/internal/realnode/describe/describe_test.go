// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package describe_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/lab/internal/realnode/describe"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestGolden(t *testing.T) {
	t.Parallel()
	made := describe.Make(describe.Machine{
		Name: "node-1", Address: netip.MustParseAddr("172.30.0.3"), External: true, Dir: "/lab/real-nodes/node-1", Bin: "/bin",
		CgroupRoot: "/mooring-lab-0a1b2c3d/node-1", APIServer: "https://172.30.0.1:6443", AuthorityFile: "/lab/pki/ca.crt", ClientCAFile: "/lab/pki/kubelet-ca.crt",
		KubeletClient: "/lab/pki/kubelet-node-1", KubeletServer: "/lab/pki/kubelet-node-1-server", ProxyClient: "/lab/pki/services",
		Labels: []string{"a=b", "c=d"}, Archives: []image.Archive{{Path: "/lab/data/images/pause.tar", Repository: "docker.io/mooring-lab/pause"}},
	})
	got, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "machine.yaml")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run `go test ./internal/realnode/describe -update` if this is meant:\n%s", diff)
	}
}

func TestPodRanges(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"172.30.0.3": "10.245.3.0/24", "172.30.0.255": "10.245.255.0/24", "172.30.1.3": "invalid Prefix"} {
		if got := describe.PodCIDR(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("pods of %s are in %s, want %s", address, got, want)
		}
	}
}

// TestDefaultHeartbeats: a machine with the heartbeats of Kubernetes' defaults has no setting of its own.
func TestDefaultHeartbeats(t *testing.T) {
	t.Parallel()
	for _, defaults := range []bool{false, true} {
		made, err := yaml.Marshal(describe.Make(describe.Machine{
			Name: "node-1", Address: netip.MustParseAddr("172.30.0.3"), DefaultHeartbeats: defaults,
		}))
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range []string{"nodeLeaseDurationSeconds", "nodeStatusUpdateFrequency"} {
			if set := strings.Contains(string(made), setting); set == defaults {
				t.Errorf("with defaults %t the setting %s is there: %t", defaults, setting, set)
			}
		}
	}
}
