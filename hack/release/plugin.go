// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// pluginPrefix begins the name of each plugin of kubectl.
const pluginPrefix = "kubectl-"

// noticesFile holds the licenses of what is linked in.
const noticesFile = "THIRD_PARTY_LICENSES.txt"

// pluginPlatforms are what people work on.
func pluginPlatforms() []platform {
	return []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {windows, "amd64"}, {windows, "arm64"}}
}

const windows = "windows"

// file is one file of an archive.
type file struct {
	name    string
	content []byte
	mode    int64
}

// pluginFile is the name of a plugin's program in its archive.
func pluginFile(plugin string, p platform) string {
	if p.os == windows {
		return plugin + ".exe"
	}
	return plugin
}

// pluginArchive is the name of a plugin's archive.
func pluginArchive(plugin, version string, p platform) string {
	end := ".tar.gz"
	if p.os == windows {
		end = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", plugin, version, p.os, p.arch, end)
}

// writePlugins writes the archives and module lists of all plugins and their manifests for krew, and returns the programs.
func (s settings) writePlugins(ctx context.Context, from source) ([]program, error) {
	names, err := plugins(s.root)
	if err != nil {
		return nil, err
	}
	var all []program
	for _, plugin := range names {
		programs, err := s.writePlugin(ctx, from, plugin)
		if err != nil {
			return nil, fmt.Errorf("the plugin %s: %w", plugin, err)
		}
		all = append(all, programs...)
	}
	return all, nil
}

// writePlugin writes what belongs to one plugin.
func (s settings) writePlugin(ctx context.Context, from source, plugin string) ([]program, error) {
	about, err := from.about(ctx, plugin)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(s.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var programs []program
	for _, p := range pluginPlatforms() {
		built, err := from.compile(ctx, plugin, p)
		if err != nil {
			return nil, err
		}
		programs = append(programs, built)
		list, err := modules(about, built)
		if err != nil {
			return nil, err
		}
		if err := replace(filepath.Join(s.out, modulesFile(plugin, p.os+"-"+p.arch)), list); err != nil {
			return nil, err
		}
		content := []file{
			{pluginFile(plugin, p), built.content, 0o755}, {"LICENSE", own, 0o644}, {noticesFile, from.licenses.notices([]program{built}), 0o644},
		}
		pack := zippedTar
		if p.os == windows {
			pack = zipped
		}
		archive, err := pack(content, from.time)
		if err != nil {
			return nil, err
		}
		if err := replace(filepath.Join(s.out, pluginArchive(plugin, s.version, p)), archive); err != nil {
			return nil, err
		}
	}
	return programs, s.writeKrew(from, plugin)
}

// zippedTar packs files in which nothing depends on who packs them.
func zippedTar(files []file, when time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, ModTime: when, Size: int64(len(f.content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return out.Bytes(), err
}

// zipped packs them for Windows.
func zipped(files []file, when time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: when}
		header.SetMode(os.FileMode(f.mode)) //nolint:gosec // of nine bits
		to, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// What follows is the part of krew's manifest that a plugin needs (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).

type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Files    []krewFile   `json:"files"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krewSummary is the one line of krew's lists, which takes 50 signs.
const krewSummary = "Explain a cluster and what it stands on"

// writeKrew writes the manifest by which krew installs a plugin, krew's name of it being that without kubectl.
func (s settings) writeKrew(from source, plugin string) error {
	about := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": strings.TrimPrefix(plugin, pluginPrefix)},
		Spec: krewSpec{
			Version: s.version, Homepage: "https://" + from.module, ShortDescription: krewSummary,
			Description: "Health of machines, components, route reflectors, load balancers and tenants of Mooring, and\n" +
				"for each of them why it is as it is: what Kubernetes, Calico, etcd and DigitalOcean say.\n",
		},
	}
	for _, p := range pluginPlatforms() {
		archive := pluginArchive(plugin, s.version, p)
		sum, err := sumOf(filepath.Join(s.out, archive))
		if err != nil {
			return err
		}
		about.Spec.Platforms = append(about.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": p.os, "arch": p.arch}}, URI: s.download(from, archive), SHA256: sum,
			Files: []krewFile{{pluginFile(plugin, p), "."}, {"LICENSE", "."}, {noticesFile, "."}}, Bin: pluginFile(plugin, p),
		})
	}
	out, err := yaml.Marshal(about)
	if err != nil {
		return err
	}
	return replace(filepath.Join(s.out, about.Metadata["name"]+".krew.yaml"), out)
}
