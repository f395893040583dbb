// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// tools are what the node plugin runs, and what its messages tell a person to run: kubectl exec has no other programs there.
func tools() []string {
	return []string{
		"mkfs.ext4", "mkfs.xfs", "e2fsck", "fsck.ext4", "resize2fs", "xfs_growfs", "xfs_repair", "blkid", "blkdiscard",
	}
}

// toolsPath is where these are, for PATH.
const toolsPath = "/bin:/sbin:/usr/sbin"

// unpacked are the files of all packages of an architecture, by their path without a slash before it.
type unpacked map[string]entry

type entry struct {
	header  *tar.Header
	content []byte
	from    deb
}

// system returns the layer with the tools for an architecture, and the packages that it has files of. Every byte follows from the lock file.
func (s source) system(ctx context.Context, arch string) (layer []byte, used []deb, err error) {
	all, snapshot, err := readLock(s.root)
	if err != nil {
		return nil, nil, err
	}
	files := unpacked{}
	for _, d := range all {
		if d.arch != arch {
			continue
		}
		content, err := d.read(ctx, cacheFolder(), snapshot)
		if err != nil {
			return nil, nil, err
		}
		archive, err := d.files(ctx, content)
		if err != nil {
			return nil, nil, err
		}
		if err := files.add(archive, d); err != nil {
			return nil, nil, fmt.Errorf("package %s: %w", d.name(), err)
		}
	}
	wanted, err := files.closure()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range wanted {
		if d := files[name].from; !slices.Contains(used, d) {
			used = append(used, d)
		}
	}
	for _, d := range used {
		notice := "usr/share/doc/" + d.name() + "/copyright"
		if wanted, err = files.follow(wanted, notice); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(used, func(a, b deb) int { return strings.Compare(a.path, b.path) })
	layer, err = files.pack(wanted, s.time)
	return layer, used, err
}

func (u unpacked) add(archive []byte, d deb) error {
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.Trim(path.Clean("/"+header.Name), "/")
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeSymlink && header.Typeflag != tar.TypeLink {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		u[name] = entry{header, content, d}
	}
}

// closure are the files of the tools: the programs, what links lead to, their libraries with the dynamic linker, and the settings of mke2fs.
func (u unpacked) closure() ([]string, error) {
	wanted, err := u.follow(nil, "etc/mke2fs.conf")
	if err != nil {
		return nil, err
	}
	for _, tool := range tools() {
		at := slices.IndexFunc([]string{"sbin/", "usr/sbin/"}, func(folder string) bool { _, found := u[folder+tool]; return found })
		if at < 0 {
			return nil, fmt.Errorf("no package of %s has the program %s", lockFile, tool)
		}
		if wanted, err = u.follow(wanted, []string{"sbin/", "usr/sbin/"}[at]+tool); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(wanted); i++ { //nolint:intrange // it grows
		needed, err := u.needed(wanted[i])
		if err != nil {
			return nil, err
		}
		for _, name := range needed {
			if wanted, err = u.follow(wanted, name); err != nil {
				return nil, err
			}
		}
	}
	return wanted, nil
}

// follow adds a file and, if it is a link, what that leads to.
func (u unpacked) follow(wanted []string, name string) ([]string, error) {
	for range 8 {
		e, found := u[name]
		if !found {
			return nil, fmt.Errorf("no package of %s has the file %s", lockFile, name)
		}
		if slices.Contains(wanted, name) {
			return wanted, nil
		}
		wanted = append(wanted, name)
		switch target := e.header.Linkname; {
		case e.header.Typeflag == tar.TypeReg:
			return wanted, nil
		case e.header.Typeflag == tar.TypeLink || path.IsAbs(target):
			name = strings.Trim(path.Clean("/"+target), "/")
		default:
			name = strings.Trim(path.Join("/", path.Dir(name), target), "/")
		}
	}
	return nil, fmt.Errorf("%s is a link that leads to itself", name)
}

// needed are the libraries of a program or library, and the dynamic linker.
func (u unpacked) needed(name string) ([]string, error) {
	if !bytes.HasPrefix(u[name].content, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	file, err := elf.NewFile(bytes.NewReader(u[name].content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var needed []string
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needed = append(needed, strings.Trim(string(text), "/\x00"))
		}
	}
	for _, library := range libraries {
		found := ""
		for candidate := range u {
			folder := path.Dir(candidate)
			if path.Base(candidate) == library && (strings.HasPrefix(folder, "lib") || strings.HasPrefix(folder, "usr/lib")) && (found == "" || candidate < found) {
				found = candidate
			}
		}
		if found == "" {
			return nil, fmt.Errorf("no package of %s has the library %s, which %s needs", lockFile, library, name)
		}
		needed = append(needed, found)
	}
	return needed, nil
}

// pack writes a tar in which nothing depends on when and by whom it was written: all is root's, and folders come before what is in them.
func (u unpacked) pack(wanted []string, when time.Time) ([]byte, error) {
	wanted = slices.Compact(slices.Sorted(slices.Values(wanted)))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	for _, name := range wanted {
		for _, folder := range parents(name) {
			if made[folder] {
				continue
			}
			made[folder] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: when}); err != nil {
				return nil, err
			}
		}
		e := u[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: e.header.Mode & 0o755, ModTime: when, Size: int64(len(e.content))}
		content := e.content
		switch e.header.Typeflag {
		case tar.TypeSymlink:
			header.Typeflag, header.Linkname, header.Size, header.Mode, content = tar.TypeSymlink, e.header.Linkname, 0, 0o777, nil
		case tar.TypeLink: // its own copy would be another file: a symbolic link is not
			header.Typeflag, header.Linkname, header.Size, header.Mode, content = tar.TypeSymlink, path.Clean("/"+e.header.Linkname), 0, 0o777, nil
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// parents are the folders of a file, the outermost first.
func parents(name string) []string {
	var all []string
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		all = append([]string{folder}, all...)
	}
	return all
}
