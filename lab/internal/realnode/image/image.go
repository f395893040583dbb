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

// Tag is that of the images that are made here, and Pause the image that holds a pod's namespaces.
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

// Make makes the archives of Own from programs of the folder bin, in the folder dir.
func Make(bin, dir string) ([]Archive, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of images: %w", err)
	}
	var archives []Archive
	for _, name := range Own() {
		content, err := archive(filepath.Join(bin, name))
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, name+".tar")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing the image %s: %w", name, err)
		}
		archives = append(archives, Archive{Path: file, Repository: own + name})
	}
	return archives, nil
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
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is the image of one program, which runs as a user that is not root.
func archive(program string) ([]byte, error) {
	content, err := os.ReadFile(program)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not built; run `make real-nodes`", program)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", program, err)
	}
	inside := path.Join("bin", filepath.Base(program))
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}), put(w, inside, 0o755, content), w.Close()); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	blobs := map[string][]byte{}
	var order []string
	add := func(mediaType string, blob []byte) descriptor {
		sum := sha256.Sum256(blob)
		digest := hex.EncodeToString(sum[:])
		blobs[digest], order = blob, append(order, digest)
		return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(blob)}
	}
	const prefix = "application/vnd.oci.image."
	inner := add(prefix+"layer.v1.tar", layer.Bytes())
	config := add(prefix+"config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"User": "65532:65532", "Entrypoint": []string{"/" + inside}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{inner.Digest}},
	}))
	manifest := add(prefix+"manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": prefix + "manifest.v1+json", "config": config, "layers": []descriptor{inner},
	}))
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": Tag}
	var out bytes.Buffer
	w = tar.NewWriter(&out)
	err = errors.Join(
		put(w, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		put(w, "index.json", 0o644, encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})),
	)
	for _, digest := range order {
		err = errors.Join(err, put(w, "blobs/sha256/"+digest, 0o644, blobs[digest]))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	return out.Bytes(), nil
}

func put(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(content))
	return err
}

func encode(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of texts always encode
	}
	return content
}
