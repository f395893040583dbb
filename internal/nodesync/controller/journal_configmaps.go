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
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the ConfigMaps of the journal are called and marked with. MUST NOT change: entries of earlier versions would not be found any more, neither to
// be restored nor to be pruned, and people select by them.
const (
	// JournalPrefix begins the name of every ConfigMap of the journal; the name of the entry and the number of the part follow.
	JournalPrefix = "calico-node-sync-journal-"
	// JournalLabel on a ConfigMap of the journal: the version of the format.
	JournalLabel = "nodes.mooring.dev/journal"
	// JournalHostLabel on that ConfigMap: the name of the host, shortened to fit into a label.
	JournalHostLabel = "nodes.mooring.dev/journal-host"
	// JournalLeftoversLabel on that ConfigMap, with value true: the entry is about pods that were gone on a machine that lived.
	JournalLeftoversLabel = "nodes.mooring.dev/journal-leftovers"
	// journalContentLabel tells whether two entries hold the same.
	journalContentLabel = "nodes.mooring.dev/journal-content"

	journalEntryAnnotation   = "nodes.mooring.dev/journal-entry"
	journalPartAnnotation    = "nodes.mooring.dev/journal-part"   // such as 1/3
	journalDigestAnnotation  = "nodes.mooring.dev/journal-sha256" // of all parts together
	journalHostAnnotation    = "nodes.mooring.dev/host"
	journalNodeAnnotation    = "nodes.mooring.dev/kubernetes-node"
	journalBecauseAnnotation = "nodes.mooring.dev/because"
	journalTimeAnnotation    = "nodes.mooring.dev/time"
	journalObjectsAnnotation = "nodes.mooring.dev/objects"
	journalStepsAnnotation   = "nodes.mooring.dev/steps"

	// JournalKey is the key, in binaryData, of a part of the entry: JSON, compressed by gzip.
	JournalKey = "entry.json.gz"

	journalVersion = "v1"
)

const (
	// partSize is how much one ConfigMap holds. The API server takes 1 MiB of data (core MaxSecretSize), and etcd's own limit of 1.5 MiB for a request
	// may have been lowered.
	partSize = 768 << 10
	// maxParts is as many as the name's three digits count.
	maxParts = 999
	// longestHost is how much of a host's name goes into an entry's.
	longestHost = 120
	// longestBecause bounds an annotation that is for people; the whole reason stands in the entry.
	longestBecause = 1024
)

// ConfigMapJournal is a Journal of immutable ConfigMaps. An entry is split over several if it is large, and counts only if all of them are there:
//
//	entry ─► JSON ─► gzip ─► part 1/n … part n/n, one ConfigMap each ─► etcd
//
// A process that dies in between leaves an entry that lacks parts. Nothing of the machine was touched then; List tells of it, and Prune drops it.
type ConfigMapJournal struct {
	// Client must know ConfigMaps and must not be a cache.
	Client client.Client
	// Namespace is where the ConfigMaps are.
	Namespace string
	// Retention is how long an entry is kept, and MaxEntries how many of machines that are gone and as many of leftovers of pods; see Prune. 0 means no limit.
	Retention  time.Duration
	MaxEntries int

	part int // the size of a part; 0 means partSize

	mu sync.Mutex // guards all below
	// compressor is used again: its state is most of a megabyte, many times what an entry needs.
	compressor *gzip.Writer
	// known are the contents of which there may be an entry already: those of the entries that were there before the first Record, and those recorded
	// since. Only they are worth a search, which costs the API server a look at the whole journal. nil until it is read.
	known map[string]bool
}

// mostKnown bounds how many contents are known by heart; then they are read again.
const mostKnown = 10_000

// NewConfigMapJournal returns the journal of a namespace, with a client of its own that caches nothing.
func NewConfigMapJournal(config *rest.Config, namespace string) (*ConfigMapJournal, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("making a client for the journal: %w", err)
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the journal: %w", err)
	}
	return &ConfigMapJournal{Client: live, Namespace: namespace}, nil
}

// Record implements Journal: the API server answers a create when etcd has it on the disks of most of its members.
func (j *ConfigMapJournal) Record(ctx context.Context, entry Entry) error {
	parts, err := j.encode(entry)
	if err != nil {
		return err
	}
	same, err := j.sameAs(ctx, parts[0].Labels[journalContentLabel], entry.Host)
	if err != nil {
		return fmt.Errorf("%w: looking for earlier entries of %s: %w", errJournal, entry.Host, err)
	}
	if slices.ContainsFunc(same, func(kept KeptEntry) bool { return entry.Time.Sub(kept.Time).Abs() < sameEntryLife }) {
		return nil // a controller that starts again and again does not fill the namespace with copies
	}
	for i := range parts {
		if err := j.create(ctx, &parts[i]); err != nil {
			return fmt.Errorf("%w: part %d of %d of the entry of %s: %w", errJournal, i+1, len(parts), entry.Host, err)
		}
	}
	for _, kept := range same {
		// This one holds the same, so that a machine which fails for days has one entry, and does not crowd out others. One that cannot be dropped
		// does no harm.
		_ = j.drop(ctx, kept)
	}
	return nil
}

