// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A thousand simulated machines, with two pods and a calico-node each, are one process of at most 500 MB, all the way from its start. The short
// run has fewer, and the bound of as many.
func TestThousandMachines(t *testing.T) {
	machines, most := 1000, 500_000_000
	if testing.Short() {
		machines, most = 100, 200_000_000
	}
	begin := time.Now()
	s := newSite(t, fmt.Sprintf("--nodes=%d", machines), "--node-monitor-grace-period=40s")
	t.Logf("%d machines are Nodes after %s", machines, since(begin))
	nodes, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	s.must(err)
	for _, node := range nodes.Items {
		if node.Spec.ProviderID == "" {
			t.Errorf("Node %s has no provider ID", node.Name)
		}
	}
	if len(nodes.Items) != machines {
		t.Errorf("%d Nodes, want %d", len(nodes.Items), machines)
	}
	for _, name := range []string{"nodes", manager, "digitalocean"} {
		pid, _ := s.process(name)
		now, peak := s.memory(pid, "VmRSS"), s.memory(pid, "VmHWM")
		t.Logf("%s: %d MB, at most %d MB so far", name, now/1e6, peak/1e6)
		if name == "nodes" && peak > most {
			t.Errorf("%d machines took %d MB, more than %d", machines, peak/1e6, most/1e6)
		}
	}
}

// memory reads a value of proc(5), status, in bytes.
func (s *site) memory(pid int, key string) int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	s.must(err)
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			var kilobytes int
			_, err := fmt.Sscanf(value, "%d kB", &kilobytes)
			s.must(err)
			return kilobytes * 1024
		}
	}
	s.t.Fatalf("/proc/%d/status lacks %s", pid, key)
	return 0
}
