// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	clusterInformationKey = "/calico/resources/v3/projectcalico.org/clusterinformations/default"
	ipamPrefix            = "/calico/ipam/v2/"
	// goes and lost are the machines that are gone: the one with all that it left, the other without its Calico Node, which somebody removed.
	goes, lost = "goes", "lost"
	goesByte   = 100
	// goesPods are more than one transaction takes of endpoints, and more than one block holds of addresses.
	goesPods = 105
)

// scene is a site in which two of five machines are gone, and which can be set back to that moment. Nothing has been cleaned yet, and no
// cluster is recorded.
type scene struct {
	*site
	// alive is the datastore without the machines that are gone, dirty with what they left, and clean after an undisturbed clean-up.
	alive, dirty, clean map[string]string
	// lostKeys are what the machine lost left.
	lostKeys []string
	// removed are the keys that the clean-up deletes, without addresses.
	removed map[string]string
	through *interposer
	// watched reports that the machine with everything goes while the product looks, and that there is no other. One of those that stay has
	// another name in Calico than in Kubernetes, so that what is left without a Calico Node might be anybody's and is left alone.
	watched bool
	// counted are the machines that the mass guard counts afterwards: whose going nobody has watched.
	counted []string
	// writes are how many of each kind an undisturbed clean-up makes.
	writes map[string]int
}

func newScene(t *testing.T, api *controlplane.Cluster, name string) *scene {
	t.Helper()
	return newSceneOf(t, &scene{site: newSite(t, api, name)})
}

// newWatchedScene makes the other scene: see watched.
func newWatchedScene(t *testing.T, api *controlplane.Cluster, name string) *scene {
	t.Helper()
	s := &scene{site: newSite(t, api, name), watched: true}
	s.addNode("node-name")
	host := s.host("calico-name", 9)
	host.KubernetesNode = s.name("node-name")
	_, err := s.calico.Start(t.Context(), host)
	s.must(err)
	return newSceneOf(t, s)
}

func newSceneOf(t *testing.T, s *scene) *scene {
	t.Helper()
	for i := range 3 {
		machine := fmt.Sprintf("stays-%d", i)
		s.addNode(machine)
		s.install(machine, byte(i+1), 3)
	}
	s.alive = s.etcd.Dump(t)
	s.litter()
	s.dirty = s.etcd.Dump(t)
	s.through = s.interpose()
	s.cleanUndisturbed()
	return s
}

// litter is what the machines that are gone leave: Node, endpoints in two transactions, addresses in two blocks of their own of each IP
// version and in one of a neighbor, tunnel addresses, affinities with a block, without one and half claimed, an automatic host endpoint,
// a configuration, an orphaned handle, and what a user wrote.
func (s *scene) litter() {
	s.t.Helper()
	ctx := s.t.Context()
	agent := s.install(goes, goesByte, goesPods)
	neighbor, err := s.calico.Start(ctx, s.host("stays-0", 1))
	s.must(err)
	_, err = agent.BorrowAddress(ctx, s.pod(goes, goesPods), neighbor)
	s.must(err)
	_, err = agent.LeaveStaleEndpoint(ctx, s.pod(goes, goesPods+1))
	s.must(err)
	_, err = agent.LeaveOrphanedHandle(ctx)
	s.must(err)
	_, err = agent.LeaveAffinityWithoutBlock(ctx)
	s.must(err)
	_, err = agent.LeavePendingAffinity(ctx)
	s.must(err)
	automatic := apiv3.NewHostEndpoint()
	automatic.Name, automatic.Spec.Node, automatic.Spec.InterfaceName = s.name(goes)+"-auto-hep", s.name(goes), "*"
	automatic.Labels = map[string]string{"projectcalico.org/created-by": "calico-kube-controllers"}
	_, err = s.calico.Client().HostEndpoints().Create(ctx, automatic, options.SetOptions{})
	s.must(err)
	peer := apiv3.NewBGPPeer()
	peer.Name, peer.Spec.Node, peer.Spec.PeerIP, peer.Spec.ASNumber = s.name("users-peer"), s.name(goes), "172.30.0.250", 64512
	_, err = s.calico.Client().BGPPeers().Create(ctx, peer, options.SetOptions{})
	s.must(err)
	s.counted = []string{s.name(goes)}
	if s.watched {
		return
	}
	s.counted = append(s.counted, s.name(lost))
	before := s.etcd.Dump(s.t)
	s.install(lost, goesByte+1, 2)
	_, err = s.etcd.Client.Delete(ctx, nodePrefix+s.name(lost))
	s.must(err)
	for key := range s.etcd.Dump(s.t) {
		if _, there := before[key]; !there {
			s.lostKeys = append(s.lostKeys, key)
		}
	}
}

