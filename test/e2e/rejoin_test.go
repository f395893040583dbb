// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// A machine joins again under its name, calico-node included, right before every single write of its clean-up, or when that write has
// happened and the product has not heard of it yet, or while the product is dead. All that stood in the datastore at that moment must
// stay, byte for byte, and the fence must be withdrawn. If just the kubelet is back, and calico-node has not started, the one write that was
// under way may happen, and no other.
func TestRejoiningBeforeEveryWriteKeepsTheRest(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]rejoining{
		"before":     {},
		"after":      {after: true},
		"while-dead": {kill: true},
		"kubelet":    {kubeletOnly: true},
	} {
		if testing.Short() && name != "before" {
			continue // the full run does it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, controlplane.Shared(t), "rejoin-"+name)
			points := 0
			for _, kind := range s.kinds() {
				for n := 1; s.rejoinAt(kind, n, way); n += stride() {
					points++
				}
			}
			t.Logf("%d moments", points)
		})
	}
}

// rejoining is how a machine comes back.
type rejoining struct{ after, kill, kubeletOnly bool }

// rejoinAt does it at one point, and returns false when the clean-up ended before there was such a write.
func (s *scene) rejoinAt(kind string, n int, way rejoining) bool {
	s.t.Helper()
	s.restore(s.dirty)
	trap := s.through.Lay(kind, n, way.after)
	process := s.start(s.through, "--resync-period=2s")
	defer func() { process.Stop() }()
	if !s.await(trap) {
		return false
	}
	if way.kill {
		process.Kill()
	}
	s.addNode(goes)
	defer s.dropNode(goes)
	if !way.kubeletOnly {
		_, err := s.calico.Start(s.t.Context(), s.host(goes, goesByte))
		s.must(err)
	}
	want := s.withoutLost(s.etcd.Dump(s.t))
	seen := s.through.Rounds()
	trap.Release(!way.kill)
	if way.kill {
		process = s.start(s.through, "--resync-period=2s")
	}
	testkit.Eventually(s.t, "rejoined "+trap.String()+" ("+trap.Write+"): the product to leave the machine alone", func() string {
		if s.through.Rounds() < seen+2 {
			return "it has not looked again"
		}
		now := s.etcd.Dump(s.t)
		kept := s.withoutLost(now)
		if way.kubeletOnly {
			trap.allow(want, kept)
		}
		if diff := cmp.Diff(want, kept); diff != "" {
			return diff + "\nits log:\n" + tail(process)
		}
		for _, key := range s.lostKeys {
			if _, stays := s.clean[key]; !stays && now[key] != "" {
				return key + " of another machine is there; the log:\n" + tail(process)
			}
		}
		if fenced(now[nodePrefix+s.name(goes)]) {
			return "it is fenced"
		}
		return s.within(s.remembersNoAbsence)
	})
	return true
}

// allow changes want to what the held write may have made of it.
func (tr *trap) allow(want, now map[string]string) {
	for operation := range strings.SplitSeq(tr.Write, ", ") {
		_, key, _ := strings.Cut(operation, " ")
		if value, there := now[key]; there {
			want[key] = value
		} else {
			delete(want, key)
		}
	}
}

// withoutLost is a dump without what the other machine left and without what the product may write: the record of the cluster, and the
// fence, of which the Calico Node's form in JSON keeps a trace.
func (s *scene) withoutLost(dump map[string]string) map[string]string {
	s.t.Helper()
	out := maps.Clone(dump)
	delete(out, clusterInformationKey)
	for _, key := range s.lostKeys {
		delete(out, key)
	}
	if key := nodePrefix + s.name(goes); out[key] != "" {
		var node map[string]any
		s.must(json.Unmarshal([]byte(out[key]), &node))
		metadata := node["metadata"].(map[string]any)
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, nodesync.FenceAnnotation)
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
		text, err := json.Marshal(node)
		s.must(err)
		out[key] = string(text)
	}
	return out
}

func fenced(node string) bool {
	var parsed struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal([]byte(node), &parsed) == nil && parsed.Metadata.Annotations[nodesync.FenceAnnotation] != ""
}
