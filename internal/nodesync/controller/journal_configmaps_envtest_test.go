// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// flaky is a client some of whose writes fail, before or after they were made.
type flaky struct {
	client.Client
	creates, deletes int
	// before and after see each write by its number, from 1.
	before, after func(n int) error
}

func (f *flaky) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	f.creates++
	if f.before != nil {
		if err := f.before(f.creates); err != nil {
			return err
		}
	}
	if err := f.Client.Create(ctx, object, options...); err != nil {
		return err
	}
	if f.after != nil {
		return f.after(f.creates)
	}
	return nil
}

func (f *flaky) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	f.deletes++
	return f.Client.Delete(ctx, object, options...)
}

var errLost = errors.New("connection reset by peer")

// newNamespace makes a namespace.
func newNamespace(t *testing.T, api kubernetes.Interface) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "own-"}}
	made := must.Get(api.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})).Or(t)
	return made.Name
}

// newJournal returns a journal in a namespace of its own, with small parts, and the client through which it writes.
func newJournal(t *testing.T, part int) (*ConfigMapJournal, *flaky) {
	t.Helper()
	api := cluster.Shared(t)
	journal := must.Get(NewConfigMapJournal(api.Config, newNamespace(t, api.Client))).Or(t)
	client := &flaky{Client: journal.Client}
	journal.Client, journal.part = client, part
	return journal, client
}

// configMaps are the ConfigMaps of a journal's namespace.
func configMaps(t *testing.T, journal *ConfigMapJournal) []corev1.ConfigMap {
	t.Helper()
	list := must.Get(cluster.Shared(t).Client.CoreV1().ConfigMaps(journal.Namespace).List(t.Context(), metav1.ListOptions{})).Or(t)
	return list.Items
}

func mustRecord(t *testing.T, journal *ConfigMapJournal, entry Entry) {
	t.Helper()
	must.Do(t, journal.Record(t.Context(), entry))
}

func mustList(t *testing.T, journal *ConfigMapJournal) []KeptEntry {
	t.Helper()
	kept := must.Get(journal.List(t.Context())).Or(t)
	return kept
}

// What is recorded is read again as it was: a small machine, one of 450 pods, and an object that no compression makes smaller. Each ConfigMap stays
// below what the API server takes.
func TestJournalInConfigMaps(t *testing.T) {
	t.Parallel()
	journal, _ := newJournal(t, 0)
	chance := rand.New(rand.NewPCG(1, 2))
	noise := make([]rune, 800_000)
	for i := range noise {
		noise[i] = rune(' ' + chance.IntN(0x700))
	}
	giant := sampleEntry("giant", 0)
	giant.Objects = append(giant.Objects, calico.Object{Key: "/calico/x", Revision: 3, Value: strings.ToValidUTF8(string(noise), "")})
	for host, c := range map[string]struct {
		entry Entry
		parts int
	}{
		"small": {sampleEntry("small", 30), 1},
		"big":   {sampleEntry("big", 450), 1},
		"giant": {giant, 2},
	} {
		mustRecord(t, journal, c.entry)
		var found []KeptEntry
		for _, kept := range mustList(t, journal) {
			if kept.Host == host {
				found = append(found, kept)
			}
		}
		if len(found) != 1 || !found[0].Complete() || found[0].Parts < c.parts || found[0].Objects != len(c.entry.Objects) || found[0].Because != c.entry.Because {
			t.Fatalf("%s: listed as %+v", host, found)
		}
		got := must.Get(journal.Read(t.Context(), found[0])).Or(t)
		if diff := cmp.Diff(c.entry, got); diff != "" {
			t.Errorf("%s: not as it was recorded (-want +got):\n%s", host, diff)
		}
	}
	for _, cm := range configMaps(t, journal) {
		if size := len(cm.BinaryData[JournalKey]); size > partSize {
			t.Errorf("%s holds %d bytes, more than %d", cm.Name, size, partSize)
		} else {
			t.Logf("%s: %d bytes", cm.Name, size)
		}
	}
}

