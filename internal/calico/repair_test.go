// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Each of the sixteen disagreements is found in a real etcd exactly once, in both address families, and nothing else with it. Each that a program
// repairs is repaired by one write, which the journal undoes byte for byte, and what only a person can end is refused.
func TestRepairsEndADisagreementAndCanBeUndone(t *testing.T) {
	t.Parallel()
	w := newIPAMWorld(t)
	if found := w.check(t); len(found) > 0 {
		t.Fatalf("nothing is planted, and found are %+v", found)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		plants := w.etcdPlants(t, family)
		for _, m := range ipamcheck.Meanings() {
			if plants[m.Kind] == nil {
				t.Fatalf("kind %s is not planted", m.Kind)
			}
			plants[m.Kind]()
			planted := w.etcd.Dump(t)
			found := w.check(t)
			if len(found) != 1 || found[0].Kind != m.Kind {
				t.Fatalf("%s in %s: found %+v", m.Kind, family, found)
			}
			repair, err := w.store.PlanRepair(t.Context(), found[0])
			if m.Repair == "" {
				if err == nil {
					t.Errorf("%s is for a person, and would be repaired by %+v", m.Kind, repair)
				}
				w.reset(t)
				continue
			}
			if err != nil {
				t.Fatalf("%s in %s: %v", m.Kind, family, err)
			}
			if err := w.store.ApplyRepair(t.Context(), repair); err != nil {
				t.Fatalf("%s in %s: %v", m.Kind, family, err)
			}
			w.expectRepaired(t, m.Kind, planted, repair.Change)
			w.reset(t)
		}
	}
	if found := w.check(t); len(found) > 0 {
		t.Errorf("nothing is planted any more, and found are %+v", found)
	}
}

// expectRepaired fails unless the disagreement is over by a change of one key, which is undone once.
func (w *ipamWorld) expectRepaired(t *testing.T, kind ipamcheck.Kind, planted map[string]string, c Change) {
	t.Helper()
	after := w.etcd.Dump(t)
	left := w.check(t)
	// The block was one of n1, which has no affinity to it: that is the next repair.
	if kind == ipamcheck.AffinityMismatch {
		if len(left) != 1 || left[0].Kind != ipamcheck.AffinityMissing {
			t.Errorf("%s: found %+v after the repair", kind, left)
		}
	} else if len(left) > 0 {
		t.Errorf("%s: found %+v after the repair", kind, left)
	}
	planted[c.Key], after[c.Key] = "", ""
	if diff := cmp.Diff(planted, after); diff != "" {
		t.Errorf("%s: more than %s was written:\n%s", kind, c.Key, diff)
	}
	revision := w.etcd.Revision(t)
	if err := w.store.Revert(t.Context(), c, true); err != nil || w.etcd.Revision(t) != revision {
		t.Errorf("%s: undoing it as a dry run: %v, and the revision went from %d to %d", kind, err, revision, w.etcd.Revision(t))
	}
	if err := w.store.Revert(t.Context(), c, false); err != nil {
		t.Errorf("%s: undoing it: %v", kind, err)
	}
	if found := w.check(t); len(found) != 1 || found[0].Kind != kind {
		t.Errorf("%s: found %+v after it was undone", kind, found)
	}
	if err := w.store.Revert(t.Context(), c, false); !errors.Is(err, ErrUnchanged) {
		t.Errorf("%s: undoing it twice: %v", kind, err)
	}
	w.put(t, c.Key, `{"somebody":"else"}`)
	if err := w.store.Revert(t.Context(), c, false); !errors.Is(err, ErrNotRestored) {
		t.Errorf("%s: undoing it after another write: %v", kind, err)
	}
}

// A repair is not written when anything that it depends on was written since it was prepared, and not prepared when
// it is over.
func TestRepairsHoldOnlyInTheStateTheyWereDecidedIn(t *testing.T) {
	t.Parallel()
	w := newIPAMWorld(t)
	plants := w.etcdPlants(t, "ipv4")
	block, _ := w.blockKeyOf(t, "n1", "ipv4")
	for _, m := range ipamcheck.Meanings() {
		if m.Repair == "" {
			continue
		}
		plants[m.Kind]()
		x := w.check(t)[0]
		repair := must.Get(w.store.PlanRepair(t.Context(), x)).Or(t)
		for key, seen := range repair.seen {
			now := w.etcd.Dump(t)[key]
			if seen == 0 {
				now = w.base[block]
			}
			w.put(t, key, now) // the same again is another revision
			revision := w.etcd.Revision(t)
			if err := w.store.ApplyRepair(t.Context(), repair); !errors.Is(err, ErrConflict) {
				t.Errorf("%s after a write of %s: %v", m.Kind, key, err)
			}
			if w.etcd.Revision(t) != revision {
				t.Errorf("%s after a write of %s was written all the same", m.Kind, key)
			}
			break // with the next key there would be two
		}
		w.reset(t)
		if _, err := w.store.PlanRepair(t.Context(), x); !errors.Is(err, ErrConflict) {
			t.Errorf("%s is over, and prepared again: %v", m.Kind, err)
		}
	}
}

// While the datastore is locked, nothing is repaired; and only keys of IPAM are undone.
func TestRepairsRespectTheLockAndOtherKeys(t *testing.T) {
	t.Parallel()
	w := newIPAMWorld(t)
	w.etcdPlants(t, "ipv4")[ipamcheck.HandleMissing]()
	repair := must.Get(w.store.PlanRepair(t.Context(), w.check(t)[0])).Or(t)
	w.put(t, clusterInformationKey, strings.Replace(w.base[clusterInformationKey], `"datastoreReady":true`, `"datastoreReady":false`, 1))
	if err := w.store.ApplyRepair(t.Context(), repair); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("a locked datastore: %v", err)
	}
	for _, key := range []string{nodeKey("n1"), clusterInformationKey, ipamConfigKey, ""} {
		if err := w.store.Revert(t.Context(), Change{Key: key, Before: "x", After: w.base[key]}, false); !errors.Is(err, ErrNotRestored) {
			t.Errorf("undoing a change of %q: %v", key, err)
		}
	}
	// An affinity of a machine without a Calico Node is its clean-up's.
	w.reset(t)
	w.etcdPlants(t, "ipv4")[ipamcheck.AffinityDeleting]()
	x := w.check(t)[0]
	w.remove(t, nodeKey("n1"))
	if _, err := w.store.PlanRepair(t.Context(), x); !errors.Is(err, ErrConflict) || !strings.Contains(fmt.Sprint(err), "no such Calico Node") {
		t.Errorf("of a machine that is gone: %v", err)
	}
}
