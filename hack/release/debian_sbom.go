// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// list describes the packages as SPDX has them. Of no layer, nil, there is none.
func (l *debianLayer) list() []spdxPackage {
	if l == nil {
		return nil
	}
	var all []spdxPackage
	for _, p := range l.packages {
		all = append(all, spdxPackage{
			SPDXID: "SPDXRef-deb-" + notInID.ReplaceAllString(p.name, "-"), Name: p.name, VersionInfo: p.version, PrimaryPurpose: "LIBRARY",
			PackageFileName:  p.path[strings.LastIndex(p.path, "/")+1:],
			DownloadLocation: p.permanent(debianSnapshots, l.day), Checksums: []spdxChecksum{{"SHA256", p.sum}},
			SourceInfo: fmt.Sprintf("some files of this package of Debian; its source is %s %s, %s/package/%s/%s/",
				p.source, p.sourceVersion, debianSnapshots, p.source, url.PathEscape(p.sourceVersion)),
			LicenseDeclared: p.license(), LicenseComments: "all authors and licenses are in /usr/share/doc/" + p.name + "/copyright of the image",
			ExternalRefs: []spdxExternalRef{{"PACKAGE-MANAGER", "purl", p.url()}},
		})
	}
	return all
}

// license is that of what is taken of the package.
func (p debianPackage) license() string {
	all := debianContents()
	return all[slices.IndexFunc(all, func(w debianWanted) bool { return w.name == p.name })].license
}

// url names the package as scanners look it up (https://github.com/package-url/purl-spec, type deb).
func (p debianPackage) url() string {
	escape := func(text string) string {
		return strings.NewReplacer("+", "%2B", ":", "%3A").Replace(url.PathEscape(text))
	}
	return "pkg:deb/debian/" + escape(p.name) + "@" + escape(p.version) + "?arch=" + p.arch + "&distro=" + debianRelease
}

// comment names the packages in the history of the image.
func (l *debianLayer) comment() string {
	var names []string
	for _, p := range l.packages {
		names = append(names, p.name+" "+p.version)
	}
	return "of Debian 12: " + strings.Join(names, ", ")
}

// licensesOf are those of a binary's image, as one expression: our own, and those of Debian's packages.
func licensesOf(binary string) string {
	all := []string{"Apache-2.0"}
	if binary == debianBinary {
		for _, w := range debianContents() {
			all = append(all, strings.Split(w.license, " AND ")...)
		}
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), " AND ")
}

// debianNotices says where the licenses of Debian's packages are, if one of the images has them.
func debianNotices(binaries []string) []byte {
	var out strings.Builder
	if slices.Contains(binaries, debianBinary) {
		for _, w := range debianContents() {
			fmt.Fprintf(&out, "%s\nDebian's package %s in the image of %s: %s\n\nThe texts are in the image: /usr/share/doc/%s/copyright, and what it refers to.\n\n",
				strings.Repeat("=", 80), w.name, debianBinary, w.license, w.name)
		}
	}
	return []byte(out.String())
}
