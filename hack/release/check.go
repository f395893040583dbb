// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// check proves a release: its checksums hold, the tag makes the same bytes in another folder, and its programs run and say their version. The programs stay
// in -programs, for who starts them in a cluster.
func (s settings) check(ctx context.Context, out io.Writer) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("this machine runs %s, and images are for linux: check the release on a Linux machine", runtime.GOOS)
	}
	if err := s.checkSums(); err != nil {
		return err
	}
	fmt.Fprintln(out, "the checksums hold")
	if err := s.checkAgain(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "another folder makes the same bytes")
	return s.checkPrograms(ctx, out)
}

// checkSums compares the files with the list of checksums: no other byte, no file more or less.
func (s settings) checkSums() error {
	list, err := os.ReadFile(filepath.Join(s.out, sumsFile))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no release in %s: make release VERSION=%s first", s.out, s.version)
	}
	if err != nil {
		return err
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	have, err := sumsOf(s.out)
	if err != nil {
		return err
	}
	return compare("the folder", have, sumsFile, want)
}

// compare refuses a release of which a file differs. An error names the first one.
func compare(what string, have map[string]string, other string, want map[string]string) error {
	for _, name := range sortedKeys(have) {
		if want[name] == "" {
			return fmt.Errorf("%s holds %s, which %s does not: remove it, or make the release again", what, name, other)
		}
		if want[name] != have[name] {
			return fmt.Errorf("%s is not the same in %s and in %s: make the release again", name, what, other)
		}
	}
	for _, name := range sortedKeys(want) {
		if have[name] == "" {
			return fmt.Errorf("%s lacks %s, which %s holds: make the release again", what, name, other)
		}
	}
	return nil
}

// checkAgain makes the release again from a clone of the tag.
func (s settings) checkAgain(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	from := source{root: s.root}
	clone := filepath.Join(dir, "another", "folder")
	where, err := filepath.Abs(s.root)
	if err != nil {
		return err
	}
	const quiet = "advice.detachedHead=false"
	if _, err := from.output(ctx, "git", "-c", quiet, "clone", "-q", "--branch", s.version, where, clone); err != nil {
		return fmt.Errorf("cloning the tag %s: %w", s.version, err)
	}
	again := s
	again.root, again.out = clone, filepath.Join(dir, "release")
	if err := again.asBefore(ctx, s.out); err != nil {
		return err
	}
	if err := again.release(ctx, io.Discard); err != nil {
		return fmt.Errorf("making the release again: %w", err)
	}
	have, err := sumsOf(s.out)
	if err != nil {
		return err
	}
	want, err := sumsOf(again.out)
	if err != nil {
		return err
	}
	return compare("the release", have, "one made in another folder", want)
}

// asBefore refuses to make a release again with other parameters than the one in a folder, which would not be the same bytes.
func (s settings) asBefore(ctx context.Context, folder string) error {
	made, err := readProvenance(folder)
	if err != nil {
		return err
	}
	from, err := readSource(ctx, s.root, s.version)
	if err != nil {
		return err
	}
	now := s.statement(from)
	for _, p := range []struct{ name, made, now, cure string }{
		{"VERSION", made.external(versionParameter), now.external(versionParameter), "give the same VERSION"},
		{"REGISTRY", made.external(registryParameter), now.external(registryParameter), "give the same REGISTRY"},
		{"RELEASE_URL", made.external(urlParameter), now.external(urlParameter), "give the same RELEASE_URL"},
		{"BUILDER", made.Predicate.RunDetails.Builder.ID, now.Predicate.RunDetails.Builder.ID, "give the same BUILDER"},
		{"Go", made.internal(goParameter), now.internal(goParameter), "use the same version of Go"},
		{"SOURCE_DATE_EPOCH", made.internal(timeParameter), now.internal(timeParameter), "give the same SOURCE_DATE_EPOCH, or none for the commit's time"},
	} {
		if p.made != p.now {
			return fmt.Errorf("the release in %s was made with %s %s, not %s: %s, or make the release again", folder, p.name, p.made, p.now, p.cure)
		}
	}
	return nil
}

// checkPrograms unpacks what runs on this machine and has it say its version.
func (s settings) checkPrograms(ctx context.Context, out io.Writer) error {
	if err := errors.Join(os.RemoveAll(s.programs), os.MkdirAll(s.programs, 0o755)); err != nil {
		return err
	}
	here := platform{runtime.GOOS, runtime.GOARCH}
	names, err := plugins(s.root)
	if err != nil {
		return err
	}
	for _, name := range append(names, s.binaries...) {
		read := s.programOf
		if isPlugin(name) {
			read = s.pluginOf
		}
		content, err := read(name, here)
		if err != nil {
			return err
		}
		path, err := filepath.Abs(filepath.Join(s.programs, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // a program, which pods run as another user
			return err
		}
		said, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(said), " "+s.version+" (commit ") {
			return fmt.Errorf("%s --version is %q, %w: make the release again", name, strings.TrimSpace(string(said)), errors.Join(err, errNotThisVersion))
		}
		fmt.Fprint(out, string(said))
	}
	return nil
}

// errNotThisVersion completes a sentence.
var errNotThisVersion = errors.New("which is not the release's")

// programOf reads a program off its image's archive.
func (s settings) programOf(binary string, p platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	index, _, err := readArchive(filepath.Join(s.out, archiveFile(binary)), dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, one := range manifest.Manifests {
		if one.Platform.OS != p.os || one.Platform.Architecture != p.arch {
			continue
		}
		image, err := index.Image(one.Digest)
		if err != nil {
			return nil, err
		}
		layers, err := image.Layers()
		if err != nil {
			return nil, err
		}
		content, err := layers[len(layers)-1].Uncompressed()
		if err != nil {
			return nil, err
		}
		defer content.Close()
		return fileOf(content, "bin/"+binary)
	}
	return nil, fmt.Errorf("the image of %s is not for %s/%s", binary, p.os, p.arch)
}

// pluginOf reads a plugin off its archive.
func (s settings) pluginOf(plugin string, p platform) ([]byte, error) {
	archive, err := os.ReadFile(filepath.Join(s.out, pluginArchive(plugin, s.version, p)))
	if err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	return fileOf(plain, pluginFile(plugin, p))
}

// fileOf reads one file of a tar.
func fileOf(archive io.Reader, name string) ([]byte, error) {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", name, err)
		}
		if header.Name == name {
			return io.ReadAll(r)
		}
	}
}
