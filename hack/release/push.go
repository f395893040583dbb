// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// modulesType is the media type of a list of modules.
const modulesType types.MediaType = "application/spdx+json"

// send pushes the archives, each under the tag that it was built with, and hands each image's name with its digest to done. It logs in as
// docker's or podman's configuration says.
func (s settings) send(ctx context.Context, done func(string)) error {
	if err := s.maySend(); err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, binary := range s.binaries {
		digest, err := s.sendOne(binary, options)
		if err != nil {
			return fmt.Errorf("pushing the image of %s: %w", binary, err)
		}
		done(s.signable(binary, digest))
	}
	charts, err := filepath.Glob(filepath.Join(s.out, "*"+chartArchiveEnd))
	if err != nil {
		return err
	}
	for _, chart := range charts {
		digest, err := s.sendChart(chart, options)
		if err != nil {
			return fmt.Errorf("pushing the chart: %w", err)
		}
		done(s.signable(chartFolder+"/"+chartName, digest))
	}
	return nil
}

// maySend refuses to push a release to another registry than its manifests and its chart name. Images alone may go anywhere.
func (s settings) maySend() error {
	made, err := readProvenance(s.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if registry := made.external(registryParameter); registry != s.registry {
		return fmt.Errorf("the release in %s was made with REGISTRY %s, which its chart and manifests name, not %s: give the same REGISTRY, or make the release again", s.out, registry, s.registry)
	}
	return nil
}

// sendChart pushes the chart, under its version.
func (s settings) sendChart(path string, options []remote.Option) (string, error) {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	top, one, err := openArchive(path, dir)
	if err != nil {
		return "", err
	}
	chart, err := top.Image(one.Digest)
	if err != nil {
		return "", err
	}
	tag, err := s.tag(chartFolder+"/"+chartName, one.Annotations[refName])
	if err != nil {
		return "", err
	}
	return one.Digest.String(), remote.Write(tag, chart, options...)
}

// sendOne pushes one archive. The lists of modules go before the tag, so that anyone who finds the image finds them.
func (s settings) sendOne(binary string, options []remote.Option) (string, error) {
	dir, err := os.MkdirTemp("", "mooring-release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the system's folder for such things
	index, version, err := readArchive(filepath.Join(s.out, archiveFile(binary)), dir)
	if err != nil {
		return "", err
	}
	tag, err := s.tag(binary, version)
	if err != nil {
		return "", err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag.Context().Digest(digest.String()), index, options...); err != nil {
		return "", err
	}
	for _, image := range manifest.Manifests {
		list, err := os.ReadFile(filepath.Join(s.out, modulesFile(binary, image.Platform.Architecture)))
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the archive has no list of modules alongside it: build both again with make images: %w", err)
		}
		if err != nil {
			return "", err
		}
		if err := attach(tag.Context(), image, list, options); err != nil {
			return "", fmt.Errorf("the list of modules for %s: %w", image.Platform, err)
		}
	}
	return digest.String(), remote.Tag(tag, index, options...)
}

// attach pushes the list of modules of one platform's image as a referrer of it.
func attach(repository name.Repository, image v1.Descriptor, list []byte, options []remote.Option) error {
	referrer, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(list, modulesType))
	if err != nil {
		return err
	}
	referrer = mutate.ConfigMediaType(referrer, modulesType) // by which registries tell what kind of referrer it is
	subject := v1.Descriptor{MediaType: image.MediaType, Digest: image.Digest, Size: image.Size}
	referrer = mutate.Subject(referrer, subject).(v1.Image)
	digest, err := referrer.Digest()
	if err != nil {
		return err
	}
	return remote.Write(repository.Digest(digest.String()), referrer, options...)
}
