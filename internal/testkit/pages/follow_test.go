// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A process of a tutorial is found by what it was started with, and others are not.
func TestLeft(t *testing.T) {
	t.Parallel()
	const id = "tutorial-of-this-test"
	if found := left(id); len(found) > 0 {
		t.Fatalf("before anything was started there are %v", found)
	}
	c := exec.Command("cat")
	c.Env = append(os.Environ(), mark+"="+id)
	input := must.Get(c.StdinPipe()).Or(t)
	must.Do(t, c.Start())
	testkit.Eventually(t, "the process to be found", func() string {
		if found := left(id); found[c.Process.Pid] != "cat" {
			return "found " + strings.Join([]string{id, found[c.Process.Pid]}, ": ")
		}
		return ""
	})
	if found := left("tutorial"); len(found) > 0 {
		t.Errorf("of another tutorial are %v", found)
	}
	_ = input.Close()
	_ = c.Wait()
	if found := left(id); len(found) > 0 {
		t.Errorf("after its end there are %v", found)
	}
}

// What one block exports the next has; a command that fails in the middle of a block fails it, and so does one in a pipe.
func TestTry(t *testing.T) {
	t.Parallel()
	r := &Reader{tb: t, dir: t.TempDir(), env: os.Environ()}
	if out, err := r.try(t.Context(), strict+"export A='x y'; B=1"); err != nil || out != "" {
		t.Fatalf("%v %s", err, out)
	}
	if out, err := r.try(t.Context(), strict+`echo "$A ${B:-none}"; pwd`); err != nil || out != "x y none\n"+filepath.Clean(testkit.Root(t))+"\n" {
		t.Errorf("%v %s", err, out)
	}
	for _, commands := range []string{"false; true", "false | true", "echo $NOT_THERE"} {
		if out, err := r.try(t.Context(), strict+commands); err == nil {
			t.Errorf("%s succeeds: %s", commands, out)
		}
	}
}
