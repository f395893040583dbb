// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"
)

// debFile is a regular file or, if link is set, a symbolic link.
type debFile struct {
	owner   string
	link    string
	mode    int64
	content []byte
}

// deb is a package unpacked (man 5 deb): its control file, and its files by their paths without a slash before.
type deb struct {
	control []byte
	files   map[string]debFile
}

// readDeb unpacks a package.
func readDeb(content []byte) (deb, error) {
	members, err := readAr(content)
	if err != nil {
		return deb{}, err
	}
	if version := string(members["debian-binary"]); !strings.HasPrefix(version, "2.") {
		return deb{}, fmt.Errorf("its format is %q, not 2", version)
	}
	control, err := readDebTar(members, "control.tar")
	if err != nil {
		return deb{}, err
	}
	files, err := readDebTar(members, "data.tar")
	if err != nil {
		return deb{}, err
	}
	if len(control["control"].content) == 0 {
		return deb{}, errors.New("it has no control file")
	}
	return deb{control["control"].content, files}, nil
}

// readAr reads the members of an ar archive (man 5 ar): a magic line, and before each member 60 bytes of name, times, owners, mode, size and two magic bytes.
func readAr(content []byte) (map[string][]byte, error) {
	const magic, header, end = "!<arch>\n", 60, "`\n"
	rest, ok := bytes.CutPrefix(content, []byte(magic))
	if !ok {
		return nil, errors.New("it is not an ar archive")
	}
	members := map[string][]byte{}
	for len(rest) > 0 {
		if len(rest) < header || string(rest[58:header]) != end {
			return nil, errors.New("its ar archive is damaged")
		}
		name := strings.TrimSuffix(strings.TrimSpace(string(rest[:16])), "/")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if rest = rest[header:]; err != nil || size < 0 || size > len(rest) {
			return nil, errors.New("its ar archive is cut off")
		}
		members[name] = rest[:size]
		rest = rest[min(size+size%2, len(rest)):] // members begin at even places
	}
	return members, nil
}

// readDebTar reads the files of a member, which is a tar that may be compressed.
func readDebTar(members map[string][]byte, name string) (map[string]debFile, error) {
	for member, content := range members {
		end, ok := strings.CutPrefix(member, name)
		if !ok {
			continue
		}
		plain, err := decompress(content, end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", member, err)
		}
		files, err := readTar(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", member, err)
		}
		return files, nil
	}
	return nil, fmt.Errorf("it has no %s", name)
}

// decompress reads what Debian uses.
func decompress(content []byte, end string) (io.Reader, error) {
	switch end {
	case "":
		return bytes.NewReader(content), nil
	case ".gz":
		return gzip.NewReader(bytes.NewReader(content))
	case ".xz":
		return xz.NewReader(bytes.NewReader(content))
	}
	return nil, fmt.Errorf("compression %q is not known: use a package of Debian, which has xz", end)
}

// readTar reads files and links. Folders are left out: they follow from the files.
func readTar(r io.Reader) (map[string]debFile, error) {
	files := map[string]debFile{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(strings.TrimPrefix(header.Name, "./"))
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("it holds %q", header.Name)
		}
		switch header.Typeflag {
		case tar.TypeDir:
		case tar.TypeReg:
			content, err := io.ReadAll(archive)
			if err != nil {
				return nil, err
			}
			files[name] = debFile{mode: header.Mode, content: content}
		case tar.TypeSymlink:
			files[name] = debFile{link: header.Linkname}
		case tar.TypeLink:
			first, ok := files[path.Clean(strings.TrimPrefix(header.Linkname, "./"))]
			if !ok {
				return nil, fmt.Errorf("%q is a link to %q, which is not before it", header.Name, header.Linkname)
			}
			files[name] = first
		default:
			return nil, fmt.Errorf("%q is neither a file nor a link nor a folder", header.Name)
		}
	}
}
