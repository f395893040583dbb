// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFilesAreFresh: what is installed is what the code says.
func TestFilesAreFresh(t *testing.T) {
	t.Parallel()
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets() {
		have, err := os.ReadFile(filepath.Join("..", "..", target))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is not what make manifests writes (- code, + file):\n%s", target, diff)
		}
	}
}
