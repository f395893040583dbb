// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// commitTime is when the commit of every checkout here was made.
const commitTime = "2026-01-02T03:04:05Z"

// git runs git in dir, as nobody's configuration says.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_DATE="+commitTime, "GIT_COMMITTER_DATE="+commitTime,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes a file below dir.
func write(t *testing.T, dir, file, content string) {
	t.Helper()
	path := filepath.Join(dir, file)
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)))
}

// read returns a file's content.
func read(t *testing.T, elements ...string) string {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join(elements...))).Or(t)
	return string(content)
}

// tinyProgram is small.
const tinyProgram = `// Command tiny is small.
package main

import "example.org/tiny/internal/platform/buildinfo"

func main() { print(buildinfo.String()) }
`

// checkout makes a repository laid out as ours with one small program and one plugin, which print what the linker was told.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.org/tiny\n\ngo 1.26.0\n")
	write(t, dir, "README.md", "tiny\n")
	write(t, dir, "LICENSE", read(t, root, "LICENSE"))
	write(t, dir, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\nMore.\n\n## [1.2.3] - 2026-01-02\n\n### Added\n\n- All.\n\n## [1.2.2] - 2026-01-01\n\n- Less.\n")
	write(t, dir, "dist/README.md", "for you\n")
	write(t, dir, "dist/tiny.yaml", "image: mooring/tiny:dev\nother: mooring/tiny-other:dev\n")
	write(t, dir, "config/crd/bases/a.yaml", "---\nkind: A\n")
	write(t, dir, "config/crd/bases/b.yaml", "---\nkind: B\n")
	write(t, dir, "charts/mooring/Chart.yaml", "apiVersion: v2\nname: mooring\nversion: 0.0.0\nappVersion: dev\n")
	write(t, dir, "charts/mooring/values.yaml", "global:\n  imageRegistry: mooring\n")
	write(t, dir, "charts/mooring/templates/tiny.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: tiny}, data: {image: \"{{ .Values.global.imageRegistry }}/tiny:{{ .Chart.AppVersion }}\"}}\n")
	write(t, dir, "cmd/kubectl-tiny/main.go", strings.ReplaceAll(tinyProgram, "tiny is", "kubectl-tiny is"))
	write(t, dir, "internal/platform/buildinfo/source.txt", "v1.2.3\n")
	write(t, dir, "cmd/tiny/main.go", tinyProgram)
	write(t, dir, "internal/platform/buildinfo/buildinfo.go", `package buildinfo

var version, commit, date string

func String() string { return "tiny " + version + " (commit " + commit + " " + date + ")" }
`)
	git(t, dir, "init", "-q")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "one")
	return dir
}

