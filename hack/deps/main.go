// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command deps writes cmd/*/deps.txt: for each binary the packages of this repository and the modules with versions that it is linked
// from, so that a review sees what a change brings into which image. Run it from the repository's root as `make deps` does; with -check
// it writes nothing and fails if a list is out of date.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a list is out of date")
	flag.Parse()
	if err := run(context.Background(), ".", *check, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "deps:", err)
		os.Exit(1)
	}
}

// run writes, or with check compares, the list of each binary under root/cmd, and names those that changed on out.
func run(ctx context.Context, root string, check bool, out io.Writer) error {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil {
		return err
	}
	var stale []string
	for _, main := range mains {
		dir := filepath.Dir(main)
		want, err := describe(ctx, root, "./cmd/"+filepath.Base(dir))
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "deps.txt")
		have, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if bytes.Equal(have, want) {
			continue
		}
		stale = append(stale, file)
		if check {
			continue
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, "wrote", file)
	}
	if check && len(stale) > 0 {
		return fmt.Errorf("%s out of date: run make deps and commit the result", strings.Join(stale, ", "))
	}
	return nil
}

// describe returns the content of the deps.txt of one binary.
func describe(ctx context.Context, root, pkg string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Module", pkg)
	cmd.Dir = root
	// One platform, so that the list does not depend on who writes it: that of the images.
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	listing, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what %s links: %w\n%s", pkg, err, stderr.String())
	}
	return render(pkg, bytes.NewReader(listing))
}

// render turns the output of go list -deps -json into the sorted list.
func render(pkg string, listing io.Reader) ([]byte, error) {
	var own, modules []string
	decoder := json.NewDecoder(listing)
	for {
		var p struct {
			ImportPath string
			Module     *struct {
				Path, Version string
				Main          bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading go list for %s: %w", pkg, err)
		}
		switch {
		case p.Module == nil: // the standard library comes with Go
		case p.Module.Main:
			own = append(own, strings.TrimPrefix(p.ImportPath, p.Module.Path+"/"))
		default:
			modules = append(modules, p.Module.Path+" "+p.Module.Version)
		}
	}
	slices.Sort(own)
	slices.Sort(modules)
	modules = slices.Compact(modules)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What %s is linked from (linux/amd64). Written by make deps; make verify and a test keep it true.\n", pkg)
	fmt.Fprintf(&b, "\n# %d packages of this repository\n%s\n", len(own), strings.Join(own, "\n"))
	fmt.Fprintf(&b, "\n# %d modules\n%s\n", len(modules), strings.Join(modules, "\n"))
	return b.Bytes(), nil
}
