// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// shownNames is how many names an error lists; the list of the journal shows them all.
const shownNames = 10

// ReadNamed returns the entries that names mean, machines or entries or ConfigMaps: of each machine the one, if they do not differ.
func (j *ConfigMapJournal) ReadNamed(ctx context.Context, names []string) ([]Entry, error) {
	all, err := j.List(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []KeptEntry
	for _, name := range names {
		kept, err := choose(all, name, j.Namespace)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(chosen, func(k KeptEntry) bool { return k.Name == kept.Name }) {
			chosen = append(chosen, kept)
		}
	}
	entries := make([]Entry, 0, len(chosen))
	for _, kept := range chosen {
		entry, err := j.Read(ctx, kept)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// NamedEntries returns the entries that a name may mean: the entry of that name, or of that ConfigMap, or else those of the machine. They
// are oldest first.
func NamedEntries(all []KeptEntry, name string) []KeptEntry {
	var ofHost []KeptEntry
	for _, kept := range all {
		if kept.Name == name || kept.Holds(name) {
			return []KeptEntry{kept}
		}
		if kept.Host == name {
			ofHost = append(ofHost, kept)
		}
	}
	return ofHost
}

// choose returns the one entry that a name means. Of several entries of a machine none is newest enough: the machine may have come and gone
// in between, or its clean-up was interrupted, and the newest entry holds just what had been left. Only if they hold the same it does not matter.
func choose(all []KeptEntry, name, namespace string) (KeptEntry, error) {
	found := NamedEntries(all, name)
	if len(found) == 0 {
		return KeptEntry{}, UnknownEntry(all, name, namespace)
	}
	complete := slices.DeleteFunc(slices.Clone(found), func(k KeptEntry) bool { return !k.Complete() })
	if slices.ContainsFunc(complete, func(k KeptEntry) bool { return !k.Leftovers }) {
		// A machine's name means the machine; what pods had left there while it lived is put back by the name of the entry.
		complete = slices.DeleteFunc(complete, func(k KeptEntry) bool { return k.Leftovers })
	}
	if len(complete) == 0 {
		last := found[len(found)-1]
		return KeptEntry{}, fmt.Errorf("entry %s is incomplete, %d of its %d parts exist: the clean-up did not start with it, and it has nothing "+
			"to restore", last.Name, last.Found(), last.Parts)
	}
	newest := complete[len(complete)-1]
	if slices.ContainsFunc(complete, func(k KeptEntry) bool { return k.Content != newest.Content }) {
		return KeptEntry{}, fmt.Errorf("machine %s has %d different entries: name the one to restore, or all those of one clean-up that was interrupted: %s",
			name, len(complete), listed(complete, describe))
	}
	return newest, nil
}

// describe is an entry in an error.
func describe(kept KeptEntry) string {
	what := prose.Plural(kept.Objects, "object")
	if kept.Leftovers {
		what = "leftovers of pods"
	}
	return fmt.Sprintf("%s (%s)", kept.Name, what)
}

// UnknownEntry returns which names there are.
func UnknownEntry(all []KeptEntry, name, namespace string) error {
	if len(all) == 0 {
		return fmt.Errorf("there is no %q to restore: the journal in namespace %s is empty", name, namespace)
	}
	told := map[string]bool{}
	hosts := slices.DeleteFunc(slices.Clone(all), func(k KeptEntry) bool {
		again := told[k.Host]
		told[k.Host] = true
		return again
	})
	return fmt.Errorf("there is no %q to restore: the journal in namespace %s has entries of %s; restore --list shows them", name, namespace,
		listed(hosts, func(k KeptEntry) string { return k.Host }))
}

// listed names up to shownNames entries, the newest first.
func listed(kept []KeptEntry, describe func(KeptEntry) string) string {
	var names []string
	for _, k := range slices.Backward(kept) {
		names = append(names, describe(k))
	}
	more := ""
	if len(names) > shownNames {
		more = fmt.Sprintf(" and %d more", len(names)-shownNames)
		names = names[:shownNames]
	}
	return strings.Join(names, ", ") + more
}

// OneLifeEach refuses entries of a machine that was removed, joined again and was removed again, which would be put one onto the other.
func OneLifeEach(entries []Entry) error {
	lives := map[string]string{}
	for _, entry := range entries {
		life := lifeOf(entry)
		if other := lives[entry.Host]; other != "" && life != "" && other != life {
			return fmt.Errorf("the entries of machine %s are of two Calico Nodes of that name (UID %s and %s), since it joined again in between: name those of one",
				entry.Host, other, life)
		}
		if life != "" {
			lives[entry.Host] = life
		}
	}
	return nil
}

// lifeOf is the UID of the Calico Node in an entry, "" if there is none.
func lifeOf(entry Entry) string {
	for _, object := range entry.Objects {
		if !strings.HasSuffix(object.Key, "/nodes/"+entry.Host) {
			continue
		}
		var node struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal([]byte(object.Value), &node); err == nil {
			return node.Metadata.UID
		}
	}
	return ""
}
