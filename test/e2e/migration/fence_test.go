// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// calico-node-sync dies right after it has fenced a machine, and never comes back: kube-controllers cleans up a machine that is dead, and one that
// joins again starts and is labeled as ever.
func TestAFenceThatIsLeftDisturbsNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := workers("f", 5)
	s.join(m...)

	dead := s.dieFencing(m[0])
	want := less(s.dump(), dead)
	theirs := s.theirs(withNode)
	testkit.Eventually(t, "kube-controllers to remove the dead machine", func() string {
		if _, there := s.read()[m[0].nodeKey()]; there {
			return "its Calico Node is there"
		}
		return ""
	})
	s.labeled()
	if diff := cmp.Diff(s.withoutLabels(want), s.withoutLabels(s.dump())); diff != "" {
		t.Errorf("beside a fence kube-controllers has changed more than it should:\n%s", diff)
	}
	theirs.Stop()

	again := s.dieFencing(m[1])
	want = s.withoutLabels(s.dump())
	s.live[m[1].node] = again
	s.register(m[1])
	s.boot(m[1])
	if fenceOf(t, s.read()[m[1].nodeKey()]) == "" {
		t.Error("the fence did not outlive a start of calico-node: the page says that it does")
	}
	s.theirs(withNode)
	s.labeled()
	if diff := cmp.Diff(want, s.withoutLabels(s.dump())); diff != "" {
		t.Errorf("a machine that joined again has changed by more than labels:\n%s", diff)
	}
	s.ours()
	testkit.Eventually(t, "the fence to be withdrawn", func() string { return fenceOf(t, s.read()[m[1].nodeKey()]) })
	s.settle()
	if diff := cmp.Diff(want, s.withoutLabels(s.dump())); diff != "" {
		t.Errorf("more than the fence has gone:\n%s", diff)
	}
}

// dieFencing destroys a machine and kills calico-node-sync with signal 9 as soon as it has fenced it. It returns the machine as it was.
func (s *site) dieFencing(m machine) *up {
	s.t.Helper()
	ours := s.ours()
	s.says(ours, `"msg":"Starting"`)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	writes := s.etcd.Client.Watch(ctx, m.nodeKey())
	gone := s.destroy(m)
	for response := range writes {
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypePut && fenceOf(s.t, string(event.Kv.Value)) != "" {
				ours.Kill()
				if fenceOf(s.t, s.read()[m.nodeKey()]) == "" {
					s.t.Fatalf("calico-node-sync has cleaned up %s to the end before it could be killed", m.node)
				}
				return gone
			}
		}
	}
	s.t.Fatalf("the watch on %s ended", m.nodeKey())
	return nil
}

// fenceOf is the fence on a stored Calico Node, "" for none.
func fenceOf(t *testing.T, stored string) string {
	t.Helper()
	return annotationsOf(t, stored)[nodesync.FenceAnnotation]
}

func annotationsOf(t *testing.T, stored string) map[string]string {
	t.Helper()
	if stored == "" {
		return nil
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(stored), &object); err != nil {
		t.Fatalf("%v in %s", err, stored)
	}
	return object.Metadata.Annotations
}

// withoutLabels is content without what kube-controllers adds to all machines, without fences, and with Calico Nodes as values rather than as text,
// since every program writes them its own way.
func (s *site) withoutLabels(content map[string]string) map[string]string {
	s.t.Helper()
	out := maps.Clone(content)
	for key, value := range content {
		if strings.HasSuffix(key, "-auto-hep") {
			delete(out, key)
		}
		if !strings.HasPrefix(key, resourcesPrefix+"nodes/") {
			continue
		}
		var node map[string]any
		s.must(json.Unmarshal([]byte(value), &node))
		metadata := node["metadata"].(map[string]any)
		delete(metadata, "labels")
		delete(metadata, "annotations")
		text, err := json.Marshal(node)
		s.must(err)
		out[key] = string(text)
	}
	return out
}