// sameAs returns the complete entries of the host that hold the same, as they are now. An entry that another process writes meanwhile may be missed: then
// there are two.
func (j *ConfigMapJournal) sameAs(ctx context.Context, content, host string) ([]KeptEntry, error) {
	if known, err := j.learn(ctx, content); !known || err != nil {
		return nil, err
	}
	same, err := j.list(ctx, client.MatchingLabels{JournalLabel: journalVersion, journalContentLabel: content})
	return slices.DeleteFunc(same, func(kept KeptEntry) bool { return !kept.Complete() || kept.Host != host }), err
}

// learn reports whether there may be an entry of the content already. From now on there may be.
func (j *ConfigMapJournal) learn(ctx context.Context, content string) (known bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.known == nil || len(j.known) > mostKnown {
		kept, err := j.List(ctx)
		if err != nil {
			return false, err
		}
		j.known = make(map[string]bool, len(kept))
		for _, entry := range kept {
			j.known[entry.Content] = true
		}
	}
	known = j.known[content]
	j.known[content] = true
	return known, nil
}

// create writes one part. One that is there already, with just this content, is an earlier attempt whose answer got lost.
func (j *ConfigMapJournal) create(ctx context.Context, part *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	want := part.BinaryData[JournalKey]
	err := j.Client.Create(ctx, part)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, readErr := j.data(ctx, part.Name)
	if readErr != nil {
		return readErr
	}
	if !bytes.Equal(there, want) {
		return fmt.Errorf("ConfigMap %s/%s already exists with other content", j.Namespace, part.Name)
	}
	return nil
}

// encode returns the ConfigMaps of an entry.
func (j *ConfigMapJournal) encode(entry Entry) ([]corev1.ConfigMap, error) {
	data, err := encodeEntry(entry, "")
	if err != nil {
		return nil, err
	}
	packed, err := j.compress(data)
	if err != nil {
		return nil, fmt.Errorf("%w: compressing the entry of %s: %w", errJournal, entry.Host, err)
	}
	content, err := contentHash(entry)
	if err != nil {
		return nil, err
	}
	chunks := slices.Collect(slices.Chunk(packed, cmp.Or(j.part, partSize)))
	if len(chunks) > maxParts {
		return nil, fmt.Errorf("%w: the entry of %s would need %d ConfigMaps, more than %d", errJournal, entry.Host, len(chunks), maxParts)
	}
	digest := sha256.Sum256(packed)
	name := entryName(entry, digest[:4])
	parts := make([]corev1.ConfigMap, 0, len(chunks))
	for i, chunk := range chunks {
		parts = append(parts, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: j.Namespace,
				Name:      fmt.Sprintf("%s%s-%03d", JournalPrefix, name, i+1),
				Labels: map[string]string{
					JournalLabel: journalVersion, JournalHostLabel: HostLabel(entry.Host), journalContentLabel: content,
				},
				Annotations: map[string]string{
					journalEntryAnnotation:   name,
					journalPartAnnotation:    fmt.Sprintf("%d/%d", i+1, len(chunks)),
					journalDigestAnnotation:  hex.EncodeToString(digest[:]),
					journalHostAnnotation:    entry.Host,
					journalNodeAnnotation:    entry.KubernetesNode,
					journalBecauseAnnotation: clip(entry.Because, longestBecause),
					journalTimeAnnotation:    entry.Time.UTC().Format(time.RFC3339Nano),
					journalObjectsAnnotation: strconv.Itoa(len(entry.Objects) + len(entry.Repairs)),
					journalStepsAnnotation:   strconv.Itoa(len(entry.Steps)),
				},
			},
			Immutable:  new(true),
			BinaryData: map[string][]byte{JournalKey: chunk},
		})
		if entry.Leftovers {
			parts[i].Labels[JournalLeftoversLabel] = "true"
		}
	}
	return parts, nil
}

// entryName begins with the time, by which entries sort, and holds the host as far as a DNS name can. The digest tells entries of one host and moment
// apart.
func entryName(entry Entry, digest []byte) string {
	at := entry.Time.UTC()
	name := fmt.Sprintf("%s%03dz", at.Format("20060102t150405"), at.Nanosecond()/int(time.Millisecond))
	if host := dnsName(entry.Host); host != "" {
		name += "-" + host
	}
	return name + "-" + hex.EncodeToString(digest)
}

// foreignToDNS is what a DNS label cannot hold.
var foreignToDNS = regexp.MustCompile(`[^a-z0-9-]+`)

// dnsName is what of a host's name can stand in a DNS subdomain, "" for nothing: lower case, every label beginning and ending with a letter or digit.
func dnsName(host string) string {
	host = strings.ToLower(host)
	if len(host) > longestHost {
		host = host[:longestHost]
	}
	var labels []string
	for label := range strings.SplitSeq(host, ".") {
		if label = strings.Trim(foreignToDNS.ReplaceAllString(label, "-"), "-"); label != "" {
			labels = append(labels, label)
		}
	}
	return strings.Join(labels, ".")
}

// HostLabel is the value of JournalHostLabel: the host itself where a label can hold it, otherwise its beginning and a digest.
func HostLabel(host string) string {
	if len(validation.IsValidLabelValue(host)) == 0 {
		return host
	}
	sum := sha256.Sum256([]byte(host))
	name := dnsName(host)
	return strings.Trim(name[:min(len(name), 40)]+"-"+hex.EncodeToString(sum[:8]), ".-")
}

// clip shortens a text to at most so many bytes, at the end of a character.
func clip(text string, size int) string {
	if len(text) <= size {
		return text
	}
	const more = "…"
	cut := size - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
