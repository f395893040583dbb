// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Image is one that somebody wants real machines to have, named as pods name it.
type Image struct {
	// Repository is the whole name without its tag, registry included.
	Repository string
	// Tag is empty for an archive, which has its own.
	Tag string
	// Path is that of a static program of this machine, or of an archive of `make images` if it ends in .tar.
	Path string
}

// apiServer is the program that the lab's own binary is when it is called by that name.
const apiServer = "kube-apiserver"

// Parse reads NAME=/PATH, or NAME alone for the program of the folder bin that has the last part of the name: mooring/etcd-storage-proxy:dev,
// quay.io/coreos/etcd:v3.7.3, registry.k8s.io/kube-apiserver:v1.37.2. An error is one sentence.
func Parse(text, bin string) (Image, error) {
	reference, file, given := strings.Cut(text, "=")
	i := Image{Path: file}
	i.Repository, i.Tag = split(reference)
	base := path.Base(i.Repository)
	switch {
	case reference == "" || strings.Contains(reference, "@") || given && !filepath.IsAbs(file):
		return Image{}, fmt.Errorf("--image %q is not of the form NAME:TAG=/PATH/OF/PROGRAM or NAME:TAG; write the image's name as pods do, and an absolute path", text)
	case i.isArchive() && i.Tag != "":
		return Image{}, fmt.Errorf("--image %q names a tag, which the archive has already; leave out :%s", text, i.Tag)
	case i.isArchive():
		return i, nil
	case i.Tag == "" || i.Tag == "latest":
		return Image{}, fmt.Errorf("--image %q has no tag but latest, which kubelets always pull; give it another one, such as %s:%s, here and in the pod", text, base, Tag)
	case given:
		return i, nil
	}
	i.Path = filepath.Join(bin, base)
	if _, err := os.Stat(i.Path); err != nil && base == apiServer {
		i.Path = filepath.Join(bin, "lab")
	}
	return i, nil
}

// split returns the repository with its registry, Docker's own if none is named, and the tag of a reference. A colon before the last slash is a port's.
func split(reference string) (repository, tag string) {
	repository = reference
	if colon := strings.LastIndexByte(reference, ':'); colon > strings.LastIndexByte(reference, '/') {
		repository, tag = reference[:colon], reference[colon+1:]
	}
	registry, _, ok := strings.Cut(repository, "/")
	if !ok {
		return "docker.io/library/" + repository, tag
	}
	if !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		repository = "docker.io/" + repository
	}
	return repository, tag
}

func (i Image) isArchive() bool { return strings.HasSuffix(i.Path, ".tar") }

// Check returns, in one sentence with the cure, why the image cannot be made; nil if it can.
func (i Image) Check() error {
	if i.isArchive() {
		_, err := Find(i.Path)
		return err
	}
	info, err := os.Stat(i.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return i.unbuilt()
	case err != nil:
		return fmt.Errorf("the program %s of the image %s cannot be read: %w", i.Path, i.Repository, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not a program, so that no image can be made of it; name a static program, or a .tar of `make images`", i.Path)
	}
	file, err := elf.Open(i.Path)
	if err != nil {
		return fmt.Errorf("%s is not a program of this system, and nothing else is in its image to run it; name a static program, or a .tar of `make images`", i.Path)
	}
	defer func() { _ = file.Close() }()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs libraries, and nothing else is in its image; build it with CGO_ENABLED=0, or name a .tar of `make images`", i.Path)
		}
	}
	return nil
}

// unbuilt says how to build a program that does not exist.
func (i Image) unbuilt() error {
	name := filepath.Base(i.Path)
	cure := "make build"
	switch name {
	case "etcd", "kubectl", "lab":
		cure = "make bin/" + name
	case "pause", "coredns", "sample":
		cure = "make real-nodes"
	}
	return fmt.Errorf("%s is not built; run `%s`, or name another program with --image NAME:TAG=/PATH", i.Path, cure)
}
