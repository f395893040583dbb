// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// TestOnlyZerosAreBlank: one byte anywhere at the ends, every signature, and a short or failing read keep a device from being formatted.
func TestOnlyZerosAreBlank(t *testing.T) {
	t.Parallel()
	ends := func() (first, last []byte) { return make([]byte, edge), make([]byte, edge) }
	if first, last := ends(); Identify(first, last).Kind != Blank {
		t.Error("zeros are not blank")
	}
	for at := 0; at < edge; at += 4093 {
		first, last := ends()
		last[at] = 1
		if got := Identify(first, last); got.Kind == Blank {
			t.Errorf("a byte at %d of the last MiB is blank", at)
		}
		last[at], first[at] = 0, 1
		if got := Identify(first, last); got.Kind == Blank {
			t.Errorf("a byte at %d of the first MiB is blank", at)
		}
	}
	for _, s := range foreign() {
		first, last := ends()
		if s.at < 0 {
			copy(last[edge+s.at:], s.magic)
		} else {
			copy(first[s.at:], s.magic)
		}
		if got := Identify(first, last); got.Kind != Foreign {
			t.Errorf("%s at %d is %+v", s.name, s.at, got)
		}
	}
	first, last := ends()
	if got := Identify(first[1:], last); got.Kind != Unknown {
		t.Errorf("a short read is %+v", got)
	}
}

// failingReader is a disk that cannot be read.
type failingReader struct{}

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

// TestAReadErrorIsNotBlank: what cannot be read whole is an error, not an empty device.
func TestAReadErrorIsNotBlank(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]io.ReaderAt{"short": bytes.NewReader(make([]byte, edge+5)), "failing": failingReader{}} {
		if _, _, err := readEnds(r, 4*edge); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzIdentify: nothing that has a byte is blank, and nothing panics.
func FuzzIdentify(f *testing.F) {
	f.Add([]byte("XFSB"), 0)
	f.Add([]byte{0x53, 0xef}, 1024+0x38)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		first, last := make([]byte, edge), make([]byte, edge)
		if at >= 0 && at < edge {
			copy(first[at:], data)
		}
		if got := Identify(first, last); (got.Kind == Blank) != allZero(first) {
			t.Errorf("%+v of %q at %d", got, data, at)
		}
	})
}

// FuzzParseMounts: a line is understood or an error.
func FuzzParseMounts(f *testing.F) {
	f.Add(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseMounts(text)
		for _, m := range all {
			if err == nil && m.path == "" {
				t.Errorf("%q has a mount without a path", text)
			}
		}
	})
}
