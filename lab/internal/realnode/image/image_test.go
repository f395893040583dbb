// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

func TestParse(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "lab"), nil, 0o700); err != nil { //nolint:gosec // it stands for a program
		t.Fatal(err)
	}
	for text, want := range map[string]image.Image{
		"web:v1=/a/b":                         {Repository: "docker.io/library/web", Tag: "v1", Path: "/a/b"},
		"mooring/web:dev=/a/b":                {Repository: "docker.io/mooring/web", Tag: "dev", Path: "/a/b"},
		"localhost:5000/web:dev=/a/b":         {Repository: "localhost:5000/web", Tag: "dev", Path: "/a/b"},
		"quay.io/coreos/etcd:v3.7.3":          {Repository: "quay.io/coreos/etcd", Tag: "v3.7.3", Path: filepath.Join(bin, "etcd")},
		"registry.k8s.io/kube-apiserver:v1":   {Repository: "registry.k8s.io/kube-apiserver", Tag: "v1", Path: filepath.Join(bin, "lab")},
		"mooring/etcd-storage-proxy=/a/b.tar": {Repository: "docker.io/mooring/etcd-storage-proxy", Path: "/a/b.tar"},
	} {
		if got, err := image.Parse(text, bin); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "=/a", "web", "web:latest", "web=/a/b", "web:v1=a", "web:v1=/a.tar", "web@sha256:00=/a"} {
		if got, err := image.Parse(text, bin); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A program that cannot run alone is refused with its cure: this test's own, which is static or not as it was built, and none.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it stands for a program
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "etcd"):         "run `make bin/etcd`",
		filepath.Join(dir, "etcd-storage"): "run `make build`",
		filepath.Join(dir, "coredns"):      "run `make real-nodes`",
		filepath.Join(dir, "none.tar"):     "build it with `make images BINARY=none`",
		dir:                                "is not a program",
		text:                               "is not a program of this system",
	} {
		if err := (image.Image{Repository: "docker.io/library/x", Tag: "v1", Path: path}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if _, err := os.Stat("/bin/true"); err == nil {
		if err := (image.Image{Repository: "docker.io/library/x", Tag: "v1", Path: "/bin/true"}).Check(); err != nil && !strings.Contains(err.Error(), "CGO_ENABLED=0") {
			t.Errorf("a program of this system: %v", err)
		}
	}
}

// An archive is an OCI image layout: each blob has its digest for a name, and the one layer holds the program.
func TestArchive(t *testing.T) {
	t.Parallel()
	bin, dir := t.TempDir(), t.TempDir()
	program := bytes.Repeat([]byte("a program"), 10_000)
	for _, name := range append(image.Own(), "web") {
		if err := os.WriteFile(filepath.Join(bin, name), program, 0o700); err != nil { //nolint:gosec // it stands for a program
			t.Fatal(err)
		}
	}
	web, err := image.Parse("quay.io/team/web:v2", bin)
	if err != nil {
		t.Fatal(err)
	}
	made, err := image.Make(bin, dir, []image.Image{web})
	if err != nil || len(made) != len(image.Own())+1 || made[len(made)-1].Repository != "quay.io/team/web" {
		t.Fatalf("%+v, %v", made, err)
	}
	files := unpack(t, made[len(made)-1].Path)
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 ||
		index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v2" {
		t.Fatalf("%s, %v", files["index.json"], err)
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal(files["blobs/"+strings.Replace(index.Manifests[0].Digest, ":", "/", 1)], &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	layer := files["blobs/"+strings.Replace(manifest.Layers[0].Digest, ":", "/", 1)]
	path := filepath.Join(dir, "layer.tar")
	if err := os.WriteFile(path, layer, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := unpack(t, path)["bin/web"]; !bytes.Equal(got, program) {
		t.Errorf("the layer has %d bytes of the program's %d", len(got), len(program))
	}
	for name, content := range files {
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != digest {
				t.Errorf("%s has another digest", name)
			}
		}
	}
}

func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	files := map[string][]byte{}
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
