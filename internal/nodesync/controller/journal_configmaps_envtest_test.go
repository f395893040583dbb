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
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
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

// A process that dies between two parts leaves an entry that nobody relies on: it is listed as incomplete, cannot be read, does not keep another
// attempt from being recorded, and is dropped in time.
func TestCrashBetweenParts(t *testing.T) {
	t.Parallel()
	for crash := 1; crash <= 3; crash++ {
		journal, client := newJournal(t, 300)
		entry := sampleEntry("n1", 20)
		entry.Time = time.Now()
		client.before = func(n int) error {
			if n == crash {
				return errLost
			}
			return nil
		}
		if err := journal.Record(t.Context(), entry); !errors.Is(err, errLost) || !errors.Is(err, errJournal) {
			t.Fatalf("crash before part %d: got %v, want the error of that write", crash, err)
		}
		if left := len(configMaps(t, journal)); left != crash-1 {
			t.Fatalf("crash before part %d: %d parts are there", crash, left)
		}
		for _, kept := range mustList(t, journal) {
			_, err := journal.Read(t.Context(), kept)
			if kept.Complete() || err == nil || !strings.Contains(err.Error(), "is incomplete") {
				t.Errorf("an entry without all its parts: complete %v, read with %v", kept.Complete(), err)
			}
		}
		// The next round has another time, and so another name.
		entry.Time = entry.Time.Add(15 * time.Second)
		mustRecord(t, journal, entry)
		if pruned, err := journal.Prune(t.Context(), entry.Time.Add(untouched-time.Minute)); err != nil || pruned != 0 {
			t.Errorf("pruned %d entries (%v) while one may still be written", pruned, err)
		}
		pruned, err := journal.Prune(t.Context(), entry.Time.Add(untouched+time.Minute))
		if want := min(crash-1, 1); err != nil || pruned != want {
			t.Errorf("crash before part %d: pruned %d entries (%v), want %d", crash, pruned, err, want)
		}
		kept := mustList(t, journal)
		if len(kept) != 1 || !kept[0].Complete() {
			t.Fatalf("left: %+v, want the complete entry", kept)
		}
		if got, err := journal.Read(t.Context(), kept[0]); err != nil || len(got.Objects) != len(entry.Objects) {
			t.Errorf("reading it: %v", err)
		}
	}
}

