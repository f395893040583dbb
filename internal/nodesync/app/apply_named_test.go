// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
)

// A machine that was renamed while nobody watched leaves its old name behind, which is removed when a person names it, without a grace period and without
// anything of others.
func TestApplyByName(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-named", 5)
	s.join("1.example.com") // machine 1, under its full name
	s.leave("1", "2")
	old, renamed, live := s.name("1"), s.name("1.example.com"), s.left("1.example.com")
	refused := "left alone: " + old + ": Kubernetes Node \"" + renamed + "\" may be the same machine as \"" + old + "\" (ambiguous-name)"
	if code, out := s.run("plan"); code != 2 || !strings.Contains(out, refused) {
		t.Errorf("plan: got exit code %d and %s", code, out)
	}
	before := s.etcd.Revision(t)
	for name, message := range map[string]string{
		s.name("3"): "left alone: " + s.name("3") + ": its Kubernetes Node exists (not-confirmed-gone)",
		"nobody":    "error: nothing is held under the name nobody in Calico's datastore: a NODE must be the name of a Calico Node, as `calicoctl get nodes` lists it",
	} {
		if code, out := s.run("apply", "--dry-run", name); !strings.Contains(out, message) || strings.Contains(out, "remove") {
			t.Errorf("apply --dry-run %s: got exit code %d and %s", name, code, out)
		}
	}
	if code, out := s.run("apply", "--dry-run", old); code != 2 || !strings.Contains(out, "remove Calico Node "+old) || strings.Contains(out, s.name("2")) {
		t.Errorf("apply --dry-run: got exit code %d and %s", code, out)
	}
	if code, out := s.run("plan", old); code != 2 || !strings.Contains(out, refused) || strings.Contains(out, s.name("2")) {
		t.Errorf("a plan about it: got exit code %d and %s", code, out)
	}
	if code, out := s.run("apply", "", "--yes"); code != 1 || !strings.Contains(out, "error: a NODE is empty: it must be the name of a Calico Node") {
		t.Errorf("an empty name: got exit code %d and %s", code, out)
	}
	s.expectRevision(before, "nothing was removed")

	code, out := s.run("apply", old, "--yes")
	if code != 0 || strings.Contains(out, "waiting") || strings.Contains(out, s.name("2")) {
		t.Errorf("apply: got exit code %d and %s", code, out)
	}
	inOrder(t, out, "the datastore: no cluster is recorded yet", old+": Kubernetes Node "+old+" is gone: ", "remove Calico Node "+old)
	if now := s.left("1.example.com"); len(now) != len(live) {
		t.Errorf("of the machine under its new name %v are left of %v", now, live)
	}
	for key := range s.etcd.Dump(t) {
		if strings.HasSuffix(key, "/"+old) {
			t.Errorf("%s is left", key)
		}
	}
	if keys := s.left("2"); len(keys) == 0 {
		t.Error("a machine that was not named was removed")
	}
}
