// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// mark is the variable by which processes that a tutorial has left behind are found.
const mark = "MOORING_TUTORIAL"

// Follow does all of a tutorial of docs/: every block, as it stands there and in this order, must succeed and print what the page shows. In the end
// no file of its own and no process may be there. If a block fails, the page's own [CleanUp] is still done.
func Follow(t *testing.T, page string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "tutorial-") //nolint:usetesting // its path is short, as those of sockets in it must be
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	id := filepath.Base(folder)
	// What one has built is one's own, modules of Go too, and nothing of kubectl's stays there.
	r := Open(t, page, "TMPDIR="+folder, mark+"="+id, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "KUBECACHEDIR="+t.TempDir())
	blocks, err := Tutorial(r.page)
	if err != nil {
		t.Fatalf("docs/%s: %v", page, err)
	}
	first := slices.IndexFunc(blocks, func(b Block) bool { return b.Heading == CleanUp })
	reached := 0
	t.Cleanup(func() {
		for _, b := range blocks[max(first, reached):] {
			if out, err := r.try(context.Background(), b.Commands); err != nil {
				t.Logf("%s\n%v\n%s", b.Commands, err, out)
			}
		}
		for pid := range left(id) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for _, b := range blocks {
		r.do(page, b)
		reached++
	}
	testkit.Eventually(t, "the processes of the tutorial to end", func() string {
		if processes := left(id); len(processes) > 0 {
			return fmt.Sprint(processes)
		}
		return ""
	})
	rest, err := os.ReadDir(folder)
	if err != nil || len(rest) > 0 {
		t.Errorf("docs/%s leaves behind %v (%v)", page, rest, err)
	}
}

// do does one block.
func (r *Reader) do(page string, b Block) {
	r.tb.Helper()
	begin := time.Now()
	out, err := r.try(r.tb.Context(), strict+b.Commands)
	r.tb.Logf("line %d took %s", b.Line, time.Since(begin).Round(100*time.Millisecond))
	if err != nil {
		r.tb.Fatalf("docs/%s, line %d: %v\n%s\nwhich prints:\n%s", page, b.Line, err, b.Commands, out)
	}
	if !b.Shown {
		return
	}
	if wrong := Compare(b.Output, out); wrong != "" {
		r.tb.Fatalf("docs/%s, line %d: %s\n%s\nwhich prints:\n%s\nand should print:\n%s", page, b.Line, wrong, b.Commands, out, b.Output)
	}
}

// left are the processes of a tutorial, with what they run.
func left(id string) map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(content), "\x00"), mark+"="+id) {
			continue // it has ended, or is somebody else's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if len(line) == 0 {
			continue // it has ended, and nobody has asked how
		}
		found[pid] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}
