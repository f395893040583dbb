// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Entry is what the journal holds of one machine: what stands in the datastore of it before anything is removed, and why it goes. Its JSON
// form MUST stay readable: an entry is most needed when a later version is running.
type Entry struct {
	Time           time.Time `json:"time"`
	ClusterUID     string    `json:"clusterUID"`
	Host           string    `json:"host"`
	KubernetesNode string    `json:"kubernetesNode"`
	Because        string    `json:"because"`
	// Steps are the steps in words.
	Steps []string `json:"steps"`
	// Objects are the stored objects.
	Objects []calico.Object `json:"objects"`
	// Addresses are what the machine held in IPAM, as it stood in the blocks.
	Addresses []calico.HeldAddress `json:"addresses,omitempty"`
	// Leftovers reports that it is about pods that were gone on a machine that lived, of which MachineUID is the UID: of its Calico Node in etcd, of its
	// Kubernetes Node in the kubernetes datastore.
	Leftovers  bool   `json:"leftovers,omitempty"`
	MachineUID string `json:"machineUID,omitempty"`
	// Repairs are the changes of repairs of IPAM's data. Such an entry is of RepairHost, and holds nothing else.
	Repairs []calico.Change `json:"repairs,omitempty"`
}

// Journal keeps entries before anything is removed.
type Journal interface {
	// Record keeps an entry for good before it returns. An error means that nothing of the machine may be removed; the same entry may be recorded
	// again then, and what was kept of it before does no harm. Entries of several machines are recorded at a time.
	Record(ctx context.Context, entry Entry) error
}

// Pruner is a Journal that can drop what is old.
type Pruner interface {
	// Prune drops what the retention does not keep and returns how many entries that were. It may be called while entries are recorded.
	Prune(ctx context.Context, now time.Time) (int, error)
}

// errJournal is what every error of Record is, so that monitoring can tell it from an error of Calico's datastore.
var errJournal = errors.New("writing the journal")

// encodeEntry returns an entry's JSON. It refuses what would not come back as it was.
func encodeEntry(entry Entry, indent string) ([]byte, error) {
	for _, object := range entry.Objects {
		if !utf8.ValidString(object.Key) || !utf8.ValidString(object.Value) {
			return nil, fmt.Errorf("%w: object %q of %s is not valid UTF-8 and could not be kept as it is", errJournal, object.Key, entry.Host)
		}
	}
	data, err := json.Marshal(entry)
	if indent != "" {
		data, err = json.MarshalIndent(entry, "", indent)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: encoding the entry of %s: %w", errJournal, entry.Host, err)
	}
	if len(data) > maxEntry {
		return nil, fmt.Errorf("%w: the entry of %s has %d bytes, more than the %d that can be read again", errJournal, entry.Host, len(data), maxEntry)
	}
	return data, nil
}

// maxEntry bounds an entry's JSON, written or read, so that neither a huge machine nor a broken entry takes all memory. A machine of 450 pods needs
// about 1 MiB.
const maxEntry = 128 << 20

// parseEntry reads an entry's JSON. What names nothing that was removed is not an entry.
func parseEntry(data []byte) (Entry, error) {
	var entry Entry
	if err := json.Unmarshal(data, &entry); err != nil {
		return Entry{}, err
	}
	if len(entry.Objects)+len(entry.Steps) == 0 {
		return Entry{}, errors.New("it names neither an object nor a step")
	}
	return entry, nil
}

// leftoverNote begins the key of a keptNote about leftovers, of which a machine may have several entries. No host can be called so.
const leftoverNote = "pod leftovers "

// keptNote is what was journaled of a machine, and when.
type keptNote struct {
	content string
	at      time.Time
}

// keep records an entry unless this process has kept just that already, for an attempt that failed: there is nothing new to keep then. A
// journal that is pruned is asked again after an hour, since nobody but it knows how long an entry stays.
func (r *Reconciler) keep(ctx context.Context, entry Entry) error {
	content, err := contentHash(entry)
	if err != nil {
		return err
	}
	_, prunes := r.Journal.(Pruner)
	key := entry.Host
	if entry.Leftovers {
		key = leftoverNote + content
	}
	r.keptMu.Lock()
	note := r.kept[key]
	r.keptMu.Unlock()
	if note.content == content && (!prunes || entry.Time.Sub(note.at).Abs() < sameEntryLife) {
		return nil
	}
	if err := r.Journal.Record(ctx, entry); err != nil {
		return err
	}
	r.keptMu.Lock()
	defer r.keptMu.Unlock()
	if r.kept == nil {
		r.kept = map[string]keptNote{}
	}
	r.kept[key] = keptNote{content: content, at: entry.Time}
	return nil
}

// contentHash is the same for two entries that hold the same objects at the same revisions and the same steps, whenever and why ever.
func contentHash(entry Entry) (string, error) {
	hash := sha256.New()
	write := func(text string) { _, _ = fmt.Fprintf(hash, "%d:%s", len(text), text) } // no two sequences of texts are written alike
	for _, object := range entry.Objects {
		write(object.Key)
		write(strconv.FormatInt(object.Revision, 10))
		write(object.Value)
	}
	// The objects are nearly all of it, and need no JSON of their own.
	entry.Time, entry.Because, entry.Objects = time.Time{}, "", nil
	data, err := json.Marshal(entry)
	if err != nil {
		return "", fmt.Errorf("%w: encoding the entry of %s: %w", errJournal, entry.Host, err)
	}
	write(string(data))
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// sameEntryLife is how long an entry stands for another one with the same content: for the next attempt, after a restart, or after an answer that got
// lost. It is shorter than what Prune leaves alone, so that an entry that is relied on is there while the machine is cleaned up.
const sameEntryLife = time.Hour

// entries are what is to be journalled of a plan, by machine.
func entries(s *scene) map[nodesync.Subject]Entry {
	out := make(map[nodesync.Subject]Entry, len(s.plan.Decisions))
	for _, d := range s.plan.Decisions {
		entry := Entry{
			Time: s.Now, ClusterUID: s.Kubernetes.ClusterUID, Host: d.Of.Host, KubernetesNode: d.Of.KubernetesNode, Because: d.Because, Leftovers: d.Of.Leftovers,
		}
		if !entry.Leftovers { // those are read right before they are removed
			entry.Objects, entry.Addresses = s.objects[d.Of.Host], s.addresses[d.Of.Host]
		}
		out[d.Of] = entry
	}
	for _, step := range s.plan.Steps {
		entry := out[step.Subject()]
		entry.Steps = append(entry.Steps, step.String())
		out[step.Subject()] = entry
	}
	return out
}
