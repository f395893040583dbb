// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sleepsForReal reports whether a test file sleeps outside a bubble of testing/synctest, where a sleep would take no time. An hour is not a guess
// of how long something takes: it is how a helper process waits to be killed.
func sleepsForReal(content []byte) bool {
	const sleep = "time." + "Sleep(" // in two, or this file would find itself
	content = bytes.ReplaceAll(content, []byte(sleep+"time.Hour)"), nil)
	return bytes.Contains(content, []byte(sleep)) && !bytes.Contains(content, []byte(`"testing/synctest"`))
}

// TestNoTestSleeps keeps tests from waiting a guessed time: they would be slow on every machine and fail on the slowest.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	r := open(t)
	seen := 0
	err := filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		seen++
		if sleepsForReal(content) {
			t.Errorf("%s sleeps: poll with a deadline, or use testing/synctest", strings.TrimPrefix(path, r.root+"/"))
		}
		return nil
	})
	if err != nil || seen < 5 {
		t.Fatalf("read %d test files: %v", seen, err)
	}
	if !sleepsForReal([]byte("time."+"Sleep(time.Second)")) ||
		sleepsForReal([]byte("time."+"Sleep(1) \"testing/synctest\"")) || sleepsForReal([]byte("time."+"Sleep(time.Hour)")) {
		t.Error("sleepsForReal cannot tell")
	}
}
