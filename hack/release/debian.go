// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A volume's file systems are made, checked and grown by programs of Debian. debian.txt names the packages by their checksums, so that an image follows from the
// commit; which files of them are in the image follows from the programs, whose libraries are found as the dynamic linker finds them.

const (
	// withTools is the binary whose image has them. Its node plugin mounts, so that it runs as root; the controller's manifest says another user.
	withTools = "digitalocean-csi-driver"
	// lockFile is the list of packages, from the root.
	lockFile = "hack/release/debian.txt"
	// debianRelease is in the package URLs of the list of modules.
	debianRelease = "bookworm"
	// longestDownload bounds one package.
	longestDownload = 2 * time.Minute
	// largestPackage bounds what is read of one, in bytes.
	largestPackage = 64 << 20
)

// deb is one package for one architecture, in Debian's words, which are Go's for those that we build for.
type deb struct{ arch, sum, path string }

// name and version are in the file's name, NAME_VERSION_ARCH.deb, of which the version has no epoch.
func (d deb) name() string    { return strings.Split(path.Base(d.path), "_")[0] }
func (d deb) version() string { return strings.Split(path.Base(d.path), "_")[1] }

// readLock reads the list of packages, and the snapshot that has them for ever.
func readLock(root string) (all []deb, snapshot string, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(lockFile)))
	if err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "#" && words[1] == "snapshot" {
			snapshot = words[2]
		}
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(words) != 3 || len(words[1]) != 2*sha256.Size {
			return nil, "", fmt.Errorf("%s: %q is no architecture, checksum and path", lockFile, line)
		}
		unescaped, err := url.PathUnescape(words[2])
		if err != nil || strings.Count(path.Base(unescaped), "_") != 2 {
			return nil, "", fmt.Errorf("%s: %q is no path of a package", lockFile, words[2])
		}
		all = append(all, deb{words[0], words[1], unescaped})
	}
	if len(all) == 0 || snapshot == "" {
		return nil, "", fmt.Errorf("%s names no packages, or no snapshot", lockFile)
	}
	return all, snapshot, nil
}

// addresses are where a package is, those first that answer fast. What comes is compared with the checksum, so that it does not matter who answers.
func (d deb) addresses(snapshot string) []string {
	archive, rest, _ := strings.Cut(d.path, "/")
	escaped := strings.ReplaceAll((&url.URL{Path: rest}).EscapedPath(), "+", "%2b")
	return []string{
		"http://deb.debian.org/" + archive + "/" + escaped,
		"http://snapshot.debian.org/archive/" + archive + "/" + snapshot + "/" + escaped,
	}
}

// read returns a package from the cache, or downloads it.
func (d deb) read(ctx context.Context, cache, snapshot string) ([]byte, error) {
	file := filepath.Join(cache, d.sum)
	if content, err := os.ReadFile(file); err == nil && d.matches(content) {
		return content, nil
	}
	var problems []error
	for _, address := range d.addresses(snapshot) {
		content, err := download(ctx, address)
		if err == nil && !d.matches(content) {
			err = fmt.Errorf("%s is not the file with the SHA-256 %s", address, d.sum)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		return content, keep(cache, file, content)
	}
	return nil, fmt.Errorf("package %s %s of %s is nowhere; run hack/release/debian.sh for newer ones: %w", d.name(), d.version(), lockFile, errors.Join(problems...))
}

// keep writes a file of the cache, which other builds may do at the same time.
func keep(cache, file string, content []byte) error {
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return err
	}
	part, err := os.CreateTemp(cache, "part-")
	if err != nil {
		return err
	}
	_, err = part.Write(content)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		_ = os.Remove(part.Name())
	}
	return err
}

func (d deb) matches(content []byte) bool {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]) == d.sum
}

func download(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, longestDownload)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, largestPackage))
}

// cacheFolder keeps packages between builds: it holds nothing but what checksums name.
func cacheFolder() string {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	return filepath.Join(folder, "mooring-debian")
}

// files returns the tar of a package's files. A package is an archive of ar (deb(5)).
func (d deb) files(ctx context.Context, content []byte) ([]byte, error) {
	const magic, header = "!<arch>\n", 60
	rest, found := bytes.CutPrefix(content, []byte(magic))
	for found && len(rest) >= header {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || header+size > len(rest) {
			return nil, fmt.Errorf("package %s is no archive: a part has the size %q", d.name(), rest[48:58])
		}
		part := rest[header : header+size]
		switch name {
		case "data.tar":
			return part, nil
		case "data.tar.xz", "data.tar.zst":
			return expand(ctx, map[string]string{".xz": "xz", ".zst": "zstd"}[path.Ext(name)], part)
		}
		rest = rest[min(len(rest), header+size+size%2):]
	}
	return nil, fmt.Errorf("package %s has no files", d.name())
}

func expand(ctx context.Context, program string, content []byte) ([]byte, error) {
	command := exec.CommandContext(ctx, program, "--decompress", "--stdout")
	var out, complaint bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(content), &out, &complaint
	err := command.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the program %s is missing, which packages of Debian are compressed with: install it", program)
	}
	if err != nil {
		return nil, errors.New(program + ": " + cmp.Or(strings.TrimSpace(complaint.String()), err.Error()))
	}
	return out.Bytes(), nil
}

// spdxDeb describes a package as scanners look it up.
func spdxDeb(d deb) spdxPackage {
	out := spdxModule("deb/"+d.name(), d.version())
	out.Name = d.name()
	out.Checksums = []spdxChecksum{{"SHA256", d.sum}}
	out.DownloadLocation = d.addresses("")[0]
	out.SourceInfo = "its license is in the image, /usr/share/doc/" + d.name() + "/copyright"
	version := strings.ReplaceAll(url.PathEscape(d.version()), "+", "%2B")
	out.ExternalRefs = []spdxExternalRef{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", d.name(), version, d.arch, debianRelease)}}
	return out
}
