// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"encoding/json"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// Calico's real kube-controllers alone, calico-node-sync alongside it, calico-node-sync alone, and back. At each stage a machine joins and another is
// destroyed, and nothing that belongs to others changes.
func TestFromCalicosKubeControllersAndBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := workers("b", 8)
	s.join(m[:4]...)
	_, err := s.calico.Start(t.Context(), caliconode.Host{Name: "b-reflector", Address: netip.MustParseAddr("172.30.1.250")})
	s.must(err)

	t.Log("kube-controllers alone")
	theirs := s.theirs(withNode)
	s.labeled()
	lost := s.loseBlock(m[0])
	s.join(m[4])
	s.labeled()
	want := s.without(m[0])
	want[lost] = s.read()[lost]
	s.destroy(m[0])
	s.becomes(want, "all of the machine to go but an affinity without its block, which kube-controllers does not see")

	t.Log("both")
	ours := s.ours()
	delete(want, lost)
	s.becomes(want, "what kube-controllers has left to go as well")
	s.says(ours, "remove the affinity of b-0")
	s.loseBlock(m[1])
	s.join(m[5])
	s.labeled()
	want = s.without(m[1])
	s.destroy(m[1])
	s.becomes(want, "all of the machine to go")

	t.Log("calico-node-sync alone")
	theirs.Stop()
	theirs = s.theirs(withoutNode)
	s.settle()
	s.replace(m[6], m[2])
	s.says(ours, "remove Calico Node b-2")
	if content := s.read(); strings.Contains(content[m[6].nodeKey()], theirLabels) || content[m[6].autoHostEndpoint()] != "" {
		t.Error("a machine has labels and a host endpoint of kube-controllers without its node controller: the page says it has not")
	}

	t.Log("kube-controllers alone again")
	ours.Stop()
	theirs.Stop()
	theirs = s.theirs(withNode)
	s.labeled()
	s.join(m[7])
	s.labeled()
	want = s.without(m[3])
	s.destroy(m[3])
	s.becomes(want, "all of the machine to go")
	theirs.Stop()
	s.onlyKnownTraces()
}

// loseBlock leaves an affinity of the machine without its block, as a crash does, and returns its key.
func (s *site) loseBlock(m machine) string {
	s.t.Helper()
	u := s.live[m.node]
	block, err := u.agent.LeaveAffinityWithoutBlock(s.t.Context())
	s.must(err)
	key := "/calico/ipam/v2/host/" + m.calico + "/ipv4/block/" + strings.Replace(block.String(), "/", "-", 1)
	if s.read()[key] == "" {
		s.t.Fatalf("there is no key %s", key)
	}
	u.owned[key] = true
	return key
}

// onlyKnownTraces fails when calico-node-sync has left anything that the page does not name: in the datastore its mark on ClusterInformation,
// in its namespace what the page lists.
func (s *site) onlyKnownTraces() {
	s.t.Helper()
	var before, after map[string]any
	s.must(json.Unmarshal([]byte(s.information), &before))
	s.must(json.Unmarshal([]byte(s.read()[clusterInformation]), &after))
	metadata := after["metadata"].(map[string]any)
	annotations := metadata["annotations"].(map[string]any)
	delete(annotations, nodesync.BindingAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if diff := cmp.Diff(before, after); diff != "" {
		s.t.Errorf("ClusterInformation has changed by more than our annotation:\n%s", diff)
	}
	for key, value := range s.dump() {
		if strings.Contains(value, "mooring") {
			s.t.Errorf("%s holds %s", key, value)
		}
	}
	known := table(s.t, "## What it leaves")
	for name := range s.left() {
		if !slices.ContainsFunc(known, func(row []string) bool { return matches(row, name) }) {
			s.t.Errorf("%s is left and the page does not name it", name)
		}
	}
}

// matches reports whether an object, as "Kind/name", is one of a row of the page's table of what is left.
func matches(row []string, object string) bool {
	patterns := quotedIn(row[1])
	if len(patterns) == 0 {
		return false
	}
	matched, err := path.Match(row[0]+"/"+patterns[0], object)
	return err == nil && matched
}
