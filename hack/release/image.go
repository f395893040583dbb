// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user and group of every image but one ([debianUser]): no root, and a number, as runAsNonRoot demands. Manifests say the same.
const nobody = "65532:65532"

// assemble makes the image of a binary for all platforms that it is built for.
func assemble(a about, programs []program) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := picture(a, p)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.platform.os, Architecture: p.platform.arch}},
		})
	}
	return mutate.Annotations(index, annotations(a)).(v1.ImageIndex), nil
}

// picture makes the image for one platform: one layer with one program, above that of Debian's programs if it runs any.
func picture(a about, p program) (v1.Image, error) {
	path := "bin/" + a.binary
	content, err := files(a, path, p.content)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	user, search := nobody, "/bin"
	if p.debian != nil {
		user, search = debianUser, debianPath
		if image, err = withLayer(image, p.debian.content, p.debian.day, p.debian.comment()); err != nil {
			return nil, err
		}
	}
	if image, err = withLayer(image, content, a.time, "/"+path); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.platform.os, p.platform.arch, v1.Time{Time: a.time}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/" + path}, WorkingDir: "/",
		Env:    []string{"PATH=" + search}, // manifests may start the program by its name alone
		Labels: annotations(a),
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, annotations(a)).(v1.Image), nil
}

// withLayer puts a layer onto an image.
func withLayer(image v1.Image, content []byte, when time.Time, comment string) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching,
	)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: when}, CreatedBy: "hack/release", Comment: comment},
	})
}

// files is the layer, not compressed: the program where manifests of the projects that we succeed start it, root's own, so that it cannot change itself.
func files(a about, path string, content []byte) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, header := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755, ModTime: a.time},
		{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, ModTime: a.time, Size: int64(len(content))},
	} {
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := w.Close()
	return layer.Bytes(), err
}

// annotations are what index, manifests and (as labels) configurations carry, by the image specification's names.
func annotations(a about) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       a.binary,
		prefix + "description": a.description,
		prefix + "version":     a.version,
		prefix + "revision":    a.commit,
		prefix + "created":     a.time.Format(time.RFC3339),
		prefix + "source":      "https://" + a.module,
		prefix + "licenses":    licensesOf(a.binary),
		prefix + "vendor":      "The Mooring Authors",
	}
}
