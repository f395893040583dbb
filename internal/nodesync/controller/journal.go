// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Entry is what the journal holds of one machine: what stands in the datastore of it before anything is removed, and why it goes. Its JSON form MUST stay
// readable: an entry is most needed when a later version is running.
type Entry struct {
	Time           time.Time `json:"time"`
	ClusterUID     string    `json:"clusterUID"`
	Host           string    `json:"host"`
	KubernetesNode string    `json:"kubernetesNode"`
	Because        string    `json:"because"`
	// Steps are the steps in words.
	Steps []string `json:"steps"`
	// Objects are the stored objects; addresses stand in the steps.
	Objects []calico.Object `json:"objects"`
}

// Journal keeps entries before anything is removed.
type Journal interface {
	// Record keeps an entry for good before it returns. An error means that nothing of the machine may be removed.
	Record(ctx context.Context, entry Entry) error
}

// FolderJournal is a Journal of one file for each entry.
type FolderJournal struct{ Dir string }

// Record implements Journal: a new file, complete or not there at all, and flushed to the disk.
func (j FolderJournal) Record(_ context.Context, entry Entry) error {
	data, err := json.MarshalIndent(entry, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the journal's entry: %w", err)
	}
	file, err := os.CreateTemp(j.Dir, ".entry-*")
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is renamed by then, if all went well
	_, err = file.Write(append(data, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := os.Rename(file.Name(), filepath.Join(j.Dir, fileName(entry))); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return syncFolder(j.Dir)
}

// fileName begins with the time, so that files sort by it. A host's name may be longer than a file's.
func fileName(entry Entry) string {
	host := url.PathEscape(entry.Host)
	if len(host) > 150 {
		host = fmt.Sprintf("%s-%x", host[:100], sha256.Sum256([]byte(entry.Host)))
	}
	return entry.Time.UTC().Format("20060102T150405.000000000Z") + "-" + host + ".json"
}

// syncFolder makes the names of new files outlive a crash of the machine.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// ReadEntry reads an entry that a FolderJournal has written.
func ReadEntry(file string) (Entry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Entry{}, err
	}
	var entry Entry
	if err := json.Unmarshal(data, &entry); err != nil {
		return Entry{}, fmt.Errorf("%s is no entry of the journal: %w", file, err)
	}
	if entry.Host == "" || len(entry.Objects) == 0 {
		return Entry{}, fmt.Errorf("%s is no entry of the journal: it names no host or holds no object", file)
	}
	return entry, nil
}

// entries are what is to be journalled of a plan, by machine.
func entries(w nodesync.World, plan nodesync.Plan, objects map[string][]calico.Object) map[nodesync.Subject]Entry {
	out := make(map[nodesync.Subject]Entry, len(plan.Decisions))
	for _, d := range plan.Decisions {
		out[d.Of] = Entry{
			Time: w.Now, ClusterUID: w.Kubernetes.ClusterUID, Host: d.Of.Host, KubernetesNode: d.Of.KubernetesNode, Because: d.Because,
			Objects: objects[d.Of.Host],
		}
	}
	for _, s := range plan.Steps {
		entry := out[s.Subject()]
		entry.Steps = append(entry.Steps, s.String())
		out[s.Subject()] = entry
	}
	return out
}
