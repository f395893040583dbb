// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command linkcache keeps what the linker has made: `go test -toolexec "linkcache FOLDER"`.
//
// The go command caches compiled packages and results of tests. Whatever has no result in its cache, it links: all test
// binaries with each seed, and so with each commit. One that links client-go takes seconds of CPU, and there are a hundred
// of them.
//
// The key is the first part of the linker's flag -buildid, by which the go command itself decides whether a program that it
// finds at -o is up to date (buildActionID of cmd/go/internal/work/buildid.go): it is made of the flags, of the tools and of
// the contents of all packages. FOLDER has a folder for each package, and that the last program that was linked for it. All
// other tools run as they would without this program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			os.Exit(failed.ExitCode()) // the linker has said why
		}
		fmt.Fprintln(os.Stderr, "linkcache:", err)
		os.Exit(1)
	}
}

// run runs the tool args[1:], or copies what it made the last time from the folder args[0].
func run(args []string) error {
	if len(args) < 2 {
		return errors.New(`two arguments are needed: go test -toolexec "linkcache FOLDER"`)
	}
	made, ok := parse(args[1:])
	if !ok {
		return syscall.Exec(args[1], args[1:], os.Environ())
	}
	kept := filepath.Join(args[0], made.folder, made.key)
	if duplicate(kept, made.path) == nil {
		return nil
	}
	cmd := exec.CommandContext(context.Background(), args[1], args[2:]...) // the go command ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	keep(made.path, kept)
	return nil
}

// program is what a call of the linker makes.
type program struct {
	path   string // where the linker writes it
	key    string // what it is made of
	folder string // which program it is, whatever it is made of
}

// parse reads a command line, and reports whether it is one of the linker that makes a program.
func parse(tool []string) (made program, ok bool) {
	if filepath.Base(tool[0]) != "link" {
		return program{}, false
	}
	made.folder = strings.ReplaceAll(os.Getenv("TOOLEXEC_IMPORTPATH"), "/", "_")
	for i, arg := range tool {
		if arg == "-o" && i+1 < len(tool) {
			made.path = tool[i+1]
		}
		if id, found := strings.CutPrefix(arg, "-buildid="); found {
			made.key, _, _ = strings.Cut(id, "/")
		}
	}
	if slices.Contains(tool, "-race") {
		made.folder += "-race"
	}
	return made, made.path != "" && made.key != "" && os.Getenv("TOOLEXEC_IMPORTPATH") != ""
}

// keep puts a copy of the program in its folder, in place of what was there. One that cannot be kept is linked again the
// next time.
func keep(path, kept string) {
	folder := filepath.Dir(kept)
	if os.RemoveAll(folder) != nil || os.MkdirAll(folder, 0o755) != nil {
		return
	}
	half := kept + ".half"
	if duplicate(path, half) != nil || os.Rename(half, kept) != nil {
		_ = os.Remove(half)
	}
}

// duplicate copies a program. The go command writes into what the linker has made, so that a link would not do.
func duplicate(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
