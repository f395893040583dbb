// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
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
	entry := must.Get(ReadEntry(files[0])).Or(s.t)
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

// A Node whose own address another machine has by now would take it from that one.
func TestANodeIsNotPutBackOverAnothersAddress(t *testing.T) {
	s := newStage(t, 3)
	node := s.journalled().Objects[0]
	if !strings.Contains(node.Key, "/nodes/") {
		t.Fatalf("the first object is %s, want the Node", node.Key)
	}
	s.createNode("0")
	// Another machine inherits the address: machine "0" again, by another name.
	must.Get(s.calico.Start(t.Context(), caliconode.Host{
		Name: s.name("heir"), KubernetesNode: s.name("0"), Address: netip.AddrFrom4([4]byte{172, 30, 0, '0'}),
	})).Or(t)
	if err := s.store.Restore(t.Context(), node); !errors.Is(err, calico.ErrNotRestored) || !strings.Contains(err.Error(), s.name("heir")) {
		t.Errorf("the address is another machine's: got %v, want a refusal that names it", err)
	}
}

func TestReadEntryRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no JSON": "x", "no entry": `{"a":1}`, "no object": `{"host":"n1"}`} {
		file := filepath.Join(t.TempDir(), "entry.json")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := ReadEntry(file); err == nil || !strings.Contains(err.Error(), "is not an entry of the journal") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
