// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const root = "../.."

// quiet is a logger for a registry that has nothing to say.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// TestRefusals: what cannot work is said in one sentence, before anything is built.
func TestRefusals(t *testing.T) {
	t.Parallel()
	clean, dirty, bare, file, archives := checkout(t), checkout(t), t.TempDir(), filepath.Join(t.TempDir(), "file"), t.TempDir()
	write(t, dirty, "README.md", "not an ingredient\n")
	write(t, dirty, "cmd/tiny/other.go", "package main\n")
	write(t, dirty, "go.mod", "module example.org/tiny\n\ngo 1.26\n")
	write(t, bare, "cmd/tiny/main.go", "package main\n\nfunc main() {}\n")
	write(t, filepath.Dir(file), "file", "")
	var foreign bytes.Buffer
	w := tar.NewWriter(&foreign)
	must.Do(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "../escaped"}))
	must.Do(t, w.Close())
	write(t, archives, "tiny.tar", foreign.String())
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no command":             {nil, `name one of the commands images, push, all, check and debian first`},
		"another command":        {[]string{"sign"}, `name one of the commands images, push, all, check and debian first`},
		"an unknown binary":      {[]string{"images", "-root", clean, "tinny"}, `"tinny" is not a binary that runs in a cluster: name some of tiny, or none for all`},
		"the plugin":             {[]string{"images", "-root", clean, "kubectl-tiny"}, `"kubectl-tiny" is not a binary that runs in a cluster: name some of tiny, or none for all`},
		"an unknown flag":        {[]string{"images", "-root", clean, "-sign"}, `flag provided but not defined: -sign`},
		"another folder":         {[]string{"images", "-root", archives}, `holds no cmd/BINARY/main.go: run this in a checkout, as make images does`},
		"no version":             {[]string{"images", "-root", clean, "-version", ""}, `registry "mooring" and version "" make no name of an image: `},
		"a version with a blank": {[]string{"images", "-root", clean, "-version", "v1 2"}, `registry "mooring" and version "v1 2" make no name of an image: `},
		"an unwritable folder":   {[]string{"images", "-root", clean, "-out", filepath.Join(file, "images")}, `making the folder of the archives: `},
		"a dirty tree":           {[]string{"images", "-root", dirty, "-out", t.TempDir()}, `what binaries are made of differs from commit `},
		"no checkout":            {[]string{"images", "-root", bare, "-out", t.TempDir()}, `is not a git checkout with a commit, which images are named after: `},
		"nothing to push":        {[]string{"push", "-root", clean, "-out", t.TempDir()}, `tiny.tar: build it with make images, or make release, first`},
		"not an archive of ours": {[]string{"push", "-root", clean, "-out", archives}, `is not an OCI archive of ours: it holds "../escaped"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var printed strings.Builder
			err := run(t.Context(), tt.args, &printed)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || printed.Len() > 0 {
				t.Errorf("run(%q) = %v, output %q; want one line with %q and no output", tt.args, err, printed.String(), tt.want)
			}
		})
	}
}

// TestDirt: only what binaries are made of makes a tree dirty, and each such file does.
func TestDirt(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	write(t, dir, "README.md", "changed\n")
	write(t, dir, "docs/new.md", "new\n")
	if _, err := readSource(t.Context(), dir, "v1"); err != nil {
		t.Errorf("a changed README: %v", err)
	}
	write(t, dir, "internal/new/new.go", "package new\n")
	want := `what binaries are made of differs from commit ` + git(t, dir, "rev-parse", "HEAD")[:12] + `, first in "?? internal/new/": commit or stash all changes`
	if _, err := readSource(t.Context(), dir, "v1"); err == nil || err.Error() != want {
		t.Errorf("a new file: %v, want %s", err, want)
	}
}

// TestIngredientsAreAll: no binary has a package from anywhere else, whose changes nobody would see.
func TestIngredientsAreAll(t *testing.T) {
	t.Parallel()
	names := must.Get(binaries(root)).Or(t)
	for _, binary := range names {
		own, _ := deps(t, binary)
		for _, folder := range own {
			if first, _, _ := strings.Cut(folder, "/"); !slices.Contains(ingredients(), first) {
				t.Errorf("%s is linked from %s, which is not among %q", binary, folder, ingredients())
			}
		}
	}
}

// deps returns the packages of this repository and the modules in a binary's deps.txt, which go list has written.
func deps(t *testing.T, binary string) (own, modules []string) {
	t.Helper()
	parts := strings.Split(read(t, root, "cmd", binary, "deps.txt"), "\n\n")
	if len(parts) != 3 {
		t.Fatalf("deps.txt of %s has %d parts", binary, len(parts))
	}
	return strings.Split(strings.TrimSpace(parts[1]), "\n")[1:], strings.Split(strings.TrimSpace(parts[2]), "\n")[1:]
}

// TestSourceDateEpoch: the variable wins over the commit's time.
func TestSourceDateEpoch(t *testing.T) {
	dir := checkout(t)
	for value, want := range map[string]string{"": commitTime, "1000000000": "2001-09-09T01:46:40Z"} {
		t.Setenv("SOURCE_DATE_EPOCH", value)
		s, err := readSource(t.Context(), dir, "v1")
		if err != nil || s.time.Format(time.RFC3339) != want {
			t.Errorf("SOURCE_DATE_EPOCH=%s gives %s, %v; want %s", value, s.time, err, want)
		}
	}
	for _, value := range []string{"yesterday", "-1"} {
		t.Setenv("SOURCE_DATE_EPOCH", value)
		want := `SOURCE_DATE_EPOCH is "` + value + `": set it to seconds since 1970, or unset it for the commit's time`
		if _, err := readSource(t.Context(), dir, "v1"); err == nil || err.Error() != want {
			t.Errorf("SOURCE_DATE_EPOCH=%s: %v, want %s", value, err, want)
		}
	}
}

