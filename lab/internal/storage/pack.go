// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// picture is an image to be: files of this machine by their path in it.
type picture struct {
	files map[string]string
	// links are symbolic links, by their path in it.
	links      map[string]string
	entrypoint string
	// user is UID:GID.
	user string
}

// systemFolders are where programs and libraries of this machine are looked for.
func systemFolders() (programs, libraries []string) {
	programs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, triplet := range []string{"x86_64-linux-gnu", "aarch64-linux-gnu"} {
		libraries = append(libraries, "/usr/lib/"+triplet, "/lib/"+triplet)
	}
	return programs, append(libraries, "/usr/lib64", "/lib64", "/usr/lib", "/lib")
}

// addSystem adds programs of this machine, with the libraries that they need and what loads these.
func (p picture) addSystem(names ...string) error {
	programs, _ := systemFolders()
	for _, name := range names {
		found := slices.IndexFunc(programs, func(folder string) bool {
			_, err := exec.LookPath(filepath.Join(folder, name))
			return err == nil
		})
		if found < 0 {
			return fmt.Errorf("%s is not installed; run `apt-get install -y --no-install-recommends e2fsprogs xfsprogs`", name)
		}
		if err := p.addNeeded("/usr/sbin/"+name, filepath.Join(programs[found], name)); err != nil {
			return err
		}
	}
	return nil
}

// addNeeded adds a program or library at a path of the image, and all that it is linked to.
func (p picture) addNeeded(inside, file string) error {
	if _, there := p.files[inside]; there {
		return nil
	}
	p.files[inside] = file
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	for _, part := range f.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, part.Filesz)
		if _, err := part.ReadAt(text, 0); err != nil {
			return fmt.Errorf("reading what loads %s: %w", file, err)
		}
		loader := strings.TrimRight(string(text), "\x00")
		p.files[loader] = loader
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading what %s needs: %w", file, err)
	}
	_, libraries := systemFolders()
	for _, name := range needed {
		at := slices.IndexFunc(libraries, func(folder string) bool {
			_, err := os.Stat(filepath.Join(folder, name))
			return err == nil
		})
		if at < 0 {
			return fmt.Errorf("%s needs %s, which is not on this machine", file, name)
		}
		if err := p.addNeeded("/usr/lib/"+name, filepath.Join(libraries[at], name)); err != nil {
			return err
		}
	}
	return nil
}

// pack writes an archive as `ctr images import` reads it: a tar of an OCI image layout with one uncompressed layer.
func (p picture) pack(tag string) ([]byte, error) {
	layer, err := p.layer()
	if err != nil {
		return nil, err
	}
	const prefix = "application/vnd.oci.image."
	blobs := map[string][]byte{}
	add := func(mediaType string, blob []byte) map[string]any {
		sum := sha256.Sum256(blob)
		digest := hex.EncodeToString(sum[:])
		blobs[digest] = blob
		return map[string]any{"mediaType": prefix + mediaType, "digest": "sha256:" + digest, "size": len(blob)}
	}
	inner := add("layer.v1.tar", layer)
	config := add("config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"User": p.user, "Entrypoint": []string{p.entrypoint}, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=/usr/lib"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{inner["digest"]}},
	}))
	manifest := add("manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": prefix + "manifest.v1+json", "config": config, "layers": []any{inner},
	}))
	manifest["annotations"] = map[string]string{"org.opencontainers.image.ref.name": tag}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = errors.Join(
		put(w, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		put(w, "index.json", 0o644, encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})),
	)
	for _, digest := range slices.Sorted(maps.Keys(blobs)) {
		err = errors.Join(err, put(w, "blobs/sha256/"+digest, 0o644, blobs[digest]))
	}
	// The archive is whole once it is closed: before that, its end is missing.
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// layer is the file system.
func (p picture) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, inside := range slices.Sorted(maps.Keys(p.files)) {
		folder := ""
		for part := range strings.SplitSeq(strings.Trim(path.Dir(inside), "/"), "/") {
			folder = path.Join(folder, part)
			if made[folder] {
				continue
			}
			made[folder] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}); err != nil {
				return nil, fmt.Errorf("packing %s: %w", folder, err)
			}
		}
		content, err := os.ReadFile(p.files[inside])
		if err != nil {
			return nil, fmt.Errorf("packing an image: %w", err)
		}
		if err := put(w, strings.TrimPrefix(inside, "/"), 0o755, content); err != nil {
			return nil, err
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(p.links)) {
		header := &tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(inside, "/"), Linkname: p.links[inside], Mode: 0o777}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", inside, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func put(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	_, err := w.Write(content)
	return err
}

func encode(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of texts always encode
	}
	return content
}
