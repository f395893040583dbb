// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// Progress is how far this machine has come with the file system of a volume.
type Progress int

// Progresses. They are kept on disk before what follows is done, and outlive the machine's end.
const (
	// NotBegun is a volume on which this machine has made none.
	NotBegun Progress = iota
	// Begun is one of which mkfs may have written a part. Nobody could write to it yet.
	Begun
	// Done is one that was mounted: files may be in it.
	Done
)

const (
	progressPrefix = "format-"
	begunText      = "begun "
	doneText       = "done "
)

// progressFile is where the progress of a volume is kept: a word, and the volume's name.
func (h *Host) progressFile(id string) string {
	return filepath.Join(h.State, fmt.Sprintf("%s%x", progressPrefix, sha256.Sum256([]byte(id))))
}

// Progress returns how far the file system of a volume, by its ID, is made.
func (h *Host) Progress(id string) (Progress, error) {
	text, err := os.ReadFile(h.progressFile(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NotBegun, nil
	case err != nil:
		return NotBegun, fmt.Errorf("%w: reading whether this node made its file system: %w", ErrUnsafe, err)
	case strings.HasPrefix(string(text), begunText):
		return Begun, nil
	}
	return Done, nil // also what cannot be read: the right is spent
}

// Made keeps that the file system of a volume is made. It must be kept before anybody can write to it.
func (h *Host) Made(v Volume) error { return h.keepProgress(v, doneText) }

// keepProgress writes a progress so that it outlives the end of the machine. Those of volumes that are not at this
// machine any more are removed: they decide nothing.
func (h *Host) keepProgress(v Volume, word string) error {
	if word == begunText {
		h.sweepProgress()
	}
	if err := writeSynced(h.progressFile(v.ID), word+v.Name+"\n"); err != nil {
		return fmt.Errorf("%w: keeping that its file system is made: %w", ErrUnsafe, err)
	}
	return nil
}

// writeSynced replaces a file, and returns when the disk has it.
func writeSynced(path, text string) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (h *Host) sweepProgress() {
	links, err := h.linked()
	files, _ := filepath.Glob(filepath.Join(h.State, progressPrefix+"*"))
	if err != nil {
		return // they take little room
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, name, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if _, here := links[name]; name != "" && !here {
			_ = os.Remove(file)
		}
	}
}

// Volume is what a device is formatted for.
type Volume struct {
	// ID and Name are those at DigitalOcean.
	ID, Name string
}

// UUID is that of the file system which is made on a volume: it is the volume's alone, and each stage can compare it.
func (v Volume) UUID() uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://api.digitalocean.com/v2/volumes/"+v.ID)) // RFC 9562, 5.5
}
