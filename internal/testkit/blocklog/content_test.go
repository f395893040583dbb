// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blocklog

import (
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestAContentIsWhatAFileHolds after the same writes, however they overlap, and saved it makes the same file.
func TestAContentIsWhatAFileHolds(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cases.Check(t, func(t *rapid.T) {
		const size = 16 * page
		path := filepath.Join(folder, "file")
		f, err := os.Create(path) //nolint:gosec // ours
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		content := Content{}
		for range rapid.IntRange(0, 12).Draw(t, "writes") {
			at := rapid.Int64Range(0, size/sector-1).Draw(t, "sector") * sector
			long := rapid.Int64Range(1, size/sector-at/sector).Draw(t, "sectors") * sector
			w := Write{Offset: at, Zeros: long}
			if rapid.Bool().Draw(t, "data") {
				w = Write{Offset: at, Data: make([]byte, long)}
				for i := range w.Data {
					w.Data[i] = byte(int64(i) / sector % 3) // some sectors are zeros
				}
			}
			content = content.After([]Write{w})
			if err := w.apply(f); err != nil {
				t.Fatal(err)
			}
		}
		want, err := Read(path)
		if err != nil || want.Sum() != content.Sum() || len(want) != len(content) {
			t.Fatalf("the file has %d pages and the content %d, %v", len(want), len(content), err)
		}
		saved := filepath.Join(folder, "saved")
		if err := content.Save(saved, size); err != nil {
			t.Fatal(err)
		}
		if again, err := Read(saved); err != nil || again.Sum() != content.Sum() {
			t.Fatalf("saved it has %d pages, and the content %d, %v", len(again), len(content), err)
		}
		if other := content.After([]Write{{Offset: 0, Data: []byte{9}}}); other.Sum() == content.Sum() {
			t.Fatal("another content has the same sum")
		}
	})
}
