// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	sumsFile  = "SHA256SUMS"
	notesFile = "RELEASE_NOTES.md"
)

// release writes all files of a release into -out, which appears when it is whole.
func (s settings) release(ctx context.Context, out io.Writer) error {
	if err := s.mayBeReleased(ctx); err != nil {
		return err
	}
	whole := s.out
	s.out = whole + ".part"
	if err := os.RemoveAll(s.out); err != nil {
		return err
	}
	from, err := s.source(ctx)
	if err != nil {
		return err
	}
	if err := s.writeAll(ctx, from); err != nil {
		return err
	}
	if err := os.RemoveAll(whole); err != nil {
		return err
	}
	if err := os.Rename(s.out, whole); err != nil {
		return err
	}
	return printSizes(out, whole)
}

// writeAll writes all files, those last that name others.
func (s settings) writeAll(ctx context.Context, from source) error {
	if err := s.written(io.Discard, filepath.Join(s.out, digestsFile), func(done func(string)) error { return s.build(ctx, from, done) }); err != nil {
		return err
	}
	programs, err := s.writePlugins(ctx, from)
	if err != nil {
		return err
	}
	notices, err := s.noticesOfImages(ctx, from, programs)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(s.out, noticesFile), notices); err != nil {
		return err
	}
	for _, write := range []func(context.Context, source) error{s.writeChart, s.writeManifests, s.writeNotes, s.writeProvenance, s.writeSums} {
		if err := write(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

// noticesOfImages are the licenses of what is in images and plugins. What is in an image is read off its archive, as users would.
func (s settings) noticesOfImages(_ context.Context, from source, programs []program) ([]byte, error) {
	for _, binary := range s.binaries {
		for _, p := range s.platforms {
			content, err := s.programOf(binary, p)
			if err != nil {
				return nil, err
			}
			built, err := parseProgram(content, p)
			if err != nil {
				return nil, err
			}
			programs = append(programs, built)
		}
	}
	return append(from.licenses.notices(programs), debianNotices(s.binaries)...), nil
}

// isVersion matches what a release may be called: tags of images and versions of charts take no build metadata alike.
var isVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.\d+)?$`)

// base is a version without what makes it a candidate.
func base(version string) string {
	number, _, _ := strings.Cut(version, "-")
	return number
}

// mayBeReleased refuses, in one sentence, what nobody could build again from the tag alone.
func (s settings) mayBeReleased(ctx context.Context) error {
	if !isVersion.MatchString(s.version) {
		return fmt.Errorf("%q is not a version of a release: set VERSION to one such as v0.1.0 or v0.1.0-rc.1", s.version)
	}
	from := source{root: s.root}
	head, err := from.output(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return noCheckout(s.root, "", err)
	}
	changes, err := from.output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		first, _, _ := strings.Cut(changes, "\n")
		return fmt.Errorf("the tree differs from commit %.12s, first in %q: commit or stash all changes", head, first)
	}
	tags, err := from.output(ctx, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(tags), s.version) {
		return fmt.Errorf("commit %.12s has no tag %s: check out the tag, or make it with git tag --sign %s", head, s.version, s.version)
	}
	text, err := os.ReadFile(filepath.Join(s.root, "internal", "platform", "buildinfo", "source.txt"))
	if err != nil {
		return err
	}
	if made, _, _ := strings.Cut(string(text), "\n"); made != base(s.version) {
		return fmt.Errorf("internal/platform/buildinfo/source.txt names %s as the version that is being made, not %s: change its first line and commit it", made, base(s.version))
	}
	_, err = s.notes()
	return err
}

// notes are the section of the changelog about the version; a candidate may have that of what comes next.
func (s settings) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	number := strings.TrimPrefix(base(s.version), "v")
	wanted := []string{number}
	if base(s.version) != s.version {
		wanted = append(wanted, "Unreleased")
	}
	for _, name := range wanted {
		if found := section(string(text), name); found != "" {
			return found, nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section [%s] with text: cut it from [Unreleased], as docs/RELEASING.md says", number)
}

// section is the text below the heading of a version, without the heading.
func section(changelog, version string) string {
	var out []string
	inside := false
	for line := range strings.SplitSeq(changelog, "\n") {
		switch {
		case strings.HasPrefix(line, "## ["+version+"]"):
			inside = true
		case strings.HasPrefix(line, "## "):
			inside = false
		case inside:
			out = append(out, line)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// writeNotes writes the notes, and which file is for whom.
func (s settings) writeNotes(context.Context, source) error {
	text, err := s.notes()
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(s.out, notesFile), []byte("# Mooring "+s.version+"\n\n"+text+"\n")); err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(s.root, "dist", "README.md"))
	if err != nil {
		return err
	}
	return replace(filepath.Join(s.out, "README.md"), readme)
}

// writeManifests writes the manifests of dist with the release's images, and all custom resource definitions in one file.
func (s settings) writeManifests(context.Context, source) error {
	manifests, err := filepath.Glob(filepath.Join(s.root, "dist", "*.yaml"))
	if err != nil {
		return err
	}
	image := regexp.MustCompile(`\b` + defaultRegistry + `/(` + strings.Join(s.binaries, "|") + `):dev\b`)
	for _, path := range manifests {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		content = image.ReplaceAll(content, []byte(s.registry+"/${1}:"+s.version))
		if err := replace(filepath.Join(s.out, filepath.Base(path)), content); err != nil {
			return err
		}
	}
	kinds, err := filepath.Glob(filepath.Join(s.root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	var all []byte
	for _, path := range kinds {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		all = append(all, content...)
	}
	return replace(filepath.Join(s.out, "crds.yaml"), all)
}

// writeSums writes the checksums of all other files, as sha256sum -c reads them.
func (s settings) writeSums(context.Context, source) error {
	sums, err := sumsOf(s.out)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, name := range sortedKeys(sums) {
		fmt.Fprintf(&out, "%s  %s\n", sums[name], name)
	}
	return replace(filepath.Join(s.out, sumsFile), []byte(out.String()))
}

// sumsOf returns the checksums of the files in a folder by their names, but for the list of them.
func sumsOf(folder string) (map[string]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		if out[entry.Name()], err = sumOf(filepath.Join(folder, entry.Name())); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sumOf returns the checksum of a file, in hexadecimal.
func sumOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// download is the URL of a file of the release.
func (s settings) download(from source, name string) string {
	return cmp.Or(strings.TrimSuffix(s.url, "/"), "https://"+from.module+"/releases/download/"+s.version) + "/" + name
}

// printSizes lists a release.
func printSizes(out io.Writer, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%10d  %s\n", info.Size(), entry.Name())
	}
	return nil
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