// A process that dies before a part leaves an entry that nobody relies on: it is listed as incomplete, cannot be read, does not keep another attempt
// from being recorded, and is dropped in time. A response that is lost after a part was written is no reason to write anything twice.
func TestFaultsBetweenParts(t *testing.T) {
	t.Parallel()
	for part := 1; part <= 3; part++ {
		for _, written := range []bool{false, true} {
			journal, client := newJournal(t, 300)
			entry := sampleEntry("n1", 20)
			entry.Time = time.Now()
			fault := func(n int) error {
				if n == part {
					return errLost
				}
				return nil
			}
			if client.before = fault; written {
				client.before, client.after = nil, fault
			}
			if err := journal.Record(t.Context(), entry); !errors.Is(err, errLost) || !errors.Is(err, errJournal) {
				t.Fatalf("part %d: got %v, want the error of that write", part, err)
			}
			left := len(configMaps(t, journal))
			for _, kept := range mustList(t, journal) {
				_, err := journal.Read(t.Context(), kept)
				if kept.Complete() != (err == nil) || !written && (err == nil || !strings.Contains(err.Error(), "is incomplete")) {
					t.Errorf("an entry without all its parts: complete %v, read with %v", kept.Complete(), err)
				}
			}
			if client.after = nil; written {
				for range 3 {
					mustRecord(t, journal, entry)
				}
			}
			later := entry // another process, which knows nothing of the first, or the next round
			later.Time, later.Because = entry.Time.Add(sameEntryLife/2), "still gone"
			mustRecord(t, journal, later)
			kept, want := mustList(t, journal), 1
			if !written && part > 1 {
				want = 2 // the incomplete one
			}
			if len(kept) != want || written && len(configMaps(t, journal)) != kept[0].Parts || !written && left != part-1 {
				t.Errorf("fault at part %d (written: %t), of which %d were left: got %+v", part, written, left, kept)
			}
			if pruned, err := journal.Prune(t.Context(), entry.Time.Add(untouched-time.Minute)); err != nil || pruned != 0 {
				t.Errorf("pruned %d entries (%v) while one may still be written", pruned, err)
			}
			if pruned, err := journal.Prune(t.Context(), entry.Time.Add(untouched+time.Minute)); err != nil || pruned != want-1 {
				t.Errorf("fault at part %d: pruned %d entries (%v), want %d", part, pruned, err, want-1)
			}
			if kept = mustList(t, journal); len(kept) != 1 || !kept[0].Complete() {
				t.Fatalf("left: %+v, want the complete entry", kept)
			}
			if got, err := journal.Read(t.Context(), kept[0]); err != nil || len(got.Objects) != len(entry.Objects) {
				t.Errorf("reading it: %v", err)
			}
		}
	}
}

// future dates an entry so much after a day that is yet to come: of the entry's own time and the API server's, the later one counts.
func future(entry Entry, after time.Duration) Entry {
	entry.Time = time.Date(2126, 1, 31, 18, 0, 0, 0, time.UTC).Add(after)
	return entry
}

// An entry that changed is kept alongside the other; one that is old is replaced by the same, so that a machine which fails for days has one
// entry and one that is never pruned under its hands.
func TestRecordAnother(t *testing.T) {
	t.Parallel()
	journal, client := newJournal(t, 0)
	entry := sampleEntry("n1", 2)
	less, other := entry, sampleEntry("n2", 2)
	less.Objects = entry.Objects[:1]
	mustRecord(t, journal, future(entry, 0))
	mustRecord(t, journal, future(less, time.Minute))
	mustRecord(t, journal, future(other, time.Minute))
	mustRecord(t, journal, future(entry, sameEntryLife-time.Minute))
	if kept := mustList(t, journal); len(kept) != 3 || client.creates != 3 {
		t.Errorf("got %+v after %d writes, want three entries", kept, client.creates)
	}
	for day := range 10 {
		mustRecord(t, journal, future(entry, time.Duration(day+1)*24*time.Hour))
	}
	kept := mustList(t, journal)
	if len(kept) != 3 || kept[2].Host != "n1" || !kept[2].Time.Equal(future(entry, 240*time.Hour).Time) || kept[2].Objects != len(entry.Objects) {
		t.Errorf("got %+v, want the last of the copies alongside the other two", kept)
	}
	if _, err := journal.Read(t.Context(), kept[2]); err != nil {
		t.Error(err)
	}
}