// An answer that gets lost after the write is not a reason to write anything twice.
func TestRecordAgain(t *testing.T) {
	t.Parallel()
	for lost := 1; lost <= 3; lost++ {
		journal, client := newJournal(t, 300)
		entry := sampleEntry("n1", 20)
		entry.Time = time.Now()
		client.after = func(n int) error {
			if n == lost {
				return errLost
			}
			return nil
		}
		if err := journal.Record(t.Context(), entry); !errors.Is(err, errLost) {
			t.Fatalf("got %v", err)
		}
		client.after = nil
		for range 3 {
			mustRecord(t, journal, entry)
		}
		later := entry
		later.Time, later.Because = entry.Time.Add(sameEntryLife/2), "still gone"
		mustRecord(t, journal, later) // another process, which knows nothing of the first
		kept := mustList(t, journal)
		if len(kept) != 1 || !kept[0].Complete() || len(configMaps(t, journal)) != kept[0].Parts {
			t.Errorf("answer to part %d lost: got %+v, want one entry", lost, kept)
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

// counting counts what it is to keep, and prunes.
type counting struct{ recorded int }

func (c *counting) Record(context.Context, Entry) error { c.recorded++; return nil }

// pruning is a counting that drops entries after a time.
type pruning struct{ *counting }

func (pruning) Prune(context.Context, time.Time) (int, error) { return 0, nil }

// The next attempt at the same records nothing again, unless the journal may have dropped it in the meantime.
func TestAnotherAttemptKeepsNothingNew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prunes bool
		want   int
	}{"a folder": {false, 2}, "a journal that drops entries": {true, 5}} {
		count := &counting{}
		r := &Reconciler{Journal: count}
		if c.prunes {
			r.Journal = pruning{count}
		}
		changed := sampleEntry("n1", 3)
		for _, entry := range []Entry{
			future(sampleEntry("n1", 2), 0), future(sampleEntry("n1", 2), time.Minute), future(sampleEntry("n1", 2), sameEntryLife),
			future(sampleEntry("n1", 2), 100*time.Hour), future(changed, 101*time.Hour), future(changed, 101*time.Hour+time.Minute),
			future(changed, 110*time.Hour),
		} {
			must.Do(t, r.keep(t.Context(), entry))
		}
		if count.recorded != c.want {
			t.Errorf("%s: %d entries were recorded, want %d", name, count.recorded, c.want)
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
	journal.Retention, journal.MaxEntries = 30*24*time.Hour, 3
	api := cluster.Shared(t).Client.CoreV1().ConfigMaps(journal.Namespace)
	for _, foreign := range []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "calico-config"}},
		{ObjectMeta: metav1.ObjectMeta{Name: JournalPrefix + "mine"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "labeled", Labels: map[string]string{JournalLabel: journalVersion}}},
	} {
		must.Get(api.Create(t.Context(), &foreign, metav1.CreateOptions{})).Or(t)
	}
	const day = 24 * time.Hour
	for i, after := range []time.Duration{0, day, 2 * day, 3 * day, 3*day + time.Hour} {
		mustRecord(t, journal, future(sampleEntry(fmt.Sprintf("n%d", i), 5+i), after))
	}
	hosts := func() string {
		out := ""
		for _, kept := range mustList(t, journal) {
			out += " " + kept.Host
		}
		return out
	}
	now := future(Entry{}, 3*day+time.Hour).Time
	prune := func(at time.Time, want int, left string) {
		t.Helper()
		before := client.deletes
		pruned, err := journal.Prune(t.Context(), at)
		if err != nil || pruned != want || hosts() != left {
			t.Errorf("after %s: pruned %d (%v), want %d; left%s, want%s", at.Sub(now), pruned, err, want, hosts(), left)
		}
		if want == 0 && client.deletes != before {
			t.Errorf("%d deletions were tried though nothing is due", client.deletes-before)
		}
	}
	prune(now, 2, " n2 n3 n4")
	prune(now, 0, " n2 n3 n4")
	prune(now.Add(28*day), 0, " n2 n3 n4")
	prune(now.Add(30*day-30*time.Minute), 2, " n4")
	journal.MaxEntries = 0
	prune(now.Add(30*day), 0, " n4")
	journal.Retention = 0
	prune(now.Add(3000*day), 0, " n4")
	journal.MaxEntries, journal.Retention = 1, time.Minute
	mustRecord(t, journal, future(sampleEntry("n5", 1), 3*day+2*time.Hour))
	prune(now.Add(untouched-time.Minute), 0, " n4 n5")
	if creates := client.creates; creates == 0 {
		t.Error("nothing was written, so this proves nothing")
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

// A whole clean-up with its journal in ConfigMaps: while the journal is refused nothing is touched; then the machine goes, and every byte of it comes
// back. The folder's journal, kept alongside, holds the same.
func TestCleanUpWithAJournalInConfigMaps(t *testing.T) {
	s := newStage(t, 3)
	want := s.ofHost(s.etcd.Dump(t), "0")
	journal, client := newJournal(t, 600)
	client.before = func(int) error { return errLost }
	r := s.reconciler()
	r.Journal = journal
	s.leave("0")
	before := s.etcd.Revision(t)
	s.passTime(r, 8)
	if got := s.etcd.Revision(t); got != before {
		t.Fatalf("the store moved from revision %d to %d though the journal is refused", before, got)
	}
	if got := value(t, r.Metrics.journalErrors); got == 0 {
		t.Error("the metric does not tell that the journal is refused")
	}
	client.before = nil
	folder := FolderJournal{Dir: t.TempDir()}
	r.Journal = both{journal, folder}
	s.passTime(r, 8)
	if left := s.ofHost(s.etcd.Dump(t), "0"); len(left) > 0 {
		t.Fatalf("left after the clean-up: %v", left)
	}
	kept := mustList(t, journal)
	if len(kept) != 1 || kept[0].Host != s.name("0") || kept[0].Parts < 2 {
		t.Fatalf("the journal holds %+v, want one entry in several parts", kept)
	}
	entry := must.Get(journal.Read(t.Context(), kept[0])).Or(t)
	if diff := cmp.Diff(onlyEntry(t, folder), entry, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("the folder's entry differs (-folder +configmaps):\n%s", diff)
	}
	if entry.ClusterUID == "" || len(entry.Steps) != writesOfOneMachine || !strings.Contains(entry.Because, "NotFound") {
		t.Errorf("the entry lacks something: %+v", entry)
	}
	for _, object := range entry.Objects {
		if err := s.store.Restore(t.Context(), object); calico.IsIPAM(object.Key) != errors.Is(err, calico.ErrNotRestored) {
			t.Errorf("restoring %s: %v", object.Key, err)
		}
	}
	if diff := cmp.Diff(want, s.ofHost(s.etcd.Dump(t), "0")); diff != "" {
		t.Errorf("not as before (-want +got):\n%s", diff)
	}
}

// both keeps everything twice.
type both []Journal

func (b both) Record(ctx context.Context, entry Entry) error {
	for _, journal := range b {
		if err := journal.Record(ctx, entry); err != nil {
			return err
		}
	}
	return nil
}
