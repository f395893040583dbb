// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestFilesAreFresh: what is installed is what the code says.
func TestFilesAreFresh(t *testing.T) {
	t.Parallel()
	want := must.Get(render()).Or(t)
	for _, target := range targets() {
		have := must.Get(os.ReadFile(filepath.Join("..", "..", target))).Or(t)
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is not what make manifests writes (- code, + file):\n%s", target, diff)
		}
	}
}
