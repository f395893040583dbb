// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blocklog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"golang.org/x/sys/unix"
)

// page is what a Content keeps at a time, in bytes.
const page = 4096

// Content is what a disk holds: its pages that are not all zeros, by their offset. A page is never changed in place, so
// that a copy of the map is a copy of the disk.
type Content map[int64][]byte

// Read returns what a sparse file holds.
func Read(path string) (Content, error) {
	f, err := os.Open(path) //nolint:gosec // a test's own
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	c := Content{}
	for at := int64(0); ; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return c, nil
		}
		if err == nil {
			at, err = f.Seek(data, unix.SEEK_HOLE)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for data in %s: %w", path, err)
		}
		for data -= data % page; data < at; data += page {
			content := make([]byte, page)
			if _, err := f.ReadAt(content, data); err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}
			c.set(data, content)
		}
	}
}

// set makes a page the content's own, which nobody changes from then on.
func (c Content) set(at int64, content []byte) {
	if len(bytes.TrimLeft(content, "\x00")) == 0 { // what is zero may be a hole or not
		delete(c, at)
		return
	}
	c[at] = content
}

// After returns the content after some writes.
func (c Content) After(writes []Write) Content {
	c = maps.Clone(c)
	for _, w := range writes {
		c.write(w)
	}
	return c
}

func (c Content) write(w Write) {
	end := w.Offset + w.Zeros + int64(len(w.Data))
	if w.Zeros > page*int64(len(c)) { // a whole disk is discarded
		for at := range c {
			if at >= w.Offset && at+page <= end {
				delete(c, at)
			}
		}
		for _, at := range []int64{w.Offset - w.Offset%page, end - end%page} {
			c.overwrite(w, at, end)
		}
		return
	}
	for at := w.Offset - w.Offset%page; at < end; at += page {
		c.overwrite(w, at, end)
	}
}

// overwrite puts the part of a write that ends at a place into one page.
func (c Content) overwrite(w Write, at, end int64) {
	from, to := max(at, w.Offset), min(at+page, end)
	if from >= to {
		return
	}
	if w.Zeros == 0 && to-from == page {
		c.set(at, w.Data[from-w.Offset:to-w.Offset])
		return
	}
	content := make([]byte, page)
	copy(content, c[at])
	if w.Zeros > 0 {
		clear(content[from-at : to-at])
	} else {
		copy(content[from-at:], w.Data[from-w.Offset:to-w.Offset])
	}
	c.set(at, content)
}

// Sum is the same for contents that are equal.
func (c Content) Sum() [sha256.Size]byte {
	var all [sha256.Size]byte
	for at, content := range c {
		hash := sha256.New()
		_ = binary.Write(hash, binary.LittleEndian, at) // a hash never fails
		_, _ = hash.Write(content)
		for i, b := range hash.Sum(nil) { // the order of a map is chance's
			all[i] ^= b
		}
	}
	return all
}

// Save makes a sparse file of a size that holds it.
func (c Content) Save(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // a test's own
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	for at, content := range c {
		if err == nil {
			_, err = f.WriteAt(content, at)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("making the disk %s: %w", path, err)
	}
	return nil
}
