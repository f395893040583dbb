// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// sampleEntry is an entry of a machine with so many endpoints of about two kilobytes.
func sampleEntry(host string, endpoints int) Entry {
	entry := Entry{
		Time: time.Date(2026, 1, 31, 18, 0, 0, 123456789, time.UTC), ClusterUID: "cluster", Host: host, KubernetesNode: host,
		Because: "Kubernetes Node " + host + " is NotFound", Steps: []string{"fence Calico Node " + host, "remove Calico Node " + host},
		Objects: []calico.Object{{Key: "/calico/resources/v3/projectcalico.org/nodes/" + host, Revision: 7, Value: `{"kind":"Node"}`}},
	}
	for i := range endpoints {
		entry.Objects = append(entry.Objects, calico.Object{
			Key:      fmt.Sprintf("/calico/resources/v3/projectcalico.org/workloadendpoints/default/%s-k8s-pod--%d-eth0", host, i),
			Revision: int64(100 + i), Value: fmt.Sprintf(`{"kind":"WorkloadEndpoint","spec":{"pod":"pod-%d","padding":%q}}`, i, strings.Repeat("label ", 300)),
		})
	}
	return entry
}

// Names are made of whatever a host is called, and the API server takes them.
func TestNamesOfEntries(t *testing.T) {
	t.Parallel()
	journal := &ConfigMapJournal{Namespace: "ns"}
	for name, host := range map[string]string{
		"plain": "worker-7", "qualified": "ip-10-0-0-1.eu-west-1.compute.internal", "an address": "10.0.0.1", "upper case": "Worker.Example.COM",
		"dots and dashes": "a.-b-..c", "longest": strings.Repeat("abcdefghi.", 25) + "abc", "one long label": strings.Repeat("a", 253),
		"no host": "IPAM handles", "nothing": "", "no ASCII": "häuschen-日本", "only foreign": "___", "cut at a dot": strings.Repeat("a", longestHost-1) + ".b",
	} {
		parts, err := journal.encode(sampleEntry(host, 1))
		if err != nil || len(parts) != 1 {
			t.Fatalf("%s: %d parts, %v", name, len(parts), err)
		}
		part := parts[0]
		if problems := validation.IsDNS1123Subdomain(part.Name); len(problems) > 0 {
			t.Errorf("%s: %q is not a name: %v", name, part.Name, problems)
		}
		if !strings.HasPrefix(part.Name, "calico-node-sync-journal-20260131t180000123z-") || !strings.HasSuffix(part.Name, "-001") {
			t.Errorf("%s: the name is %q", name, part.Name)
		}
		for key, value := range part.Labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("%s: label %s=%q: %v", name, key, value, problems)
			}
		}
		if part.Annotations[journalHostAnnotation] != host {
			t.Errorf("%s: the annotation says %q", name, part.Annotations[journalHostAnnotation])
		}
	}
	for host, want := range map[string]string{"worker-7": "worker-7", "Worker.Example.COM": "worker.example.com", "10.0.0.1": "10.0.0.1", "a.-b": "a.b"} {
		if name := entryName(Entry{Host: host}, []byte{1, 2, 3, 4}); !strings.Contains(name, "-"+want+"-01020304") {
			t.Errorf("the entry of %s is called %s, in which it cannot be recognized", host, name)
		}
	}
	for host, want := range map[string]string{"worker-7": "worker-7", "Worker.Example.COM": "Worker.Example.COM"} {
		if got := HostLabel(host); got != want {
			t.Errorf("label of %s: got %s, want it to be selected by its name", host, got)
		}
	}
	if HostLabel(strings.Repeat("a", 252)+"b") == HostLabel(strings.Repeat("a", 252)+"c") {
		t.Error("two long names have one label")
	}
}

// Entries sort by time, also within a second, whatever the hosts are called.
func TestEntriesSortByTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 23, 59, 59, 999e6, time.FixedZone("east", 3600))
	var names []string
	for _, d := range []time.Duration{-time.Hour, -time.Millisecond, 0, time.Millisecond, time.Second, time.Hour, 300 * 24 * time.Hour} {
		for _, host := range []string{"zebra", "ant"} {
			names = append(names, entryName(Entry{Host: host, Time: at.Add(d)}, nil))
		}
	}
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	for i, name := range sorted {
		if name[:20] != names[i][:20] {
			t.Errorf("sorted: %q, want the order of time %q", sorted, names)
			break
		}
	}
}

