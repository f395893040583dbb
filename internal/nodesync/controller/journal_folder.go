// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
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
	if err := j.write(data, fileName(entry)); err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	return nil
}

// write makes a file, and its name outlive a crash of the machine.
func (j FolderJournal) write(data []byte, name string) error {
	file, err := os.CreateTemp(j.Dir, ".entry-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is renamed by then, if all went well
	_, err = file.Write(append(data, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err = cmp.Or(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(j.Dir, name)); err != nil {
		return err
	}
	folder, err := os.Open(j.Dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// fileName begins with the time, so that files sort by it. A host's name may be longer than a file's.
func fileName(entry Entry) string {
	host := url.PathEscape(entry.Host)
	if len(host) > 150 {
		host = fmt.Sprintf("%s-%x", host[:100], sha256.Sum256([]byte(entry.Host)))
	}
	return entry.Time.UTC().Format("20060102T150405.000000000Z") + "-" + host + ".json"
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