// TestOrdinary: a setting of one machine's go env does not get into an image unseen.
func TestOrdinary(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "GOARM64", Value: "v8.0"}}}
	if err := ordinary(info); err != nil {
		t.Error(err)
	}
	info.Settings = append(info.Settings, debug.BuildSetting{Key: "GOEXPERIMENT", Value: "synctest"})
	const want = "go env has GOEXPERIMENT=synctest, with which the image would not be the same elsewhere: unset it"
	if err := ordinary(info); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestModules compares a list with the file that a person and the specification's validator have looked at.
func TestModules(t *testing.T) {
	t.Parallel()
	a := about{binary: "tiny", source: source{version: "v1.2.3", commit: "0123456789abcdef", time: time.Unix(1_000_000_000, 0).UTC()}}
	p := program{platform: platform{"linux", "arm64"}, content: []byte("a program"), info: &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.org/tiny", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/old", Version: "v1.0.0", Sum: "h1:old=", Replace: &debug.Module{Path: "example.org/a/new", Version: "v1.0.1", Sum: "h1:new="}},
			{Path: "github.com/Docker/cli_x", Version: "v29.0.0+incompatible", Sum: "h1:cli="},
		},
	}}
	got := must.Get(modules(a, p)).Or(t)
	if diff := cmp.Diff(read(t, "testdata", "tiny.arm64.spdx.json"), string(got)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

// TestModulesOfARealBinary: the list of etcd-storage-proxy holds what deps.txt says, which comes from go list, and Go itself. It is built as
// it is for other tests, and not for the image, which would compile everything again.
func TestModulesOfARealBinary(t *testing.T) {
	t.Parallel()
	const binary = "etcd-storage-proxy"
	out := filepath.Join(t.TempDir(), binary)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./cmd/"+binary)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p := must.Get(readProgram(out, platform{"linux", "amd64"})).Or(t)
	list := must.Get(modules(about{binary: binary, source: source{version: "v1.2.3"}}, p)).Or(t)
	got := document(t, string(list))
	_, want := deps(t, binary)
	want = append([]string{p.info.Main.Path + " v1.2.3", "stdlib " + p.info.GoVersion}, want...)
	if diff := cmp.Diff(want, got.moduleLines()); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	ids := map[string]bool{}
	for _, one := range got.Packages {
		if ids[one.SPDXID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(one.SPDXID) {
			t.Errorf("identifier %s of %s", one.SPDXID, one.Name)
		}
		ids[one.SPDXID] = true
	}
	if len(got.Relationships) != len(got.Packages) {
		t.Errorf("%d relationships of %d packages", len(got.Relationships), len(got.Packages))
	}
}

// TestNamesAreThoseOfTheManifests: manifests and chart name images that are built, and every image that is built.
func TestNamesAreThoseOfTheManifests(t *testing.T) {
	t.Parallel()
	names := must.Get(binaries(root)).Or(t)
	var named []string
	reference := regexp.MustCompile(`(?:image: *"?mooring/|--etcd-proxy-image=mooring/|repository: *)([a-z-]+)`)
	for _, place := range []string{"config", "charts", "releases"} {
		err := fs.WalkDir(os.DirFS(root), place, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) || strings.Contains(path, "testdata") {
				return err
			}
			for _, match := range reference.FindAllStringSubmatch(read(t, root, path), -1) {
				if named = append(named, match[1]); !slices.Contains(names, match[1]) {
					t.Errorf("%s names mooring/%s, which make images does not build", path, match[1])
				}
			}
			return nil
		})
		must.Do(t, err)
	}
	for _, binary := range names {
		if _, err := os.Stat(filepath.Join(root, "releases", binary)); binary == debianBinary && err != nil {
			continue // its manifests are still to come
		}
		if !slices.Contains(named, binary) {
			t.Errorf("no manifest names mooring/%s", binary)
		}
	}
}

// TestMakeHandsItsVariablesOn: what make would run for the lines of the README is understood, and says what make was told.
func TestMakeHandsItsVariablesOn(t *testing.T) {
	t.Parallel()
	lines := regexp.MustCompile(`(?m)^make images push-images BINARY=(\S+) REGISTRY=registry.example VERSION=dev$`).FindAllStringSubmatch(read(t, root, "README.md"), -1)
	if len(lines) != 1 {
		t.Fatalf("the README has %d lines with make images", len(lines))
	}
	for _, line := range lines {
		command := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, strings.Fields(line[0])[1:]...)...)
		command.Dir, command.Env = root, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=") // make test may be running this
		out := must.Get(command.Output()).Or(t)
		runs := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), "'", "")), "\n")
		if len(runs) != 2 {
			t.Fatalf("%s runs %q", line[0], runs)
		}
		built := line[1:]
		for i, line := range runs {
			args, ours := strings.CutPrefix(line, "go run ./hack/release ")
			words := strings.Fields(args)
			s, err := parse(append([]string{words[0], "-root", root}, words[1:]...), io.Discard)
			if !ours || err != nil || s.command != []string{imagesCommand, pushCommand}[i] || s.registry != "registry.example" || i == 0 && s.version != "dev" || !slices.Equal(s.binaries, built) {
				t.Errorf("%q: %+v, %v", line, s, err)
			}
		}
	}
}