// What the ConfigMaps are marked with is a contract with entries that exist already, and with people.
func TestMarksOfTheJournal(t *testing.T) {
	t.Parallel()
	parts, err := (&ConfigMapJournal{Namespace: "ns", part: 600}).encode(sampleEntry("n1", 20))
	if err != nil || len(parts) < 2 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	part := parts[1]
	digest, entry := part.Annotations["nodes.mooring.dev/journal-sha256"], part.Annotations["nodes.mooring.dev/journal-entry"]
	if len(digest) != 64 || part.Name != "calico-node-sync-journal-"+entry+"-002" || part.Immutable == nil || !*part.Immutable ||
		len(part.BinaryData["entry.json.gz"]) == 0 || len(part.Data) > 0 {
		t.Errorf("a part is not as earlier versions wrote it: %+v", part.ObjectMeta)
	}
	want := map[string]string{
		"nodes.mooring.dev/host": "n1", "nodes.mooring.dev/kubernetes-node": "n1", "nodes.mooring.dev/because": "Kubernetes Node n1 is NotFound",
		"nodes.mooring.dev/time": "2026-01-31T18:00:00.123456789Z", "nodes.mooring.dev/objects": "21", "nodes.mooring.dev/steps": "2",
		"nodes.mooring.dev/journal-part": fmt.Sprintf("2/%d", len(parts)), "nodes.mooring.dev/journal-entry": entry, "nodes.mooring.dev/journal-sha256": digest,
	}
	if diff := cmp.Diff(want, part.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	want = map[string]string{
		"nodes.mooring.dev/journal": "v1", "nodes.mooring.dev/journal-host": "n1",
		"nodes.mooring.dev/journal-content": part.Labels["nodes.mooring.dev/journal-content"],
	}
	if diff := cmp.Diff(want, part.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	leftovers := sampleEntry("n1", 1)
	leftovers.Leftovers = true
	if parts, err = (&ConfigMapJournal{Namespace: "ns"}).encode(leftovers); err != nil || parts[0].Labels["nodes.mooring.dev/journal-leftovers"] != "true" {
		t.Errorf("an entry of leftovers is not labeled as one (%v)", err)
	}
}

// What two entries hold tells them apart, and not when and why they were written.
func TestContentOfEntries(t *testing.T) {
	t.Parallel()
	content := func(change func(*Entry)) string {
		entry := sampleEntry("n1", 2)
		change(&entry)
		hash := must.Get(contentHash(entry)).Or(t)
		return hash
	}
	same := content(func(*Entry) {})
	if got := content(func(e *Entry) { e.Time, e.Because = e.Time.Add(time.Hour), "later" }); got != same {
		t.Error("a later entry of the same is taken for another")
	}
	for name, change := range map[string]func(*Entry){
		"another host":     func(e *Entry) { e.Host = "n2" },
		"another cluster":  func(e *Entry) { e.ClusterUID = "other" },
		"a revision":       func(e *Entry) { e.Objects[1].Revision++ },
		"an object less":   func(e *Entry) { e.Objects = e.Objects[1:] },
		"another step":     func(e *Entry) { e.Steps[0] = "x" },
		"a byte of a pod":  func(e *Entry) { e.Objects[1].Value += " " },
		"another k8s node": func(e *Entry) { e.KubernetesNode = "n3" },
	} {
		if content(change) == same {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// What would not come back as it was, or could never be read, is refused, and the machine stays.
func TestEntriesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	broken := sampleEntry("n1", 1)
	broken.Objects[1].Value = "{\"pod\":\"\xff\"}"
	for name, journal := range map[string]Journal{"folder": FolderJournal{Dir: t.TempDir()}, "configmaps": &ConfigMapJournal{Namespace: "ns"}} {
		if err := journal.Record(t.Context(), broken); !errors.Is(err, errJournal) || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: a value that JSON cannot hold: got %v", name, err)
		}
	}
	many := &ConfigMapJournal{Namespace: "ns", part: 1}
	if err := many.Record(t.Context(), sampleEntry("n1", 50)); !errors.Is(err, errJournal) || !strings.Contains(err.Error(), "more than 999") {
		t.Errorf("more parts than can be counted: got %v", err)
	}
}

// A folder gives back what it was given, to nobody else; what is no entry is refused.
func TestJournalInAFolder(t *testing.T) {
	t.Parallel()
	dir, want := t.TempDir(), sampleEntry("n1", 2)
	must.Do(t, FolderJournal{Dir: dir}.Record(t.Context(), want))
	files := must.Get(filepath.Glob(filepath.Join(dir, "*"))).Or(t)
	if info := must.Get(os.Stat(files[0])).Or(t); len(files) != 1 || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, the first with mode %v; want one with mode 0600", files, info.Mode())
	}
	if diff := cmp.Diff(want, must.Get(ReadEntry(files[0])).Or(t)); diff != "" {
		t.Errorf("not as it was recorded (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{"no JSON": "x", "no entry": `{"a":1}`, "no object": `{"host":"n1"}`} {
		file := filepath.Join(t.TempDir(), "entry.json")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := ReadEntry(file); err == nil || !strings.Contains(err.Error(), "is not an entry of the journal") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("a", 20), strings.Repeat("é", 20), strings.Repeat("日本", 9), "aaaaaaaaaaaaaaa日"} {
		got := clip(text, 16)
		if len(got) > 16 || !utf8.ValidString(got) || len(text) <= 16 && got != text || len(text) > 16 && !strings.HasSuffix(got, "…") {
			t.Errorf("clip(%q) = %q", text, got)
		}
	}
}

// ConfigMaps that carry our label and say nothing that makes sense are not entries.
func TestForeignPartsAreNoEntries(t *testing.T) {
	t.Parallel()
	good := must.Get((&ConfigMapJournal{Namespace: "ns", part: 600}).encode(sampleEntry("n1", 20))).Or(t)
	items := make([]metav1.PartialObjectMetadata, 0, 2*len(good))
	for _, part := range good {
		items = append(items, metav1.PartialObjectMetadata{ObjectMeta: part.ObjectMeta})
	}
	kept := groupParts(items)
	if len(kept) != 1 || !kept[0].Complete() || kept[0].Parts != len(good) {
		t.Fatalf("got %+v, want one complete entry", kept)
	}
	for name, change := range map[string]func(*metav1.ObjectMeta){
		"no annotations":           func(m *metav1.ObjectMeta) { m.Annotations = nil },
		"another name":             func(m *metav1.ObjectMeta) { m.Name = "mine" },
		"part 0":                   func(m *metav1.ObjectMeta) { m.Annotations[journalPartAnnotation] = "0/3" },
		"a part beyond the last":   func(m *metav1.ObjectMeta) { m.Annotations[journalPartAnnotation] = "9999/3" },
		"nonsense for a part":      func(m *metav1.ObjectMeta) { m.Annotations[journalPartAnnotation] = "one" },
		"another number of parts":  func(m *metav1.ObjectMeta) { m.Annotations[journalPartAnnotation] = "1/99" },
		"too many parts":           func(m *metav1.ObjectMeta) { m.Annotations[journalPartAnnotation] = "1/99999999" },
		"parts of another content": func(m *metav1.ObjectMeta) { m.Annotations[journalDigestAnnotation] = "0" },
	} {
		changed := slices.Clone(items)
		meta := good[0].DeepCopy().ObjectMeta
		change(&meta)
		changed[0] = metav1.PartialObjectMetadata{ObjectMeta: meta}
		for _, kept := range groupParts(changed) {
			if kept.Complete() {
				t.Errorf("%s: the entry still counts as complete: %+v", name, kept)
			}
		}
	}
}

// FuzzEntry: whatever somebody put into a ConfigMap or a file, reading it neither panics nor takes all memory, and what it accepts can be written and
// read again.
func FuzzEntry(f *testing.F) {
	good := must.Get(encodeEntry(sampleEntry("n1", 2), "")).Or(f)
	for _, seed := range [][]byte{good, []byte("{}"), []byte(`{"steps":["x"]}`), []byte(`{"objects":[{"key":"k"}],"time":"2026-01-31T18:00:00Z"}`), []byte("null"), {}} {
		f.Add(seed)
		packed := must.Get((&ConfigMapJournal{}).compress(seed)).Or(f)
		f.Add(packed)
		f.Add(append(packed, packed...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if unpacked, err := decompress(data, 1<<20); err == nil {
			_, _ = parseEntry(unpacked)
		}
		entry, err := parseEntry(data)
		if err != nil {
			return
		}
		text, err := encodeEntry(entry, "")
		if err != nil {
			return // a year that JSON cannot hold
		}
		packed := must.Get((&ConfigMapJournal{}).compress(text)).Or(t)
		again, err := decodeEntry(packed)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		second, err := encodeEntry(again, "")
		if err != nil || !bytes.Equal(text, second) {
			t.Errorf("written again it is another (%v):\n%s\n%s", err, text, second)
		}
	})
}

// A small ConfigMap may not become gigabytes.
func TestDecompressIsBounded(t *testing.T) {
	t.Parallel()
	packed := must.Get((&ConfigMapJournal{}).compress(make([]byte, 1<<20))).Or(t)
	if _, err := decompress(packed, 1<<20-1); err == nil {
		t.Error("more than the limit was unpacked")
	}
	if data, err := decompress(packed, 1<<20); err != nil || len(data) != 1<<20 {
		t.Errorf("just the limit: %d bytes, %v", len(data), err)
	}
}
