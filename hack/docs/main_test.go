// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPagesAreFresh fails when a flag has changed and its page has not.
func TestPagesAreFresh(t *testing.T) {
	t.Parallel()
	for _, command := range commands() {
		path := filepath.Join("..", "..", "docs", "reference", command.Name()+".md")
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(page(command)), string(have)); diff != "" {
			t.Errorf("%s is out of date, run make generate (-want +have):\n%s", path, diff)
		}
	}
}
