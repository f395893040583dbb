// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package image makes the archives of the images that real machines have from the start, from programs of this machine. An archive is a tar of an
// OCI image layout with one uncompressed layer that holds one static program; no registry and no container engine is needed.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// Tag is that of the images of the lab's own, and Pause the one of them that holds a pod's namespaces.
const (
	Tag   = "lab"
	own   = "docker.io/mooring-lab/"
	Pause = own + "pause:" + Tag
)

// Archive is an image in a file.
type Archive struct {
	Path string `json:"path"`
	// Repository is the image's name without its tag, which the archive itself has.
	Repository string `json:"repository"`
}

// Own are the names of the programs that images of the lab's own are made from, docker.io/mooring-lab/NAME:lab.
func Own() []string { return []string{"pause", "coredns", "sample"} }

// Make makes the archives of Own, from programs of the folder bin, and of the wanted images, in the folder dir.
func Make(bin, dir string, wanted []Image) ([]Archive, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of images: %w", err)
	}
	var all []Image
	for _, name := range Own() {
		all = append(all, Image{Repository: own + name, Tag: Tag, Path: filepath.Join(bin, name)})
	}
	var archives []Archive
	for _, i := range append(all, wanted...) {
		if i.isArchive() {
			archives = append(archives, Archive{Path: i.Path, Repository: i.Repository})
			continue
		}
		file := filepath.Join(dir, i.fileName())
		if err := i.write(file); err != nil {
			return nil, err
		}
		archives = append(archives, Archive{Path: file, Repository: i.Repository})
	}
	return archives, nil
}

// fileName is that of the archive: pause.tar for an image of the lab's own, and unlike that of any other image.
func (i Image) fileName() string {
	if name, ok := strings.CutPrefix(i.Repository, own); ok && i.Tag == Tag {
		return name + ".tar"
	}
	return strings.NewReplacer("/", "_", ":", "_").Replace(i.Repository+":"+i.Tag) + ".tar"
}

// Find returns the archive at a path that somebody has given, such as one of `make images`: mooring/NAME for NAME.tar. An error is one sentence.
func Find(file string) (Archive, error) {
	name, isTar := strings.CutSuffix(filepath.Base(file), ".tar")
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Archive{}, fmt.Errorf("there is no image archive %s; build it with `make images BINARY=%s`, or name another file", file, name)
	case err != nil:
		return Archive{}, fmt.Errorf("the image archive %s cannot be read: %w", file, err)
	case !isTar || info.IsDir():
		return Archive{}, fmt.Errorf("%s is not an image archive; name a .tar file as `make images` writes them", file)
	}
	return Archive{Path: file, Repository: "docker.io/mooring/" + name}, nil
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// write writes the archive of an image of one program, which runs as a user that is not root. The program may be large, so it is read twice rather than
// kept: the layer has its digest for a name.
func (i Image) write(file string) error {
	program, err := os.Open(i.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return i.unbuilt()
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", i.Path, err)
	}
	defer func() { _ = program.Close() }()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", i.Repository, err)
	}
	if err := errors.Join(i.pack(program, out), out.Close()); err != nil {
		return fmt.Errorf("packing %s: %w", i.Path, err)
	}
	return nil
}

// pack writes the archive.
func (i Image) pack(program *os.File, out io.Writer) error {
	info, err := program.Stat()
	if err != nil {
		return err
	}
	sum, size := sha256.New(), &counter{}
	if err := i.layer(program, info.Size(), io.MultiWriter(sum, size)); err != nil {
		return err
	}
	const prefix = "application/vnd.oci.image."
	layer := descriptor{MediaType: prefix + "layer.v1.tar", Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: size.bytes}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"User": "65532:65532", "Entrypoint": []string{"/" + i.inside()}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": prefix + "manifest.v1+json", "config": describe(prefix+"config.v1+json", config), "layers": []descriptor{layer},
	})
	named := describe(prefix+"manifest.v1+json", manifest)
	named.Annotations = map[string]string{"org.opencontainers.image.ref.name": i.Tag}
	w := tar.NewWriter(out)
	for _, part := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{named}})},
		{blob(describe("", config)), config},
		{blob(named), manifest},
	} {
		if err := put(w, part.name, 0o644, int64(len(part.content)), bytes.NewReader(part.content)); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: blob(layer), Mode: 0o644, Size: layer.Size}); err != nil {
		return err
	}
	if err := i.layer(program, info.Size(), w); err != nil {
		return err
	}
	return w.Close()
}

// layer writes the one layer: bin/NAME.
func (i Image) layer(program io.ReadSeeker, size int64, out io.Writer) error {
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	w := tar.NewWriter(out)
	return errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}), put(w, i.inside(), 0o755, size, program), w.Close(),
	)
}

// inside is the program's path in the image, without the first slash.
func (i Image) inside() string { return path.Join("bin", path.Base(i.Repository)) }

// counter counts what is written to it.
type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

func describe(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

// blob is where the layout has what is described.
func blob(d descriptor) string { return "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:") }

func put(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

func encode(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of texts always encode
	}
	return content
}
