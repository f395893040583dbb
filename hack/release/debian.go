// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// debianBinary is the one program that runs other programs: its node plugin makes, checks and grows file systems. Its image has a second layer with them.
const debianBinary = "digitalocean-csi-driver"

// debianUser is the user of an image with programs of Debian: the node plugin mounts, and manifests of csi-digitalocean name no user. Our manifest of the
// controller names the user of all other images.
const debianUser = "0:0"

// debianPath is where the programs of such an image are looked for, in this order.
const debianPath = "/bin:/usr/sbin:/sbin"

// debianWanted is a package and what an image takes of it. Libraries need not be named: what a program needs is taken from any package of the list.
type debianWanted struct {
	name string
	// license is that of the files that are taken, in SPDX's words, by the package's copyright file, which is in the image.
	license string
	files   []string
}

// debianContents lists the packages of the layer. A package of which nothing is taken is refused, and so is a library that none of them holds.
func debianContents() []debianWanted {
	return []debianWanted{
		{"base-files", "GPL-2.0-or-later", []string{"etc/debian_version", "etc/os-release"}}, // by which scanners know Debian; it also has the texts of licenses
		{"e2fsprogs", "GPL-2.0-only", []string{"etc/mke2fs.conf", "sbin/e2fsck", "sbin/fsck.ext4", "sbin/mkfs.ext4", "sbin/resize2fs"}},
		{"gcc-12-base", "GPL-3.0-or-later WITH GCC-exception-3.1", nil}, // the copyright file of libgcc-s1
		{"libblkid1", "LGPL-2.1-or-later", nil},
		{"libc6", "LGPL-2.1-or-later", nil},
		{"libcom-err2", "GPL-2.0-only", nil},
		{"libext2fs2", "LGPL-2.0-only", nil},
		{"libgcc-s1", "GPL-3.0-or-later WITH GCC-exception-3.1", nil},
		{"libinih1", "BSD-3-Clause", nil},
		{"liburcu8", "LGPL-2.1-or-later AND MIT", nil},
		{"libuuid1", "BSD-3-Clause", nil},
		{"util-linux", "GPL-2.0-or-later", []string{"sbin/blkdiscard", "sbin/blkid"}},
		{"xfsprogs", "GPL-2.0-only AND LGPL-2.1-only", []string{"sbin/mkfs.xfs", "sbin/xfs_repair", "usr/sbin/xfs_growfs"}},
	}
}

// debianPackage is one line of the list: a file of Debian's archive.
type debianPackage struct {
	name, arch, version string
	// source and sourceVersion are the source package.
	source, sourceVersion string
	// path is below a mirror, with the archive before: debian or debian-security.
	path string
	size int64
	// sum is the SHA-256 in hexadecimal.
	sum string
}

// String names the package for people.
func (p debianPackage) String() string { return p.name + " " + p.version + " for " + p.arch }

// debianList is hack/release/debian.txt.
type debianList struct {
	// day is when the list was written, in UTC, and the time of the files in the layer.
	day      time.Time
	packages []debianPackage
}

// debianListFile is the list of packages in the checkout.
func debianListFile(root string) string { return filepath.Join(root, "hack", "release", "debian.txt") }

const debianListHead = `# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# The packages of Debian 12 that the image of digitalocean-csi-driver takes files of. Written by make debian: do not edit.
# package, architecture, version, source package, its version, path on a mirror, bytes, SHA-256

`

// render writes the list as parseDebianList reads it.
func (l debianList) render() string {
	var out strings.Builder
	out.WriteString(debianListHead)
	fmt.Fprintln(&out, "day", l.day.Format(time.DateOnly))
	for _, p := range l.packages {
		fmt.Fprintln(&out, p.name, p.arch, p.version, p.source, p.sourceVersion, p.path, p.size, p.sum)
	}
	return out.String()
}

// parseDebianList reads the list. An error names the line.
func parseDebianList(text string) (debianList, error) {
	var l debianList
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		bad := func(what string) error {
			return fmt.Errorf("line %d of hack/release/debian.txt %s: write the list again with make debian", number+1, what)
		}
		if words[0] == "day" && len(words) == 2 {
			day, err := time.Parse(time.DateOnly, words[1])
			if err != nil {
				return l, bad("has no day of the form " + time.DateOnly)
			}
			l.day = day
			continue
		}
		if len(words) != 8 {
			return l, bad("does not have eight columns")
		}
		p := debianPackage{name: words[0], arch: words[1], version: words[2], source: words[3], sourceVersion: words[4], path: words[5], sum: words[7]}
		size, err := strconv.ParseInt(words[6], 10, 64)
		if err != nil || size <= 0 {
			return l, bad("has no size")
		}
		p.size = size
		if len(p.sum) != 64 || !filepath.IsLocal(p.path) {
			return l, bad("has no SHA-256 or no path below a mirror")
		}
		l.packages = append(l.packages, p)
	}
	if l.day.IsZero() {
		return l, errors.New("hack/release/debian.txt has no line that begins with day: write the list again with make debian")
	}
	return l, nil
}

// of returns the packages of one architecture, which must be those of debianContents.
func (l debianList) of(arch string) ([]debianPackage, error) {
	var found []debianPackage
	for _, wanted := range debianContents() {
		i := slices.IndexFunc(l.packages, func(p debianPackage) bool { return p.name == wanted.name && p.arch == arch })
		if i < 0 {
			return nil, fmt.Errorf("hack/release/debian.txt lacks %s for %s: write the list again with make debian", wanted.name, arch)
		}
		found = append(found, l.packages[i])
	}
	return found, nil
}

// debianLayer is what an image has of Debian.
type debianLayer struct {
	// content is the layer, not compressed.
	content  []byte
	day      time.Time
	packages []debianPackage
}

// debianOf returns what the image of a binary has of Debian: nil for all but one.
func (s settings) debianOf(ctx context.Context, binary string, p platform) (*debianLayer, error) {
	if binary != debianBinary {
		return nil, nil
	}
	text, err := os.ReadFile(debianListFile(s.root))
	if err != nil {
		return nil, err
	}
	list, err := parseDebianList(string(text))
	if err != nil {
		return nil, err
	}
	return list.layer(ctx, p.arch, debianSource{mirror: s.debianMirror, archive: debianSnapshots, day: list.day, cache: debianCache})
}

// layer makes the layer for one architecture. It follows from the list alone.
func (l debianList) layer(ctx context.Context, arch string, from debianSource) (*debianLayer, error) {
	packages, err := l.of(arch)
	if err != nil {
		return nil, err
	}
	t := newDebianTree(arch)
	for _, p := range packages {
		content, err := from.get(ctx, p)
		if err != nil {
			return nil, err
		}
		if err := t.add(p, content); err != nil {
			return nil, fmt.Errorf("reading the package %s: %w", p, err)
		}
	}
	if err := t.choose(debianContents()); err != nil {
		return nil, err
	}
	content, err := t.render(l.day)
	return &debianLayer{content: content, day: l.day, packages: packages}, err
}
