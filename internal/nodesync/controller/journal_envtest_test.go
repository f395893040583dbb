// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// journalled cleans up machine "0" of a stage with a journal and returns its entry.
func (s *stage) journalled() Entry {
	s.t.Helper()
	dir := s.t.TempDir()
	r := s.reconciler()
	r.Journal = FolderJournal{Dir: dir}
	s.leave("0")
	s.passTime(r, 8)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		s.t.Fatalf("files of the journal: got %v (%v), want one", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		s.t.Errorf("mode of the entry: got %v (%v), want 0600", info.Mode(), err)
	}
	entry, err := ReadEntry(files[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return entry
}

// ofHost are the keys of a dump that name a machine, IPAM's left out.
func (s *stage) ofHost(dump map[string]string, machine string) map[string]string {
	out := map[string]string{}
	for key, value := range dump {
		escaped := strings.ReplaceAll(s.name(machine), "-", "--")
		if !calico.IsIPAM(key) && (strings.Contains(key, s.name(machine)) || strings.Contains(key, escaped)) {
			out[key] = value
		}
	}
	return out
}

func TestWhatIsRemovedCanBePutBack(t *testing.T) {
	s := newStage(t, 3)
	want := s.ofHost(s.etcd.Dump(t), "0")
	entry := s.journalled()
	if left := s.ofHost(s.etcd.Dump(t), "0"); len(left) > 0 {
		t.Fatalf("left after the clean-up: %v", left)
	}
	if entry.Host != s.name("0") || entry.ClusterUID == "" || len(entry.Steps) != writesOfOneMachine || !strings.Contains(entry.Because, "NotFound") {
		t.Errorf("the entry lacks something: %+v", entry)
	}
	for _, object := range entry.Objects {
		err := s.store.Restore(t.Context(), object)
		if calico.IsIPAM(object.Key) != errors.Is(err, calico.ErrNotRestored) {
			t.Errorf("restoring %s: %v", object.Key, err)
		}
	}
	if diff := cmp.Diff(want, s.ofHost(s.etcd.Dump(t), "0")); diff != "" {
		t.Errorf("not as before (-want +got):\n%s", diff)
	}
	before := s.etcd.Revision(t)
	for _, object := range entry.Objects {
		if err := s.store.Restore(t.Context(), object); !calico.IsIPAM(object.Key) && !errors.Is(err, calico.ErrUnchanged) {
			t.Errorf("restoring %s again: got %v, want that it is there as it was", object.Key, err)
		}
	}
	if after := s.etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
}

// An endpoint whose address is another pod's by now would take it from that pod.
func TestAnEndpointIsNotPutBackOverAnothersAddress(t *testing.T) {
	s := newStage(t, 3)
	entry := s.journalled()
	address := ""
	for _, object := range entry.Objects {
		if _, after, ok := strings.Cut(object.Value, `"ipNetworks":["`); ok {
			address, _, _ = strings.Cut(after, "/")
		}
	}
	handle := "k8s-pod-network.of-another-pod"
	err := s.calico.Client().IPAM().AssignIP(t.Context(), ipam.AssignIPArgs{
		IP: cnet.MustParseIP(address), HandleID: &handle, Hostname: s.name("1"), Attrs: map[string]string{"node": s.name("1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, object := range entry.Objects {
		err := s.store.Restore(t.Context(), object)
		if err != nil && strings.Contains(err.Error(), address) {
			refused++
			if !errors.Is(err, calico.ErrNotRestored) || !strings.Contains(err.Error(), handle) {
				t.Errorf("restoring %s: got %v, want a refusal that names the handle", object.Key, err)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d endpoints were refused for address %s, want one", refused, address)
	}
}

// A Node whose tunnel address is a pod's by now, or whose own address another machine has, would take it from that one.
func TestANodeIsNotPutBackOverAnothersAddress(t *testing.T) {
	s := newStage(t, 3)
	entry := s.journalled()
	node := entry.Objects[0]
	if !strings.Contains(node.Key, "/nodes/") {
		t.Fatalf("the first object is %s, want the Node", node.Key)
	}
	_, after, _ := strings.Cut(node.Value, `"ipv4IPIPTunnelAddr":"`)
	tunnel, _, _ := strings.Cut(after, `"`)
	handle := "k8s-pod-network.of-another-pod"
	err := s.calico.Client().IPAM().AssignIP(t.Context(), ipam.AssignIPArgs{
		IP: cnet.MustParseIP(tunnel), HandleID: &handle, Hostname: s.name("1"), Attrs: map[string]string{"node": s.name("1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Restore(t.Context(), node); !errors.Is(err, calico.ErrNotRestored) || !strings.Contains(err.Error(), handle) {
		t.Errorf("tunnel address %s is a pod's: got %v, want a refusal that names the handle", tunnel, err)
	}
	if err := s.calico.Client().IPAM().ReleaseByHandle(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	s.createNode("0")
	// Another machine inherits the address: machine "0" again, by another name.
	if _, err := s.calico.Start(t.Context(), caliconode.Host{
		Name: s.name("heir"), KubernetesNode: s.name("0"), Address: netip.AddrFrom4([4]byte{172, 30, 0, '0'}),
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.store.Restore(t.Context(), node); !errors.Is(err, calico.ErrNotRestored) || !strings.Contains(err.Error(), s.name("heir")) {
		t.Errorf("the address is another machine's: got %v, want a refusal that names it", err)
	}
}

// fullDisk is a journal that cannot be written.
type fullDisk struct{}

func (fullDisk) Record(context.Context, Entry) error { return errors.New("no space left on device") }

func TestNothingIsRemovedThatIsNotJournalled(t *testing.T) {
	s := newStage(t, 3)
	r := s.reconciler()
	r.Journal = fullDisk{}
	s.leave("0")
	want := s.etcd.Revision(t)
	s.passTime(r, 8)
	if got := s.etcd.Revision(t); got != want {
		t.Errorf("the store moved from revision %d to %d", want, got)
	}
}

func TestReadEntryRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no JSON": "x", "no entry": `{"a":1}`, "no object": `{"host":"n1"}`} {
		file := filepath.Join(t.TempDir(), "entry.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEntry(file); err == nil || !strings.Contains(err.Error(), "is not an entry of the journal") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