// The next attempt at the same records nothing again, unless the journal may have dropped it in the meantime.
func TestAnotherAttemptKeepsNothingNew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prunes bool
		want   int
	}{"a folder": {false, 2}, "a journal that drops entries": {true, 5}} {
		w := &world{}
		r := &Reconciler{Journal: w}
		if c.prunes {
			r.Journal = pruning{Journal: w}
		}
		changed := sampleEntry("n1", 3)
		for _, entry := range []Entry{
			future(sampleEntry("n1", 2), 0), future(sampleEntry("n1", 2), time.Minute), future(sampleEntry("n1", 2), sameEntryLife),
			future(sampleEntry("n1", 2), 100*time.Hour), future(changed, 101*time.Hour), future(changed, 101*time.Hour+time.Minute),
			future(changed, 110*time.Hour),
		} {
			must.Do(t, r.keep(t.Context(), entry))
		}
		if len(w.entries) != c.want {
			t.Errorf("%s: %d entries were recorded, want %d", name, len(w.entries), c.want)
		}
	}
}

// A ConfigMap of somebody else under an entry's name is an error, not taken for the entry.
func TestRecordOverAnothersConfigMap(t *testing.T) {
	t.Parallel()
	journal, client := newJournal(t, 0)
	entry := sampleEntry("n1", 2)
	parts := must.Get(journal.encode(entry)).Or(t)
	parts[0].BinaryData[JournalKey] = []byte("something else")
	parts[0].Labels, parts[0].Annotations = nil, nil
	must.Do(t, client.Create(t.Context(), &parts[0]))
	if err := journal.Record(t.Context(), entry); !errors.Is(err, errJournal) || !strings.Contains(err.Error(), "already exists with other content") {
		t.Errorf("got %v, want a refusal", err)
	}
	if kept := mustList(t, journal); len(kept) > 0 {
		t.Errorf("listed: %+v", kept)
	}
}

