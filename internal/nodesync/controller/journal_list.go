// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many ConfigMaps one answer of the API server holds.
const pageSize = 500

// KeptEntry is what the ConfigMaps' annotations say of an entry; the entry itself is read by Read.
type KeptEntry struct {
	// Name is the entry's, without JournalPrefix and without the number of a part.
	Name string
	Host string
	// KubernetesNode is the Node whose absence was the reason.
	KubernetesNode string
	Because        string
	// Time is when the entry was written: what it says itself or when the API server first saw it, whichever is later, so that neither's wrong clock
	// makes it look old.
	Time time.Time
	// Leftovers says that it is about pods that were gone on a machine that lived.
	Leftovers bool
	// Objects and Steps are how many it holds.
	Objects, Steps int
	// Parts is of how many ConfigMaps it consists.
	Parts int
	// Content is the same for entries that hold the same.
	Content string

	digest string
	found  map[int]keptPart // by number, from 1
}

// keptPart is one ConfigMap.
type keptPart struct {
	name string
	uid  types.UID
}

// Complete reports that all parts are there. An entry that is not was never relied on: Record had not returned.
func (k KeptEntry) Complete() bool { return len(k.found) == k.Parts }

// Found is how many of its parts are there.
func (k KeptEntry) Found() int { return len(k.found) }

// Holds reports whether one of the entry's ConfigMaps has the name.
func (k KeptEntry) Holds(configMap string) bool {
	for _, part := range k.found {
		if part.name == configMap {
			return true
		}
	}
	return false
}

// List returns all entries, the incomplete ones as well, oldest first. It reads no more than the ConfigMaps' metadata.
func (j *ConfigMapJournal) List(ctx context.Context) ([]KeptEntry, error) {
	kept, err := j.list(ctx, client.MatchingLabels{JournalLabel: journalVersion})
	if err != nil {
		return nil, fmt.Errorf("listing the journal's ConfigMaps in namespace %s: %w", j.Namespace, err)
	}
	return kept, nil
}

func (j *ConfigMapJournal) list(ctx context.Context, selector client.MatchingLabels) ([]KeptEntry, error) {
	var items []metav1.PartialObjectMetadata
	err := eachPage(ctx, j.Client, "ConfigMapList", pageSize, func(page *metav1.PartialObjectMetadataList) {
		items = append(items, page.Items...)
	}, client.InNamespace(j.Namespace), selector)
	if err != nil {
		return nil, err
	}
	return groupParts(items), nil
}

// groupParts makes entries of ConfigMaps. Parts belong together that say so in all their annotations. What is marked as ours and does not say which
// part of what it is, somebody else has made or changed: it is not a part of anything.
func groupParts(items []metav1.PartialObjectMetadata) []KeptEntry {
	byKey := map[string]*KeptEntry{}
	var order []*KeptEntry
	for i := range items {
		part, number, ok := readPart(&items[i])
		if !ok {
			continue
		}
		key := fmt.Sprintf("%s %s %d", part.Name, part.digest, part.Parts)
		entry := byKey[key]
		if entry == nil {
			entry = &part
			byKey[key] = entry
			order = append(order, entry)
		}
		if part.Time.After(entry.Time) {
			entry.Time = part.Time
		}
		entry.found[number] = keptPart{name: items[i].Name, uid: items[i].UID}
	}
	out := make([]KeptEntry, 0, len(order))
	for _, entry := range order {
		out = append(out, *entry)
	}
	slices.SortStableFunc(out, func(a, b KeptEntry) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Name, b.Name)) })
	return out
}

// readPart returns what one ConfigMap says of its entry, and which part it is.
func readPart(item *metav1.PartialObjectMetadata) (KeptEntry, int, bool) {
	a := item.Annotations
	first, last, _ := strings.Cut(a[journalPartAnnotation], "/")
	number, err := strconv.Atoi(first)
	parts, totalErr := strconv.Atoi(last)
	name := a[journalEntryAnnotation]
	if err != nil || totalErr != nil || number < 1 || number > parts || parts > maxParts || name == "" ||
		item.Name != fmt.Sprintf("%s%s-%03d", JournalPrefix, name, number) {
		return KeptEntry{}, 0, false
	}
	entry := KeptEntry{
		Name: name, Host: a[journalHostAnnotation], KubernetesNode: a[journalNodeAnnotation], Because: a[journalBecauseAnnotation],
		Time: item.CreationTimestamp.Time, Parts: parts, Content: item.Labels[journalContentLabel], Leftovers: item.Labels[JournalLeftoversLabel] == "true",
		digest: a[journalDigestAnnotation], found: map[int]keptPart{},
	}
	if at, err := time.Parse(time.RFC3339Nano, a[journalTimeAnnotation]); err == nil && at.After(entry.Time) {
		entry.Time = at
	}
	// For people only: numbers that cannot be read are shown as 0.
	entry.Objects, _ = strconv.Atoi(a[journalObjectsAnnotation])
	entry.Steps, _ = strconv.Atoi(a[journalStepsAnnotation])
	return entry, number, true
}

// Read returns the entry itself. One that lacks parts, or whose content is not what was written, is an error.
func (j *ConfigMapJournal) Read(ctx context.Context, kept KeptEntry) (Entry, error) {
	if !kept.Complete() {
		return Entry{}, fmt.Errorf("entry %s of the journal is incomplete: %d of its %d parts exist", kept.Name, len(kept.found), kept.Parts)
	}
	var packed []byte
	for number := 1; number <= kept.Parts; number++ {
		data, err := j.data(ctx, kept.found[number].name)
		if err != nil {
			return Entry{}, fmt.Errorf("reading part %d of entry %s of the journal: %w", number, kept.Name, err)
		}
		packed = append(packed, data...)
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != kept.digest {
		return Entry{}, fmt.Errorf("entry %s of the journal is not as it was written: its SHA-256 differs", kept.Name)
	}
	entry, err := decodeEntry(packed)
	if err != nil {
		return Entry{}, fmt.Errorf("%s is not an entry of the journal: %w", kept.Name, err)
	}
	return entry, nil
}

// data reads one part. It lists, which the account may do all the same for List, rather than gets, which would be one more right.
func (j *ConfigMapJournal) data(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found := &corev1.ConfigMapList{}
	if err := j.Client.List(ctx, found, client.InNamespace(j.Namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return nil, err
	}
	if len(found.Items) != 1 {
		return nil, fmt.Errorf("ConfigMap %s/%s is gone", j.Namespace, name)
	}
	return found.Items[0].BinaryData[JournalKey], nil
}

// decodeEntry reads what encode has packed, all parts together.
func decodeEntry(packed []byte) (Entry, error) {
	data, err := decompress(packed, maxEntry)
	if err != nil {
		return Entry{}, err
	}
	return parseEntry(data)
}

func (j *ConfigMapJournal) compress(data []byte) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.compressor == nil {
		j.compressor = gzip.NewWriter(nil)
	}
	var out bytes.Buffer
	w := j.compressor
	w.Reset(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decompress refuses more than limit bytes.
func decompress(packed []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, errors.New("it is larger than any entry")
	}
	return data, nil
}
