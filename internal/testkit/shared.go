// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// SharedVariable names the folder with the data that tests share with other projects; it is ../shared alongside the repository if unset.
const SharedVariable = "MOORING_SHARED"

// Shared returns the path of a file in the shared folder, or skips the test and says what it needs. Under CI=true it fails the test if
// the variable is set, since then somebody meant the file to be there.
func Shared(tb testing.TB, elements ...string) string {
	tb.Helper()
	folder, set := os.Getenv(SharedVariable), true
	if folder == "" {
		folder, set = filepath.Join(filepath.Dir(Root(tb)), "shared"), false
	}
	path := filepath.Join(append([]string{folder}, elements...)...)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	name := filepath.Join(elements...)
	if set && os.Getenv("CI") == "true" {
		tb.Fatalf("%s names a folder without %s", SharedVariable, name)
	}
	tb.Skipf("it needs %s of the shared data: set %s to the folder that has it", name, SharedVariable)
	return ""
}
