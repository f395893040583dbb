// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command release builds what users install, without a container engine and without a base image. Run it from the repository's root, as the
// Makefile does:
//
//	release images [flags] [BINARY...]   images alone, of any commit
//	release push   [flags] [BINARY...]   sends what is in -out to -registry: images with their module lists as referrers, and the chart if there is one; what
//	                                     was pushed is listed alongside the folder, by digest, for programs that sign
//	release all    [flags]               everything that a tagged release has: docs/RELEASING.md
//	release check  [flags]               builds a release again in another folder, compares each byte, and runs its programs
//	release debian [flags]               writes hack/release/debian.txt again with the versions that Debian has now; it needs apt
//
// An image is one static binary and nothing else, for linux/amd64 and linux/arm64: BINARY.tar is an OCI archive, BINARY.ARCH.spdx.json lists
// the modules that the binary is made of and their licenses, and digests.txt names each image by its digest, one on a line. Every byte follows
// from the commit, the flags and Go's version: the times are the commit's, or SOURCE_DATE_EPOCH, and no path of this machine gets in.
// One image, of [debianBinary], has a layer more: programs and libraries of the packages in debian.txt, which are fetched, compared with
// their checksums, and kept in bin/debian.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// settings are the command, its flags and its arguments.
type settings struct {
	command                      string
	root, out, registry, version string
	// url is where the files of a release are downloaded from, builder who builds it, as a URL, for the statement of provenance.
	url, builder string
	// programs is where check leaves the programs of this machine's platform.
	programs string
	// debianMirror is where Debian's packages are fetched.
	debianMirror string
	binaries     []string
	platforms    []platform
}

// The commands.
const (
	imagesCommand = "images"
	pushCommand   = "push"
	allCommand    = "all"
	checkCommand  = "check"
	debianCommand = "debian"
)

// digestsFile names the images by their digests, in the folder of the archives.
const digestsFile = "digests.txt"

// parse reads the command line. An error is one sentence, or flag.ErrHelp when the flags are printed on out.
func parse(args []string, out io.Writer) (settings, error) {
	s := settings{platforms: []platform{{"linux", "amd64"}, {"linux", "arm64"}}}
	if len(args) == 0 || !slices.Contains([]string{imagesCommand, pushCommand, allCommand, checkCommand, debianCommand}, args[0]) {
		return s, fmt.Errorf("name one of the commands %s, %s, %s, %s and %s first", imagesCommand, pushCommand, allCommand, checkCommand, debianCommand)
	}
	s.command = args[0]
	flags := flag.NewFlagSet("release "+s.command, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // it would say each error twice, and all flags with it
	flags.StringVar(&s.root, "root", ".", "the checkout")
	flags.StringVar(&s.out, "out", "", "folder of what is built (default bin/images, or bin/release/VERSION of a release)")
	flags.StringVar(&s.registry, "registry", defaultRegistry, "registry and folder before the images' names")
	flags.StringVar(&s.version, "version", "v0.0.0-dev", "the version, which is also the tag of images")
	flags.StringVar(&s.url, "url", "", "where the files of a release are downloaded from (default https://MODULE/releases/download/VERSION)")
	flags.StringVar(&s.builder, "builder", "", "URL of who builds, for the statement of provenance (default https://MODULE/hack/release)")
	flags.StringVar(&s.programs, "programs", filepath.Join("bin", "release", "programs"), "where check leaves the programs that run on this machine")
	flags.StringVar(&s.debianMirror, "debian-mirror", cmp.Or(os.Getenv(debianMirrorVariable), debianMirrorDefault), "mirror of Debian, without the archive's name at its end")
	if err := flags.Parse(args[1:]); err != nil {
		flags.SetOutput(out)
		if errors.Is(err, flag.ErrHelp) {
			flags.PrintDefaults()
		}
		return s, err
	}
	if s.out == "" {
		s.out = filepath.Join("bin", "images")
		if s.isRelease() {
			s.out = filepath.Join("bin", "release", s.version)
		}
	}
	known, err := binaries(s.root)
	if err != nil {
		return s, err
	}
	if s.isRelease() && flags.NArg() > 0 {
		return s, fmt.Errorf("a release is of all binaries: leave %q out", flags.Arg(0))
	}
	for _, name := range flags.Args() {
		if !slices.Contains(known, name) {
			return s, fmt.Errorf("%q is not a binary that runs in a cluster: name some of %s, or none for all", name, strings.Join(known, ", "))
		}
	}
	if s.binaries = known; flags.NArg() > 0 {
		s.binaries = slices.Compact(slices.Sorted(slices.Values(flags.Args())))
	}
	return s, nil
}

// isRelease reports whether the command is about a whole release.
func (s settings) isRelease() bool { return s.command == allCommand || s.command == checkCommand }

// binaries lists what runs in a cluster, sorted: every folder of cmd with a program, but for kubectl's plugins.
func binaries(root string) ([]string, error) {
	names, err := commands(root)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return isPlugin(name) })
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no cmd/BINARY/main.go: run this in a checkout, as make images does", root)
	}
	return names, nil
}

