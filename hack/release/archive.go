// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// refName is the annotation by which an archive names its one image: the tag.
const refName = "org.opencontainers.image.ref.name"

// writeArchive writes the one image that add adds as an OCI archive: a tar of an OCI image layout, the small files first, all else by name.
func writeArchive(path string, when time.Time, add func(to layout.Path) error) error {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	folder, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := add(folder); err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := pack(&archive, os.DirFS(dir), when); err != nil {
		return err
	}
	return replace(path, archive.Bytes())
}

// pack writes the files of an image layout as a tar in which nothing depends on when and by whom it was written.
func pack(to io.Writer, folder fs.FS, when time.Time) error {
	blobs, err := fs.Glob(folder, "blobs/*/*")
	if err != nil {
		return err
	}
	slices.Sort(blobs)
	w := tar.NewWriter(to)
	for _, name := range slices.Concat([]string{"oci-layout", "index.json"}, blobs) {
		content, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: when, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}

// inLayout matches the names of all that an image layout of ours holds.
var inLayout = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

// readArchive unpacks the archive of a binary's image into the folder dir and returns its one image, and its tag.
func readArchive(path, dir string) (v1.ImageIndex, string, error) {
	top, one, err := openArchive(path, dir)
	if err != nil {
		return nil, "", err
	}
	index, err := top.ImageIndex(one.Digest)
	return index, one.Annotations[refName], err
}

// openArchive unpacks an archive into the folder dir and returns what it holds, and the one image in it.
func openArchive(path, dir string) (v1.ImageIndex, v1.Descriptor, error) {
	none := v1.Descriptor{}
	archive, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none, fmt.Errorf("there is no %s: build it with make images, or make release, first", path)
	}
	if err != nil {
		return nil, none, err
	}
	defer archive.Close()
	if err := unpack(archive, dir); err != nil {
		return nil, none, fmt.Errorf("%s is not an OCI archive of ours: %w", path, err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, none, fmt.Errorf("%s is not an OCI archive of ours: %w", path, err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, none, fmt.Errorf("%s is not an OCI archive of ours: %w", path, err)
	}
	if n := len(manifest.Manifests); n != 1 {
		return nil, none, fmt.Errorf("%s holds %d images instead of one: build it again with make images", path, n)
	}
	return top, manifest.Manifests[0], nil
}

// unpack writes the files of an archive into dir.
func unpack(archive io.Reader, dir string) error {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !inLayout.MatchString(header.Name) || header.Typeflag != tar.TypeReg {
			return fmt.Errorf("it holds %q", header.Name)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(header.Name))
		if strings.Contains(header.Name, "/") {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
	}
}
