// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// FolderJournal is a Journal of one file for each entry.
type FolderJournal struct{ Dir string }

// Record implements Journal: a new file, complete or not there at all, and flushed to the disk.
func (j FolderJournal) Record(_ context.Context, entry Entry) error {
	data, err := encodeEntry(entry, "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(j.Dir, ".entry-*")
	if err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
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
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	if err := os.Rename(file.Name(), filepath.Join(j.Dir, fileName(entry))); err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
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
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	return nil
}

// ReadEntry reads an entry that a FolderJournal has written.
func ReadEntry(file string) (Entry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Entry{}, err
	}
	entry, err := parseEntry(data)
	if err != nil {
		return Entry{}, fmt.Errorf("%s is not an entry of the journal: %w", file, err)
	}
	return entry, nil
}