// plugins lists kubectl's plugins, sorted.
func plugins(root string) ([]string, error) {
	names, err := commands(root)
	return slices.DeleteFunc(names, func(name string) bool { return !isPlugin(name) }), err
}

func isPlugin(name string) bool { return strings.HasPrefix(name, pluginPrefix) }

// commands lists the folders of cmd with a program.
func commands(root string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	var names []string
	for _, main := range mains {
		names = append(names, filepath.Base(filepath.Dir(main)))
	}
	return names, err
}

// run does what args say, and prints one line for each image, or for what it has found.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch s.command {
	case allCommand:
		return s.release(ctx, out)
	case checkCommand:
		return s.check(ctx, out)
	case debianCommand:
		return s.refreshDebian(ctx, out, time.Now())
	case pushCommand:
		return s.written(out, pushedFile(s.out), func(done func(string)) error { return s.send(ctx, done) })
	}
	from, err := s.source(ctx)
	if err != nil {
		return err
	}
	return s.written(out, filepath.Join(s.out, digestsFile), func(done func(string)) error { return s.build(ctx, from, done) })
}

// pushedFile names what was pushed by its digests. It is alongside the folder of the archives, which a push does not change.
func pushedFile(folder string) string { return filepath.Clean(folder) + ".pushed.txt" }

// written prints the images that work hands on, and writes their list once all are done.
func (s settings) written(out io.Writer, list string, work func(done func(string)) error) error {
	var digests strings.Builder
	if err := work(func(reference string) {
		fmt.Fprintln(&digests, reference)
		fmt.Fprintln(out, reference)
	}); err != nil {
		return err
	}
	return replace(list, []byte(digests.String()))
}

// source looks at the names that images will have, makes the folder and reads the checkout.
func (s settings) source(ctx context.Context) (source, error) {
	for _, binary := range s.binaries {
		if _, err := s.tag(binary, s.version); err != nil {
			return source{}, err
		}
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return source{}, fmt.Errorf("making the folder of the archives: %w", err)
	}
	return readSource(ctx, s.root, s.version)
}

// build writes the archive and the module lists of each binary, and hands each image's name with its digest to done.
func (s settings) build(ctx context.Context, from source, done func(string)) error {
	for _, binary := range s.binaries {
		digest, err := s.one(ctx, from, binary)
		if err != nil {
			return fmt.Errorf("the image of %s: %w", binary, err)
		}
		done(s.signable(binary, digest))
	}
	return nil
}

// tag is the name of a binary's image. An error is one sentence about the registry or the version.
func (s settings) tag(binary, version string) (name.Tag, error) {
	tag, err := name.NewTag(s.registry + "/" + binary + ":" + version)
	if err != nil {
		return tag, fmt.Errorf("registry %q and version %q make no name of an image: %w", s.registry, version, err)
	}
	return tag, nil
}

// signable is the name of a binary's image by its digest, as programs that sign want it.
func (s settings) signable(binary, digest string) string {
	return s.registry + "/" + binary + "@" + digest
}

// one writes the archive and the module lists of a binary, and returns the digest of its index.
func (s settings) one(ctx context.Context, from source, binary string) (string, error) {
	about, err := from.about(ctx, binary)
	if err != nil {
		return "", err
	}
	var programs []program
	for _, p := range s.platforms {
		built, err := from.compile(ctx, binary, p)
		if err != nil {
			return "", err
		}
		if built.debian, err = s.debianOf(ctx, binary, p); err != nil {
			return "", err
		}
		list, err := modules(about, built)
		if err != nil {
			return "", err
		}
		if err := replace(filepath.Join(s.out, modulesFile(binary, p.arch)), list); err != nil {
			return "", err
		}
		programs = append(programs, built)
	}
	index, err := assemble(about, programs)
	if err != nil {
		return "", err
	}
	if err := writeArchive(filepath.Join(s.out, archiveFile(binary)), about.time, func(to layout.Path) error {
		return to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: about.version}))
	}); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// archiveFile is the name of a binary's archive in the folder of the archives.
func archiveFile(binary string) string { return binary + ".tar" }

// modulesFile is the name of the list of the modules that a binary is made of on one architecture.
func modulesFile(binary, arch string) string { return binary + "." + arch + ".spdx.json" }

// replace writes a file so that at no time there is half of it under its name.
func replace(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o644); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	return os.Rename(part, path)
}