// TestImages builds the images of one small program from two folders, and looks at them in every way.
func TestImages(t *testing.T) {
	t.Parallel()
	first, second := checkout(t), filepath.Join(t.TempDir(), "another", "folder")
	git(t, first, "clone", "-q", first, second)
	var printed strings.Builder
	out := filepath.Join(t.TempDir(), "images")
	if err := run(t.Context(), []string{"images", "-root", first, "-out", out, "-registry", "registry.example/team", "-version", "v1.2.3"}, &printed); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "elsewhere")
	if err := run(t.Context(), []string{"images", "-root", second, "-out", again, "-registry", "registry.example/team", "-version", "v1.2.3", "tiny"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	index, tag, err := readArchive(filepath.Join(out, "tiny.tar"), t.TempDir())
	must.Do(t, err)
	if tag != "v1.2.3" {
		t.Errorf("the archive's image has the tag %q", tag)
	}
	commit := git(t, first, "rev-parse", "HEAD")
	t.Run("two folders make the same bytes", func(t *testing.T) {
		t.Parallel()
		same(t, out, again)
	})
	t.Run("the archive is an OCI image for both platforms", func(t *testing.T) {
		t.Parallel()
		valid(t, index, commit)
	})
	t.Run("the digests are those of the archives", func(t *testing.T) {
		t.Parallel()
		digest, err := index.Digest()
		want := "registry.example/team/tiny@" + digest.String() + "\n"
		if file := read(t, out, digestsFile); err != nil || file != want || printed.String() != want {
			t.Errorf("%s says %q and the output %q, %v; want %q", digestsFile, file, printed.String(), err, want)
		}
	})
	t.Run("each platform has a list of modules", func(t *testing.T) {
		t.Parallel()
		for _, arch := range []string{"amd64", "arm64"} {
			list := document(t, read(t, out, "tiny."+arch+".spdx.json"))
			if got := list.moduleLines(); !slices.Equal(got, []string{"example.org/tiny v1.2.3", "stdlib " + runtime.Version()}) {
				t.Errorf("%s: modules %q", arch, got)
			}
		}
	})
	t.Run("a registry takes it", func(t *testing.T) {
		t.Parallel()
		pushed(t, first, out, index)
	})
}

// same compares two folders.
func same(t *testing.T, a, b string) {
	t.Helper()
	all := must.Get(filepath.Glob(filepath.Join(a, "*"))).Or(t)
	var names []string
	for _, file := range all {
		names = append(names, filepath.Base(file))
		if read(t, file) != read(t, b, filepath.Base(file)) {
			t.Errorf("%s differs between two folders with the same commit", filepath.Base(file))
		}
	}
	if want := []string{"digests.txt", "tiny.amd64.spdx.json", "tiny.arm64.spdx.json", "tiny.tar"}; !slices.Equal(names, want) {
		t.Errorf("the folder holds %q, want %q", names, want)
	}
}

// valid looks at an index: what it holds, that digests and sizes are right, and what its images are and do.
func valid(t *testing.T, index v1.ImageIndex, commit string) {
	t.Helper()
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest := must.Get(index.IndexManifest()).Or(t)
	annotated(t, manifest.Annotations, commit)
	var platforms []string
	for _, one := range manifest.Manifests {
		platforms = append(platforms, one.Platform.String())
		image := must.Get(index.Image(one.Digest)).Or(t)
		plain(t, image, one.Platform, commit)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %q, want %q", platforms, want)
	}
}

// annotated compares annotations, or labels, with what the image specification wants to know.
func annotated(t *testing.T, got map[string]string, commit string) {
	t.Helper()
	want := map[string]string{
		"org.opencontainers.image.title": "tiny", "org.opencontainers.image.description": "Command tiny is small.",
		"org.opencontainers.image.version": "v1.2.3", "org.opencontainers.image.revision": commit, "org.opencontainers.image.created": commitTime,
		"org.opencontainers.image.source": "https://example.org/tiny", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.vendor": "The Mooring Authors",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// plain looks at the image for one platform: no root, one layer with one program, no time but the commit's.
func plain(t *testing.T, image v1.Image, on *v1.Platform, commit string) {
	t.Helper()
	config := must.Get(image.ConfigFile()).Or(t)
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/bin/tiny"}, WorkingDir: "/", Env: []string{"PATH=/bin"}, Labels: config.Config.Labels}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	annotated(t, config.Config.Labels, commit)
	if config.OS != on.OS || config.Architecture != on.Architecture || config.Created.UTC().Format(time.RFC3339) != commitTime {
		t.Errorf("the configuration says %s/%s and %s", config.OS, config.Architecture, config.Created)
	}
	manifest := must.Get(image.Manifest()).Or(t)
	annotated(t, manifest.Annotations, commit)
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v; want one", len(layers), err)
	}
	content := must.Get(layers[0].Uncompressed()).Or(t)
	defer content.Close()
	var held []string
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		held = append(held, header.Name)
		if header.Mode != 0o755 || header.Uid != 0 || header.Gid != 0 || header.ModTime.UTC().Format(time.RFC3339) != commitTime {
			t.Errorf("%s has mode %o, owner %d:%d, time %s", header.Name, header.Mode, header.Uid, header.Gid, header.ModTime)
		}
		if header.Typeflag == tar.TypeReg && on.Architecture == runtime.GOARCH && runtime.GOOS == "linux" {
			runs(t, r, "tiny v1.2.3 (commit "+commit+" "+commitTime+")")
		}
	}
	if want := []string{"bin/", "bin/tiny"}; !slices.Equal(held, want) {
		t.Errorf("the layer holds %q, want %q", held, want)
	}
}

// runs starts the program and compares what it prints.
func runs(t *testing.T, program io.Reader, want string) {
	t.Helper()
	content := must.Get(io.ReadAll(program)).Or(t)
	file := filepath.Join(t.TempDir(), "program")
	must.Do(t, os.WriteFile(file, content, 0o700))
	got, err := exec.CommandContext(t.Context(), file).CombinedOutput()
	if err != nil || string(got) != want {
		t.Errorf("the program prints %q, %v; want %q", got, err, want)
	}
}

// pushed pushes what is in out to a registry, twice, and pulls the image and its lists of modules.
func pushed(t *testing.T, root, out string, index v1.ImageIndex) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet())))
	t.Cleanup(server.Close)
	where := strings.TrimPrefix(server.URL, "http://") + "/team"
	digest := must.Get(index.Digest()).Or(t)
	copied := filepath.Join(t.TempDir(), "images")
	must.Do(t, os.CopyFS(copied, os.DirFS(out)))
	for range 2 {
		var printed strings.Builder
		must.Do(t, run(t.Context(), []string{"push", "-root", root, "-out", copied, "-registry", where}, &printed))
		if want := where + "/tiny@" + digest.String() + "\n"; printed.String() != want || read(t, pushedFile(copied)) != want {
			t.Errorf("output %q, want %q", printed.String(), want)
		}
	}
	tag := must.Get(name.NewTag(where + "/tiny:v1.2.3")).Or(t)
	pulled := must.Get(remote.Index(tag, remote.WithContext(t.Context()))).Or(t)
	if got, err := pulled.Digest(); err != nil || got != digest {
		t.Errorf("the registry's image is %s, %v; want %s", got, err, digest)
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
	manifest := must.Get(pulled.IndexManifest()).Or(t)
	lists := map[string]string{}
	for _, one := range manifest.Manifests {
		lists[one.Platform.Architecture] = referrer(t, tag.Context(), one.Digest)
	}
	want := map[string]string{"amd64": read(t, out, "tiny.amd64.spdx.json"), "arm64": read(t, out, "tiny.arm64.spdx.json")}
	if !maps.Equal(lists, want) {
		t.Errorf("the referrers of the images are %v, want %v", lists, want)
	}
}

// referrer returns the content of an image's one referrer.
func referrer(t *testing.T, repository name.Repository, of v1.Hash) string {
	t.Helper()
	index := must.Get(remote.Referrers(repository.Digest(of.String()), remote.WithContext(t.Context()))).Or(t)
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != "application/spdx+json" {
		t.Fatalf("referrers of %s: %+v, %v", of, manifest, err)
	}
	image, err := remote.Image(repository.Digest(manifest.Manifests[0].Digest.String()), remote.WithContext(t.Context()))
	must.Do(t, err)
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %v, %v", layers, err)
	}
	content := must.Get(layers[0].Uncompressed()).Or(t)
	defer content.Close()
	text := must.Get(io.ReadAll(content)).Or(t)
	return string(text)
}

// document reads a list of modules.
func document(t *testing.T, text string) spdxDocument {
	t.Helper()
	var d spdxDocument
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&d))
	return d
}

// moduleLines returns the modules with their versions.
func (d spdxDocument) moduleLines() []string {
	var lines []string
	for _, p := range d.Packages {
		lines = append(lines, p.Name+" "+p.VersionInfo)
	}
	return lines
}