// cleanUndisturbed lets the product do its work once, and judges the result independently of the product.
func (s *scene) cleanUndisturbed() {
	s.t.Helper()
	process := s.start(s.through)
	testkit.Eventually(s.t, "an undisturbed clean-up", func() string {
		now := s.etcd.Dump(s.t)
		if now[nodePrefix+s.name(goes)] != "" {
			return "the Calico Node is there; the log:\n" + tail(process)
		}
		for key := range now {
			if strings.HasPrefix(key, ipamPrefix+"host/"+s.name(lost)+"/") {
				return key + " is there; the log:\n" + tail(process)
			}
		}
		return s.within(s.remembersNoAbsence)
	})
	process.Stop()
	s.writes = s.through.Writes()
	memory, err := s.remembered(s.t.Context())
	s.must(err)
	if counted := removals(memory); !slices.Equal(counted, s.counted) {
		s.t.Fatalf("the mass guard counts %q after an undisturbed clean-up, want %q", counted, s.counted)
	}
	s.clean = s.etcd.Dump(s.t)
	s.removed = maps.Clone(s.dirty)
	maps.DeleteFunc(s.removed, func(key, _ string) bool {
		_, stays := s.clean[key]
		return stays || strings.HasPrefix(key, ipamPrefix+"assignment/") || strings.HasPrefix(key, ipamPrefix+"handle/")
	})
	s.judge()
}

// judge fails unless what is left is what was there without the machines, and what must stay of them.
func (s *scene) judge() {
	s.t.Helper()
	left := maps.Clone(s.clean)
	delete(left, clusterInformationKey) // the cluster is recorded there
	want := maps.Clone(s.alive)
	delete(want, clusterInformationKey)
	for key, value := range s.dirty {
		users := strings.HasSuffix(key, "/"+s.name("users-peer"))
		if _, before := want[key]; !before && (users || s.orphaned(key)) {
			want[key] = value
		}
	}
	for key, value := range want {
		// The address that was borrowed is free again, which leaves its traces in the block, as Calico's own release does.
		if strings.HasPrefix(key, ipamPrefix+"assignment/") && left[key] != value && !strings.Contains(left[key], s.name(goes)) {
			want[key] = left[key]
		}
	}
	if diff := cmp.Diff(want, left); diff != "" {
		s.t.Fatalf("an undisturbed clean-up leaves something else than it should (-want +got):\n%s", diff)
	}
}

// orphaned reports that a key is that of a handle which leads to no address: it is reported, not removed.
func (s *scene) orphaned(key string) bool {
	handle, ok := strings.CutPrefix(key, ipamPrefix+"handle/")
	if !ok {
		return false
	}
	for other, value := range s.dirty {
		if strings.HasPrefix(other, ipamPrefix+"assignment/") && strings.Contains(value, handle) {
			return false
		}
	}
	return true
}

// remembered is the product's state in Kubernetes.
func (s *site) remembered(ctx context.Context) (nodesync.Memory, error) {
	var memory nodesync.Memory
	text, err := s.saved(ctx)
	if err != nil {
		return memory, err
	}
	if err := json.Unmarshal([]byte(text), &memory); err != nil {
		return memory, fmt.Errorf("the state is %q: %w", text, err)
	}
	return memory, nil
}

func removals(memory nodesync.Memory) []string {
	names := make([]string, 0, len(memory.Removals))
	for _, removal := range memory.Removals {
		names = append(names, removal.CalicoNode)
	}
	return slices.Sorted(slices.Values(names))
}

// remembersNoAbsence is nil when the product's state in Kubernetes says that nobody is absent any more.
func (s *site) remembersNoAbsence(ctx context.Context) error {
	memory, err := s.remembered(ctx)
	if err == nil && len(memory.Absences) > 0 {
		err = fmt.Errorf("it remembers absences: %v", memory.Absences)
	}
	return err
}

// unfinished says what keeps the site from being as after an undisturbed clean-up, "" if nothing does.
func (s *scene) unfinished() string {
	if diff := cmp.Diff(s.clean, s.etcd.Dump(s.t)); diff != "" {
		return diff
	}
	if left := s.within(s.remembersNoAbsence); left != "" {
		return left
	}
	if s.watched {
		return "" // it counts if it was not watched long enough
	}
	memory, err := s.remembered(s.t.Context())
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(s.counted, removals(memory)) // the mass guard must not forget in a crash what it has let pass
}

// journal is the stored objects that the journal's entries hold, by key: each value that one has had.
func (s *site) journal() map[string][]string {
	s.t.Helper()
	list, err := s.api.Client.CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "nodes.mooring.dev/journal"})
	s.must(err)
	packed := map[string][]byte{} // of each entry; its parts come sorted by name
	for _, part := range list.Items {
		name := part.Annotations["nodes.mooring.dev/journal-entry"]
		packed[name] = append(packed[name], part.BinaryData["entry.json.gz"]...)
	}
	objects := map[string][]string{}
	for _, entry := range packed {
		var content struct {
			Objects []struct{ Key, Value string } `json:"objects"`
		}
		reader, err := gzip.NewReader(bytes.NewReader(entry))
		s.must(err)
		s.must(json.NewDecoder(reader).Decode(&content))
		for _, object := range content.Objects {
			objects[object.Key] = append(objects[object.Key], object.Value)
		}
	}
	return objects
}

// expectJournal fails unless all that the clean-up deletes, addresses apart, stands in the journal as it was.
func (s *scene) expectJournal(when fmt.Stringer) {
	s.t.Helper()
	kept := s.journal()
	for key, value := range s.removed {
		if !slices.Contains(kept[key], value) {
			s.t.Errorf("%s: %s is gone, and the journal does not hold it as it was: it holds %q", when, key, kept[key])
		}
	}
}

// kinds are the kinds of writes, sorted.
func (s *scene) kinds() []string { return slices.Sorted(maps.Keys(s.writes)) }
