// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Handle is an IPAM handle under which no block had an address when the datastore was swept.
type Handle struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
}

// OrphanedHandle is a Handle and since when it has been one at that revision.
type OrphanedHandle struct {
	Handle
	Since time.Time
}

// handlesPerStep is how many handles one transaction removes.
const handlesPerStep = 100

// handleSteps bounds the steps about handles of one round, so that a datastore full of them does not keep machines waiting: the rest goes after
// the next sweep.
const handleSteps = 20

// ofHandles is whose the steps about orphaned handles are: of no machine. No host can have the name.
func ofHandles() Subject { return Subject{Host: "IPAM handles"} }

// rememberHandles returns the orphaned handles with since when they are. Without a sweep this time, what the last one found still holds.
func rememberHandles(w World) []OrphanedHandle {
	if !w.Calico.Swept {
		return w.Memory.Handles
	}
	since := make(map[Handle]time.Time, len(w.Memory.Handles))
	for _, h := range w.Memory.Handles {
		since[h.Handle] = h.Since
	}
	handles := make([]OrphanedHandle, 0, len(w.Calico.Handles))
	for _, h := range w.Calico.Handles {
		orphan := OrphanedHandle{Handle: h, Since: w.Now}
		if earlier, known := since[h]; known && earlier.Before(w.Now) {
			orphan.Since = earlier
		}
		handles = append(handles, orphan)
	}
	slices.SortFunc(handles, func(a, b OrphanedHandle) int { return cmp.Compare(a.ID, b.ID) })
	return handles
}

// judgeHandles removes orphaned handles if that is asked for, else says how many there are. An assignment in progress looks the same, so one
// is removed only when two sweeps, a grace period apart, found it unchanged, and right after the second.
func (j *judgement) judgeHandles(w World, c Config) {
	handles := j.Memory.Handles
	if len(handles) == 0 {
		return
	}
	if !slices.Contains(c.AlsoRemove, KindIPAMHandle) {
		j.refuse(ofHandles(), GateOrphanedHandle, fmt.Sprintf(
			"%s without an address, such as %s: they do no harm; --also-remove=%s removes them",
			prose.Plural(len(handles), "IPAM handle"), handles[0].ID, KindIPAMHandle))
		return
	}
	due, young := make([]Handle, 0, len(handles)), 0
	for _, h := range handles {
		if !w.Calico.Swept || w.Now.Sub(h.Since) < max(c.Grace, time.Second) {
			young++
			continue
		}
		due = append(due, h.Handle)
	}
	if young > 0 {
		j.refuse(ofHandles(), GateOrphanedHandle, fmt.Sprintf(
			"%s without an address, such as %s: they are removed if another sweep finds them unchanged after the grace period",
			prose.Plural(young, "IPAM handle"), handles[0].ID))
	}
	if most := handleSteps * handlesPerStep; len(due) > most {
		j.refuse(ofHandles(), GateOrphanedHandle, fmt.Sprintf(
			"%s without an address beyond the %d that are removed at a time: they are removed after another sweep",
			prose.Plural(len(due)-most, "IPAM handle"), most))
		due = due[:most]
	}
	for chunk := range slices.Chunk(due, handlesPerStep) {
		j.handles = append(j.handles, RemoveHandles{Handles: chunk})
	}
}
