// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestCommittedListsAreFresh is the test that cmd/*/deps.txt promises.
func TestCommittedListsAreFresh(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	// go test reuses an old result unless a file that the test itself looked at has changed; go list reads in another process.
	for _, dir := range []string{"api", "cmd", "internal", "go.mod"} {
		must.Do(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}))
	}
	if err := run(t.Context(), root, true, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestRender shows the form of a list: sorted, each module once, the standard library left out.
func TestRender(t *testing.T) {
	t.Parallel()
	listing := `{"ImportPath": "fmt"}
{"ImportPath": "example.org/b/x", "Module": {"Path": "example.org/b", "Version": "v1.2.0"}}
{"ImportPath": "example.org/b/y", "Module": {"Path": "example.org/b", "Version": "v1.2.0"}}
{"ImportPath": "example.org/a", "Module": {"Path": "example.org/a", "Version": "v0.1.0"}}
{"ImportPath": "example.org/own/internal/z", "Module": {"Path": "example.org/own", "Main": true}}
{"ImportPath": "example.org/own/cmd/c", "Module": {"Path": "example.org/own", "Main": true}}`
	got := must.Get(render("./cmd/c", strings.NewReader(listing))).Or(t)
	want := `# What ./cmd/c is linked from (linux/amd64). Written by make deps; make verify and a test keep it true.

# 2 packages of this repository
cmd/c
internal/z

# 2 modules
example.org/a v0.1.0
example.org/b v1.2.0
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

// TestRunNoticesStaleLists shows that the check fails where writing would change something.
func TestRunNoticesStaleLists(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":           "module example.org/own\n\ngo 1.26.0\n",
		"cmd/c/main.go":    "package main\n\nfunc main() {}\n",
		"cmd/c/deps.txt":   "old\n",
		"cmd/notes/README": "no binary here\n",
	} {
		path := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
	if err := run(t.Context(), root, true, io.Discard); err == nil || !strings.Contains(err.Error(), "cmd/c/deps.txt") {
		t.Errorf("check of a stale list: %v; want an error that names it", err)
	}
	must.Do(t, run(t.Context(), root, false, io.Discard))
	if err := run(t.Context(), root, true, io.Discard); err != nil {
		t.Errorf("check after writing: %v", err)
	}
}
