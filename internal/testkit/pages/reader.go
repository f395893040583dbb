// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// patience is how long one block may take, a bound that only a hang exceeds: it is above what the waiting commands of pages allow themselves.
const patience = 6 * time.Minute

// strict has the first command that fails end a block, also within a pipe.
const strict = "set -euo pipefail\n"

// A Reader follows a page with a shell.
type Reader struct {
	tb        testing.TB
	page, dir string
	env       []string
}

// Open opens a page of docs/ for somebody who is at the root of the repository, has a home of their own, finds kubectl, and has these variables, of
// the form NAME=VALUE, alongside those of the test.
func Open(tb testing.TB, page string, env ...string) *Reader {
	tb.Helper()
	text := must.Get(os.ReadFile(filepath.Join(testkit.Root(tb), "docs", filepath.FromSlash(page)))).Or(tb)
	r := &Reader{tb: tb, page: string(text), dir: tb.TempDir()}
	r.env = append(os.Environ(), "HOME="+r.dir, "PATH="+r.dir+":"+filepath.Dir(testkit.Binary(tb, "kubectl"))+":"+os.Getenv("PATH"))
	r.env = append(r.env, env...)
	return r
}

// Provide puts a program in the way of the one of this name: a shell script.
func (r *Reader) Provide(name, script string) {
	r.tb.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a script is run
		r.tb.Fatal(err)
	}
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// Blocks are the blocks of commands below a heading, which is given with its number signs. It is an error of the page if there are none.
func (r *Reader) Blocks(heading string) []string {
	r.tb.Helper()
	_, text, found := strings.Cut(r.page, "\n"+heading+"\n")
	if !found {
		r.tb.Fatalf("the page has no heading %q", heading)
	}
	if level, _, _ := strings.Cut(heading, " "); level != "" {
		text, _, _ = strings.Cut(text, "\n"+level+" ")
	}
	var out []string
	for _, match := range shellBlock.FindAllStringSubmatch(text, -1) {
		out = append(out, match[1])
	}
	if len(out) == 0 {
		r.tb.Fatalf("below %q there are no commands", heading)
	}
	return out
}

// Run runs commands from the root of the repository and returns what they print. What they export later ones have. The first that fails,
// fails the test.
func (r *Reader) Run(commands string) string {
	r.tb.Helper()
	out, err := r.try(r.tb.Context(), strict+commands)
	if err != nil {
		r.tb.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return out
}

// try runs commands in a process group of their own. What they leave in the background may go on, with its output somewhere else.
func (r *Reader) try(ctx context.Context, commands string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	variables := filepath.Join(r.dir, "variables")
	script := "[ ! -e " + variables + " ] || . " + variables + "\n" + commands + "\nexport -p > " + variables + "\n"
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = testkit.Root(r.tb), r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return out.String(), err
}