// A content that is not what was written is not believed, even if it is an entry.
func TestReadRefusesAChangedEntry(t *testing.T) {
	t.Parallel()
	journal, client := newJournal(t, 0)
	parts, err := journal.encode(sampleEntry("n1", 2))
	if err != nil {
		t.Fatal(err)
	}
	text, err := encodeEntry(sampleEntry("n2", 2), "")
	if err != nil {
		t.Fatal(err)
	}
	if parts[0].BinaryData[JournalKey], err = (&ConfigMapJournal{}).compress(text); err != nil {
		t.Fatal(err)
	}
	must.Do(t, client.Create(t.Context(), &parts[0]))
	kept := mustList(t, journal)
	if len(kept) != 1 {
		t.Fatalf("listed: %+v", kept)
	}
	if _, err := journal.Read(t.Context(), kept[0]); err == nil || !strings.Contains(err.Error(), "not as it was written") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// What is old goes, and what is too much, the oldest first; nothing of the last two hours, and nothing that is not ours.
func TestRetention(t *testing.T) {
	t.Parallel()
	journal, client := newJournal(t, 600)
	api := cluster.Shared(t).Client.CoreV1().ConfigMaps(journal.Namespace)
	for _, foreign := range []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "calico-config"}},
		{ObjectMeta: metav1.ObjectMeta{Name: JournalPrefix + "mine"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "labeled", Labels: map[string]string{JournalLabel: journalVersion}}},
	} {
		must.Get(api.Create(t.Context(), &foreign, metav1.CreateOptions{})).Or(t)
	}
	const day = 24 * time.Hour
	record := func(host string, after time.Duration) { mustRecord(t, journal, future(sampleEntry(host, 5), after)) }
	for i, after := range []time.Duration{0, day, 2 * day, 3 * day, 3*day + time.Hour} {
		record(fmt.Sprintf("n%d", i), after)
	}
	for _, test := range []struct {
		after, retention time.Duration
		most, want       int
		left             string
	}{
		{time.Hour, 30 * day, 3, 2, " n2 n3 n4"}, {time.Hour, 30 * day, 3, 0, " n2 n3 n4"}, {28*day + time.Hour, 30 * day, 3, 0, " n2 n3 n4"},
		{30*day + 30*time.Minute, 30 * day, 3, 2, " n4"}, {30*day + time.Hour, 30 * day, 0, 0, " n4"}, {3000 * day, 0, 0, 0, " n4"},
		{time.Hour + untouched - time.Minute, time.Minute, 1, 0, " n4 n5"}, // younger than two hours
	} {
		if test.most == 1 {
			record("n5", 3*day+2*time.Hour)
		}
		journal.Retention, journal.MaxEntries = test.retention, test.most
		before, left := client.deletes, ""
		pruned, err := journal.Prune(t.Context(), future(Entry{}, 3*day+test.after).Time)
		for _, kept := range mustList(t, journal) {
			left += " " + kept.Host
		}
		if err != nil || pruned != test.want || left != test.left || test.want == 0 && client.deletes != before {
			t.Errorf("%+v: pruned %d (%v) with %d deletions, left%s", test, pruned, err, client.deletes-before, left)
		}
	}
	for _, name := range []string{"calico-config", JournalPrefix + "mine", "labeled"} {
		if _, err := api.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("somebody else's %s: %v", name, err)
		}
	}
}

// A ConfigMap that was made again under the name of one that is pruned stays.
func TestPruningKnowsWhatItSaw(t *testing.T) {
	t.Parallel()
	journal, _ := newJournal(t, 0)
	entry := sampleEntry("n1", 2)
	mustRecord(t, journal, entry)
	kept := mustList(t, journal)
	api := cluster.Shared(t).Client.CoreV1().ConfigMaps(journal.Namespace)
	name := configMaps(t, journal)[0].Name
	must.Do(t, api.Delete(t.Context(), name, metav1.DeleteOptions{}))
	mustRecord(t, journal, entry)
	if err := journal.drop(t.Context(), kept[0]); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if left := configMaps(t, journal); len(left) != 1 || left[0].Name != name {
		t.Errorf("left: %d ConfigMaps", len(left))
	}
}

// While the journal is refused nothing is removed, and the metric tells.
func TestARefusedJournal(t *testing.T) {
	t.Parallel()
	w := listing("gone")
	w.held.Affinities = []nodesync.Affinity{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Revision: 1}}
	refused := fmt.Errorf("%w: %w", errJournal, errLost)
	w.before = func(_ context.Context, call, _ string) error {
		if call == "Record" {
			return refused
		}
		return nil
	}
	r := w.reconciler()
	r.Journal, r.Config.MinOverlapPercent, r.Config.Grace = w, 0, 0
	for range 2 {
		must.Get(r.pass(t.Context())).Or(t)
		if errs := testutil.ToFloat64(r.Metrics.journalErrors); errs != 1 || w.count("DeleteAffinity") > 0 {
			t.Errorf("%v errors of the journal, and %d removals", errs, w.count("DeleteAffinity"))
		}
	}
	refused = nil
	r.memory = nodesync.Memory{} // its machine waits no longer
	must.Get(r.pass(t.Context())).Or(t)
	if w.count("DeleteAffinity") != 1 || len(w.entries) != 1 || w.entries[0].Host != "gone" {
		t.Errorf("%d removals, journaled %+v", w.count("DeleteAffinity"), w.entries)
	}
}
