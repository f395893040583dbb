// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What shows that a machine runs is read as Calico's own programs write it: what its Felix reports, the time of its
// addresses, the revision of its newest endpoint, and the time of its CalicoNodeStatus.
func TestReadsSignsOfLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := machine(t, w.calico, "n1", 1, 2)
	machine(t, w.calico, "n2", 2, 0)
	at := time.Now().Truncate(time.Second)
	must.Do(t, agent.ReportStatus(t.Context(), at))
	w.put(t, resourcePrefixes()["CalicoNodeStatus"]+"s", fmt.Sprintf(
		`{"kind":"CalicoNodeStatus","metadata":{"name":"s"},"spec":{"node":"n1"},"status":{"lastUpdated":%q}}`, at.UTC().Format(time.RFC3339)))
	got := w.read(t, "n1")
	snapshot := must.Get(w.store.Snapshot(t.Context())).Or(t)
	reports, err := w.store.Reports(t.Context(), snapshot.Revision, []string{"n2", "n1"})
	if err != nil || len(reports) != 1 || reports[0].Host != "n1" || !reports[0].At.Equal(at) || reports[0].Revision < got.node.Revision {
		t.Errorf("got reports %+v, %v; want that of n1 at %s", reports, err, at)
	}
	i := slices.IndexFunc(got.host.Resources, func(r Resource) bool { return r.Kind == "CalicoNodeStatus" })
	if i < 0 || !got.host.Resources[i].StatusAt.Equal(at) {
		t.Errorf("got %+v, want a CalicoNodeStatus of %s", got.host.Resources, at)
	}
	dated := 0
	for _, b := range got.host.Blocks {
		for _, a := range b.Allocations {
			if age := time.Since(a.AssignedAt); age >= 0 && age < time.Minute {
				dated++
			}
		}
	}
	if dated != 2 {
		t.Errorf("%d addresses have the time of their assignment, want those of the two pods", dated)
	}
}

// FuzzTimes reads times that machines write: whatever they are, they are a time or none.
func FuzzTimes(f *testing.F) {
	f.Add("2026-01-01 00:00:00.123456789 +0000 UTC", []byte(`{"timestamp":"2026-01-01T00:00:00Z","uptime":1.5}`))
	f.Add("2026-01-01 00:00:00 UTC", []byte(`{`))
	f.Fuzz(func(t *testing.T, timestamp string, report []byte) {
		if at := assignedAt(map[string]string{model.IPAMBlockAttributeTimestamp: timestamp}); !at.IsZero() && !assignedAt(map[string]string{model.IPAMBlockAttributeTimestamp: at.UTC().String()}).Equal(at) {
			t.Errorf("%q is read as %s, which is read otherwise", timestamp, at)
		}
		if at := reportedAt(report); !at.IsZero() && !json.Valid(report) {
			t.Errorf("%q is read as %s", report, at)
		}
	})
}
