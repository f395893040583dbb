// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command images builds the images of the binaries that run in a cluster, without a container engine and without a base image: one static binary
// and nothing else, for linux/amd64 and linux/arm64. Run it from the repository's root as `make images` does.
//
// For each binary it writes, into the folder -out, BINARY.tar, an OCI archive, and BINARY.ARCH.spdx.json, a list of the modules that the binary is
// made of, as the binary itself tells. digests.txt there names each image by its digest, one on a line, for whoever signs them. Every byte follows
// from the commit, from -version and from Go's version: the times are the commit's, or SOURCE_DATE_EPOCH, and no path of this machine gets in.
//
// With -push it builds nothing, and sends what is in -out to -registry, with the module lists as referrers of the images.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// settings are the flags and arguments.
type settings struct {
	root, out, registry, version string
	push                         bool
	binaries                     []string
	platforms                    []platform
}

// digestsFile names the images by their digests, in the folder of the archives.
const digestsFile = "digests.txt"

// parse reads the command line. An error is one sentence, or flag.ErrHelp when the flags are printed on out.
func parse(args []string, out io.Writer) (settings, error) {
	s := settings{platforms: []platform{{"linux", "amd64"}, {"linux", "arm64"}}}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // it would say each error twice, and all flags with it
	flags.StringVar(&s.root, "root", ".", "the checkout")
	flags.StringVar(&s.out, "out", filepath.Join("bin", "images"), "folder of the archives")
	flags.StringVar(&s.registry, "registry", "mooring", "registry and folder before the images' names")
	flags.StringVar(&s.version, "version", "v0.0.0-dev", "the images' version, which is also their tag")
	flags.BoolVar(&s.push, "push", false, "push the archives that are built instead of building them")
	if err := flags.Parse(args); err != nil {
		flags.SetOutput(out)
		if errors.Is(err, flag.ErrHelp) {
			flags.PrintDefaults()
		}
		return s, err
	}
	known, err := binaries(s.root)
	if err != nil {
		return s, err
	}
	for _, name := range flags.Args() {
		if !slices.Contains(known, name) {
			return s, fmt.Errorf("%q is no binary that runs in a cluster: name some of %s, or none for all", name, strings.Join(known, ", "))
		}
	}
	if s.binaries = known; flags.NArg() > 0 {
		s.binaries = slices.Compact(slices.Sorted(slices.Values(flags.Args())))
	}
	return s, nil
}

// withoutImage is a program whose node plugin needs mkfs, e2fsck, resize2fs and xfs_growfs beside it: an image of one binary would not work.
const withoutImage = "digitalocean-csi-driver"

// binaries lists what runs in a cluster, sorted: every folder of cmd with a program, but for kubectl's plugins and what cannot be an image of one binary.
func binaries(root string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, main := range mains {
		if name := filepath.Base(filepath.Dir(main)); !strings.HasPrefix(name, "kubectl-") && name != withoutImage {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no cmd/BINARY/main.go: run this in a checkout, as make images does", root)
	}
	return names, nil
}

// run builds or pushes what args say, and prints one line for each image.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	work := s.build
	if s.push {
		work = s.send
	}
	var digests strings.Builder
	if err := work(ctx, func(reference string) {
		fmt.Fprintln(&digests, reference)
		fmt.Fprintln(out, reference)
	}); err != nil {
		return err
	}
	return replace(filepath.Join(s.out, digestsFile), []byte(digests.String()))
}

// build writes the archive and the module lists of each binary, and hands each image's name with its digest to done.
func (s settings) build(ctx context.Context, done func(string)) error {
	for _, binary := range s.binaries {
		if _, err := s.tag(binary, s.version); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the archives: %w", err)
	}
	from, err := readSource(ctx, s.root, s.version)
	if err != nil {
		return err
	}
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
	if err := writeArchive(filepath.Join(s.out, archiveFile(binary)), index, about); err != nil {
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
