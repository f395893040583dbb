// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// debianTree is what the packages hold together, and which of it is in the layer. Files stay where their packages have them: Debian 12 has
// programs in /sbin and libraries in /lib, and its loader finds both there without the links that make /sbin and /usr/sbin one on an
// installed system.
type debianTree struct {
	arch string
	// all is each file of the packages, chosen what is taken.
	all, chosen map[string]debFile
	controls    map[string][]byte
}

func newDebianTree(arch string) *debianTree {
	return &debianTree{arch: arch, all: map[string]debFile{}, chosen: map[string]debFile{}, controls: map[string][]byte{}}
}

// add puts the files of a package into the tree. No two packages have the same file.
func (t *debianTree) add(p debianPackage, content []byte) error {
	unpacked, err := readDeb(content)
	if err != nil {
		return err
	}
	t.controls[p.name] = unpacked.control
	for name, file := range unpacked.files {
		if other, ok := t.all[name]; ok {
			return fmt.Errorf("it holds /%s, as %s does", name, other.owner)
		}
		file.owner = p.name
		t.all[name] = file
	}
	return nil
}

// commonLicense matches where the copyright file of a package refers to the text of a license.
var commonLicense = regexp.MustCompile(`/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]`)

// choose takes what is wanted with all that it needs, and of each package its license and, as scanners read it in images without dpkg, its
// control file.
func (t *debianTree) choose(wanted []debianWanted) error {
	for _, w := range wanted {
		for _, name := range w.files {
			if _, err := t.take(name, w.name); err != nil {
				return err
			}
		}
	}
	used := map[string]bool{}
	for _, file := range t.chosen {
		used[file.owner] = true
	}
	for _, w := range wanted {
		others, err := t.license(w.name)
		if err != nil {
			return err
		}
		for _, other := range others {
			used[other] = true
		}
		t.chosen["var/lib/dpkg/status.d/"+w.name] = debFile{owner: w.name, mode: 0o644, content: t.controls[w.name]}
	}
	for _, w := range wanted {
		if !used[w.name] {
			return fmt.Errorf("nothing of the package %s is needed: take it from the list in hack/release/debian.go", w.name)
		}
	}
	return nil
}

// license takes the copyright file of a package and the texts that it refers to. It returns the other packages that have them.
func (t *debianTree) license(name string) (others []string, err error) {
	file, err := t.take("usr/share/doc/"+name+"/copyright", name)
	if err != nil {
		return nil, err
	}
	owners := []string{file.owner}
	for _, text := range commonLicense.FindAll(file.content, -1) {
		other, err := t.take(string(text[1:]), name)
		if err != nil {
			return nil, err
		}
		owners = append(owners, other.owner)
	}
	return slices.DeleteFunc(owners, func(owner string) bool { return owner == name }), nil
}

// take takes a file, the links that lead to it, and what it needs to run. by is who needs it.
func (t *debianTree) take(name, by string) (debFile, error) {
	const mostLinks = 40 // as the kernel has it
	for range mostLinks {
		link, rest, found := t.firstLink(name)
		if !found {
			break
		}
		file := t.all[link]
		t.chosen[link] = file
		if !path.IsAbs(file.link) {
			file.link = path.Join("/", path.Dir(link), file.link)
		}
		name = strings.TrimPrefix(path.Join(file.link, rest), "/")
	}
	file, ok := t.all[name]
	if !ok || file.link != "" {
		return file, fmt.Errorf("%s needs /%s, which no package in hack/release/debian.txt holds", by, name)
	}
	if _, again := t.chosen[name]; again {
		return file, nil
	}
	t.chosen[name] = file
	if !bytes.HasPrefix(file.content, []byte(elf.ELFMAG)) {
		return file, nil
	}
	needs, err := t.needs(file.content)
	if err != nil {
		return file, fmt.Errorf("reading /%s of the package %s: %w", name, file.owner, err)
	}
	for _, need := range needs {
		if _, err := t.take(need, "/"+name); err != nil {
			return file, err
		}
	}
	return file, nil
}

// firstLink returns the first part of a path that is a link, and what follows it.
func (t *debianTree) firstLink(name string) (link, rest string, found bool) {
	for end := 1; end <= len(name); end++ {
		if end < len(name) && name[end] != '/' {
			continue
		}
		if t.all[name[:end]].link != "" {
			return name[:end], name[end:], true
		}
	}
	return "", "", false
}

// needs returns the paths of the loader and the libraries that a program or library needs.
func (t *debianTree) needs(content []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	machine, triplet := elf.EM_X86_64, "x86_64-linux-gnu"
	if t.arch == "arm64" {
		machine, triplet = elf.EM_AARCH64, "aarch64-linux-gnu"
	}
	if f.Machine != machine {
		return nil, fmt.Errorf("it is for %s, not for %s", f.Machine, t.arch)
	}
	var needs []string
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(segment.Open())
			if err != nil {
				return nil, err
			}
			needs = append(needs, strings.Trim(string(loader), "/\x00"))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool { return slices.Contains(unwinding(), s.Name) }) {
		libraries = append(libraries, "libgcc_s.so.1")
	}
	for _, library := range libraries {
		place := "lib/" + triplet + "/" + library
		if _, ok := t.all["usr/"+place]; ok {
			place = "usr/" + place
		}
		needs = append(needs, place)
	}
	return needs, nil
}

// unwinding are the functions of the C library that open libgcc_s.so.1 when they are called, though nothing names it before (man
// pthread_exit, man backtrace).
func unwinding() []string { return []string{"backtrace", "pthread_cancel", "pthread_exit"} }

// render writes the layer: by name, root's own, with one time. No one gets rights that a mode does not have for root: no set-user-ID bits.
func (t *debianTree) render(when time.Time) ([]byte, error) {
	headers := map[string]*tar.Header{}
	for name, file := range t.chosen {
		headers[name] = &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: file.mode & 0o755, ModTime: when, Size: int64(len(file.content))}
		if file.link != "" {
			headers[name] = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: file.link, Mode: 0o777, ModTime: when}
		}
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			headers[folder] = &tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: when}
		}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := w.WriteHeader(headers[name]); err != nil {
			return nil, err
		}
		if _, err := w.Write(t.chosen[name].content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return layer.Bytes(), err
}
