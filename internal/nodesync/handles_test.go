// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOrphanedHandles(t *testing.T) {
	t.Parallel()
	const found = "left alone: IPAM handles: 2 IPAM handles without an address, such as h1: "
	later := start.Add(time.Hour)
	for _, test := range []struct {
		name    string
		remove  bool
		handles []Handle // of the second sweep, an hour later; nil for none
		want    string
	}{
		{"reported", false, []Handle{{"h2", 2}, {"h1", 1}}, found + "they do no harm; --also-remove=IPAMHandle removes them (orphaned-handle)\n"},
		{"still reported without another sweep", false, nil, found + "they do no harm; --also-remove=IPAMHandle removes them (orphaned-handle)\n"},
		{"removed", true, []Handle{{"h2", 2}, {"h1", 1}}, "IPAM handles: no block has an address under them, and none of them changed over a grace period\n" +
			"  1. remove 2 IPAM handles of no address: h1, h2\n"},
		{"not without another sweep", true, nil, found + "they are removed if another sweep finds them unchanged after the grace period (orphaned-handle)\n"},
		{"one was written meanwhile, one is new", true, []Handle{{"h1", 7}, {"h3", 3}}, found + "they are removed if another sweep finds them unchanged after the grace period (orphaned-handle)\n"},
		{"in use by then", true, []Handle{}, "nothing to do\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			if test.remove {
				c.AlsoRemove = []ResourceKind{KindIPAMHandle}
			}
			first := named(c, []string{"a=a"}, []string{"a"}, nil)
			first.Now, first.Memory, first.Calico.Swept, first.Calico.Handles = start, Memory{}, true, []Handle{{"h1", 1}, {"h2", 2}}
			p := MakePlan(first, c)
			if len(p.Steps) > 0 {
				t.Fatalf("at first sight:\n%s", p)
			}
			second := named(c, []string{"a=a"}, []string{"a"}, nil)
			second.Now, second.Memory, second.Calico.Swept, second.Calico.Handles = later, p.Memory, test.handles != nil, test.handles
			if got := MakePlan(second, c).String(); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
			second.Calico.Ready = false
			if p := MakePlan(second, c); len(p.Steps) > 0 {
				t.Errorf("in a locked datastore:\n%s", p)
			}
		})
	}
}

func TestManyHandlesGoInSmallSteps(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.AlsoRemove = []ResourceKind{KindIPAMHandle}
	w := named(c, []string{"a=a"}, []string{"a"}, nil)
	w.Calico.Swept = true
	for i := range 250 {
		w.Calico.Handles = append(w.Calico.Handles, Handle{ID: fmt.Sprintf("h%03d", i), Revision: 1})
	}
	w.Memory = MakePlan(w, c).Memory
	w.Now = w.Now.Add(c.Grace)
	p := MakePlan(w, c)
	if len(p.Steps) != 3 || !strings.HasPrefix(p.Steps[2].String(), "remove 50 IPAM handles of no address: h200") {
		t.Errorf("got\n%s", p)
	}
	// However many there are, one round is over soon.
	w.Calico.Handles = w.Calico.Handles[:0]
	for i := range 100_000 {
		w.Calico.Handles = append(w.Calico.Handles, Handle{ID: fmt.Sprintf("h%06d", i), Revision: 1})
	}
	w.Memory = MakePlan(w, c).Memory
	w.Now = w.Now.Add(c.Grace)
	p = MakePlan(w, c)
	if len(p.Steps) != 20 || !strings.Contains(p.String(), "98000 IPAM handles without an address beyond the 2000 that are removed at a time: they are removed after another sweep") {
		t.Errorf("got %d steps for 100000 handles and refusals %v", len(p.Steps), p.Refusals)
	}
}
