// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// debianRelease is Debian's release by its name, and debianKeys what signs its lists of packages.
const (
	debianRelease = "bookworm"
	debianKeys    = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// refreshDebian writes hack/release/debian.txt with the versions that Debian has now.
func (s settings) refreshDebian(ctx context.Context, out io.Writer, now time.Time) error {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	list, err := newDebianList(ctx, aptFolder{dir: dir, mirror: s.debianMirror}, s.platforms, now)
	if err != nil {
		return err
	}
	if err := replace(debianListFile(s.root), []byte(list.render())); err != nil {
		return err
	}
	for _, p := range list.packages {
		fmt.Fprintln(out, p)
	}
	return nil
}

// newDebianList asks apt for the packages.
func newDebianList(ctx context.Context, apt aptFolder, platforms []platform, now time.Time) (debianList, error) {
	list := debianList{day: now.UTC().Truncate(24 * time.Hour)}
	var names []string
	for _, wanted := range debianContents() {
		names = append(names, wanted.name)
	}
	for _, p := range platforms {
		if _, err := apt.run(ctx, p.arch, "apt-get", "-q", "update"); err != nil {
			return list, fmt.Errorf("fetching Debian's lists for %s: %w", p.arch, err)
		}
		text, err := apt.run(ctx, p.arch, "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
		if err != nil {
			return list, fmt.Errorf("looking up packages for %s: %w", p.arch, err)
		}
		for stanza := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			one, err := parseStanza(stanza)
			if err != nil {
				return list, err
			}
			list.packages = append(list.packages, one)
		}
		if _, err := list.of(p.arch); err != nil {
			return list, err
		}
	}
	return list, nil
}

// parseStanza reads what apt says of a package.
func parseStanza(stanza string) (debianPackage, error) {
	fields := map[string]string{}
	for line := range strings.Lines(stanza) {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
			fields[name] = strings.TrimSpace(value)
		}
	}
	p := debianPackage{
		name: fields["Package"], arch: fields["Architecture"], version: fields["Version"], source: fields["Package"], sourceVersion: fields["Version"],
		path: "debian/" + fields["Filename"], sum: fields["SHA256"],
	}
	if strings.HasPrefix(fields["Filename"], "pool/updates/") { // as only the archive of security updates has it
		p.path = "debian-security/" + fields["Filename"]
	}
	if source := strings.Fields(fields["Source"]); len(source) > 0 { // NAME, or NAME (VERSION) where it is not the package's own
		if p.source = source[0]; len(source) > 1 {
			p.sourceVersion = strings.Trim(source[1], "()")
		}
	}
	size, err := strconv.ParseInt(fields["Size"], 10, 64)
	if err != nil || p.name == "" || p.version == "" || p.sum == "" || fields["Filename"] == "" {
		return p, fmt.Errorf("apt says too little of a package: %q", stanza)
	}
	p.size = size
	return p, nil
}

// aptFolder is a folder with lists of packages of its own, so that apt changes nothing on this machine and ignores everything that is
// installed on it. How apt reaches a mirror is as this machine has it. Debian's keys must be here, as on every Debian.
type aptFolder struct{ dir, mirror string }

// run runs a program of apt for one architecture.
func (a aptFolder) run(ctx context.Context, arch, program string, args ...string) (string, error) {
	var sources strings.Builder
	for _, suite := range []string{"debian " + debianRelease, "debian " + debianRelease + "-updates", "debian-security " + debianRelease + "-security"} {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s/%s main\n", debianKeys, strings.TrimSuffix(a.mirror, "/"), suite)
	}
	at := func(name string) string { return filepath.Join(a.dir, arch, name) }
	for _, folder := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(at(folder), 0o755); err != nil {
			return "", err
		}
	}
	for name, content := range map[string]string{"sources.list": sources.String(), "status": ""} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	var options []string
	for _, option := range []string{
		"Dir::State=" + at(""), "Dir::State::status=" + at("status"), "Dir::Cache=" + at("cache"), "Dir::Etc::sourcelist=" + at("sources.list"),
		"Dir::Etc::sourceparts=" + os.DevNull, "Dir::Etc::preferences=" + os.DevNull, "Dir::Etc::preferencesparts=" + os.DevNull,
		"APT::Architecture=" + arch, "APT::Architectures::=" + arch, "APT::Sandbox::User=", "Acquire::Languages=none",
	} {
		options = append(options, "-o", option)
	}
	return source{root: a.dir}.output(ctx, program, append(options, args...)...)
}
