// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// flags are those of a release of the small program.
func flags(dir, out, registry string) []string {
	return []string{"-root", dir, "-out", out, "-version", "v1.2.3", "-registry", registry, "-url", "https://example.org/files/"}
}

// TestRelease makes a release of one small program and one plugin, proves it, and looks at each file as those would for whom it is.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir, out := checkout(t), filepath.Join(t.TempDir(), "v1.2.3")
	git(t, dir, "tag", "v1.2.3")
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet())))
	t.Cleanup(server.Close)
	where := strings.TrimPrefix(server.URL, "http://") + "/team"
	var printed strings.Builder
	must.Do(t, run(t.Context(), append([]string{"all"}, flags(dir, out, where)...), &printed))
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS", "THIRD_PARTY_LICENSES.txt", "README.md", "crds.yaml", "digests.txt", "mooring-1.2.3.oci.tar", "mooring-1.2.3.tgz",
		"provenance.intoto.json", "tiny.amd64.spdx.json", "tiny.arm64.spdx.json", "tiny.krew.yaml", "tiny.tar", "tiny.yaml",
	}
	for _, p := range pluginPlatforms() {
		want = append(want, modulesFile("kubectl-tiny", p.os+"-"+p.arch), pluginArchive("kubectl-tiny", "v1.2.3", p))
	}
	slices.Sort(want)
	var names []string
	for line := range strings.SplitSeq(strings.TrimSpace(printed.String()), "\n") {
		names = append(names, strings.Fields(line)[1])
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	commit := git(t, dir, "rev-parse", "HEAD")
	t.Run("it is proven", func(t *testing.T) {
		t.Parallel()
		proven(t, dir, out, where, commit)
	})
	t.Run("not with other parameters", func(t *testing.T) {
		t.Parallel()
		asBefore(t, dir, out, where)
	})
	t.Run("texts", func(t *testing.T) {
		t.Parallel()
		texts(t, out, where)
	})
	t.Run("krew's manifest names the archives", func(t *testing.T) {
		t.Parallel()
		krewNames(t, out)
	})
	t.Run("the provenance names all else", func(t *testing.T) {
		t.Parallel()
		provenanceNames(t, out, commit)
	})
	t.Run("Helm takes the chart", func(t *testing.T) {
		t.Parallel()
		helmTakes(t, dir, out, where)
	})
	t.Run("krew installs the plugin", func(t *testing.T) {
		t.Parallel()
		krewInstalls(t, out, commit)
	})
}

// proven checks a release, and then one of which a byte is another, one with a file too much and one that lacks a file.
func proven(t *testing.T, dir, out, where, commit string) {
	t.Helper()
	programs := filepath.Join(t.TempDir(), "programs")
	args := append([]string{"check", "-programs", programs}, flags(dir, out, where)...)
	var printed strings.Builder
	must.Do(t, run(t.Context(), args, &printed))
	says := "tiny v1.2.3 (commit " + commit + " " + commitTime + ")"
	if got, want := printed.String(), "the checksums hold\nanother folder makes the same bytes\n"+says+says; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	for _, name := range []string{"tiny", "kubectl-tiny"} {
		if info, err := os.Stat(filepath.Join(programs, name)); err != nil || info.Mode().Perm()&0o555 != 0o555 {
			t.Errorf("not everybody can run the program %s: %v, %v", name, info, err)
		}
	}
	for name, tt := range map[string]struct {
		file, content, want string
	}{
		"another byte":    {"tiny.yaml", "image: other\n", "tiny.yaml is not the same in the folder and in SHA256SUMS: make the release again"},
		"a file too much": {"more.txt", "more\n", "the folder holds more.txt, which SHA256SUMS does not: remove it, or make the release again"},
		"a file missing":  {"tiny.tar", "", "the folder lacks tiny.tar, which SHA256SUMS holds: make the release again"},
	} {
		spoiled := filepath.Join(t.TempDir(), "v1.2.3")
		must.Do(t, os.CopyFS(spoiled, os.DirFS(out)))
		if tt.content == "" {
			must.Do(t, os.Remove(filepath.Join(spoiled, tt.file)))
		} else if err := os.WriteFile(filepath.Join(spoiled, tt.file), []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), append([]string{"check"}, flags(dir, spoiled, where)...), io.Discard); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// asBefore checks and pushes a release with other parameters than it was made with: one sentence says which, before anything is built or sent.
func asBefore(t *testing.T, dir, out, where string) {
	t.Helper()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"REGISTRY":    {[]string{"check", "-registry", "registry.example/other"}, "REGISTRY " + where + ", not registry.example/other: give the same REGISTRY, or make the release again"},
		"RELEASE_URL": {[]string{"check", "-url", "https://example.org/b"}, "RELEASE_URL https://example.org/files/, not https://example.org/b/: give the same RELEASE_URL, or make the release again"},
		"BUILDER":     {[]string{"check", "-builder", "https://example.org/me"}, "BUILDER https://example.org/tiny/hack/release, not https://example.org/me: give the same BUILDER, or make the release again"},
		"push": {[]string{"push", "-registry", "registry.example/other"}, "REGISTRY " + where +
			", which its chart and manifests name, not registry.example/other: give the same REGISTRY, or make the release again"},
	} {
		err := run(t.Context(), slices.Concat(tt.args[:1], flags(dir, out, where), tt.args[1:]), io.Discard)
		if want := "the release in " + out + " was made with " + tt.want; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestCheckedAtAnotherTime: SOURCE_DATE_EPOCH is one of the parameters of a release.
func TestCheckedAtAnotherTime(t *testing.T) {
	dir, out := checkout(t), filepath.Join(t.TempDir(), "v1.2.3")
	git(t, dir, "tag", "v1.2.3")
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	must.Do(t, run(t.Context(), append([]string{"all"}, flags(dir, out, "registry.example")...), io.Discard))
	t.Setenv("SOURCE_DATE_EPOCH", "1000000001")
	const want = "SOURCE_DATE_EPOCH 1000000000, not 1000000001: give the same SOURCE_DATE_EPOCH, or none for the commit's time, or make the release again"
	if err := run(t.Context(), append([]string{"check"}, flags(dir, out, "registry.example")...), io.Discard); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// texts compares what people read and apply.
func texts(t *testing.T, out, where string) {
	t.Helper()
	for file, want := range map[string]string{
		notesFile:   "# Mooring v1.2.3\n\n### Added\n\n- All.\n",
		"README.md": "for you\n",
		"tiny.yaml": "image: " + where + "/tiny:v1.2.3\nother: mooring/tiny-other:dev\n",
		"crds.yaml": "---\nkind: A\n---\nkind: B\n",
	} {
		if got := read(t, out, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if notices := read(t, out, noticesFile); !strings.Contains(notices, "stdlib "+runtime.Version()+": BSD-3-Clause\n") || !strings.Contains(notices, "The Go Authors") {
		t.Errorf("the notices lack Go's license:\n%.500s", notices)
	}
	for _, one := range document(t, read(t, out, "tiny.amd64.spdx.json")).Packages {
		if one.Name == standardLibrary && one.LicenseDeclared != "BSD-3-Clause" {
			t.Errorf("the license of Go is %s", one.LicenseDeclared)
		}
	}
}

// krewNames compares krew's manifest with the archives, one of which is opened: krew copies its files by name.
func krewNames(t *testing.T, out string) {
	t.Helper()
	var plugin krewPlugin
	must.Do(t, yaml.UnmarshalStrict([]byte(read(t, out, "tiny.krew.yaml")), &plugin))
	if plugin.Metadata["name"] != "tiny" || plugin.Spec.Version != "v1.2.3" || len(plugin.Spec.ShortDescription) > 50 || len(plugin.Spec.Platforms) != len(pluginPlatforms()) {
		t.Errorf("manifest %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		name, ours := strings.CutPrefix(p.URI, "https://example.org/files/")
		if sum, err := sumOf(filepath.Join(out, name)); !ours || err != nil || sum != p.SHA256 {
			t.Errorf("%s has the checksum %s, %v, and not %s", p.URI, sum, err, p.SHA256)
		}
		if filepath.Ext(name) != ".zip" {
			continue
		}
		archive := must.Get(zip.OpenReader(filepath.Join(out, name))).Or(t)
		var files, wanted []string
		for _, f := range archive.File {
			files = append(files, f.Name)
		}
		for _, f := range p.Files {
			wanted = append(wanted, f.From)
		}
		if err := archive.Close(); err != nil || !slices.Equal(files, wanted) || p.Bin != files[0] {
			t.Errorf("%s holds %q, %v; the manifest names %q and starts %s", name, files, err, wanted, p.Bin)
		}
	}
}

// krewInstalls has krew install the plugin of this machine's platform from the manifest, with the archive in place of the download, and runs
// it. krew compares the checksum.
func krewInstalls(t *testing.T, out, commit string) {
	t.Helper()
	home := t.TempDir()
	here := platform{runtime.GOOS, runtime.GOARCH}
	install := exec.CommandContext(t.Context(), testkit.Binary(t, "krew"), "install", "--manifest="+filepath.Join(out, "tiny.krew.yaml"),
		"--archive="+filepath.Join(out, pluginArchive("kubectl-tiny", "v1.2.3", here)))
	install.Env = []string{"HOME=" + home, "KREW_ROOT=" + home, "KREW_NO_UPGRADE_CHECK=1", "PATH=" + os.Getenv("PATH")}
	if text, err := install.CombinedOutput(); err != nil {
		t.Fatalf("krew install: %v\n%s", err, text)
	}
	said, err := exec.CommandContext(t.Context(), filepath.Join(home, "bin", "kubectl-tiny"), "--version").CombinedOutput()
	if want := "tiny v1.2.3 (commit " + commit + " " + commitTime + ")"; err != nil || string(said) != want {
		t.Errorf("the installed plugin says %q, %v, want %q", said, err, want)
	}
}

// provenanceNames compares the subjects of the statement with the folder.
func provenanceNames(t *testing.T, out, commit string) {
	t.Helper()
	var s statement
	decoder := json.NewDecoder(strings.NewReader(read(t, out, provenanceFile)))
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&s))
	have := map[string]string{}
	for _, subject := range s.Subject {
		have[subject.Name] = subject.Digest["sha256"]
	}
	want := must.Get(sumsOf(out)).Or(t)
	delete(want, provenanceFile)
	name, digest, _ := strings.Cut(strings.TrimSpace(read(t, out, digestsFile)), "@sha256:")
	want[name] = digest
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	from := s.Predicate.BuildDefinition.ResolvedDependencies
	if len(from) != 1 || from[0].URI != "git+https://example.org/tiny@refs/tags/v1.2.3" || from[0].Digest["gitCommit"] != commit {
		t.Errorf("it is made of %+v", from)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("the statement is a %s about %s", s.Type, s.PredicateType)
	}
}

// helmTakes renders the package, pushes the archive to a registry, and has Helm pull the same bytes from there.
func helmTakes(t *testing.T, dir, out, where string) {
	t.Helper()
	helm := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), testkit.Binary(t, "helm"), args...)
		command.Dir, command.Env = t.TempDir(), []string{"HOME=" + t.TempDir()}
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, text)
		}
		return string(text)
	}
	const file = "mooring-1.2.3.tgz"
	if got := helm("template", "a", filepath.Join(out, file)); !strings.Contains(got, where+"/tiny:v1.2.3") {
		t.Errorf("the chart renders\n%s", got)
	}
	must.Do(t, run(t.Context(), []string{"push", "-root", dir, "-out", out, "-registry", where}, io.Discard))
	if pushed := read(t, pushedFile(out)); !regexp.MustCompile(`^\S+/tiny@sha256:\S+\n\S+/charts/mooring@sha256:\S+\n$`).MatchString(pushed) {
		t.Errorf("pushed %q", pushed)
	}
	into := t.TempDir()
	helm("pull", "oci://"+where+"/charts/mooring", "--version", "1.2.3", "--plain-http", "--destination", into)
	if read(t, into, file) != read(t, out, file) {
		t.Error("Helm pulls another chart than was pushed")
	}
}

// TestNotReleased: what nobody could build again from the tag is refused in one sentence, before anything is written.
func TestNotReleased(t *testing.T) {
	t.Parallel()
	change := func(file, content, tag string) string {
		dir := checkout(t)
		write(t, dir, file, content)
		git(t, dir, "commit", "-q", "-a", "-m", "two")
		git(t, dir, "tag", tag)
		return dir
	}
	clean, dirty := checkout(t), change("README.md", "new\n", "v1.2.3")
	write(t, dirty, "README.md", "newer\n")
	for name, tt := range map[string]struct {
		dir, version, want string
	}{
		"no version":              {clean, "", `"" is not a version of a release: set VERSION to one such as v0.1.0 or v0.1.0-rc.1`},
		"no release":              {clean, "v1.2.3-4-gabcdef", `"v1.2.3-4-gabcdef" is not a version of a release: `},
		"no v":                    {clean, "1.2.3", `"1.2.3" is not a version of a release: `},
		"no tag":                  {clean, "v1.2.3", ` has no tag v1.2.3: check out the tag, or make it with git tag --sign v1.2.3`},
		"a dirty tree":            {dirty, "v1.2.3", `the tree differs from commit `},
		"another in source.txt":   {change("README.md", "new\n", "v1.3.0"), "v1.3.0", `source.txt names v1.2.3 as the version that is being made, not v1.3.0: change its first line and commit it`},
		"nothing in the notes":    {change("CHANGELOG.md", "## [1.2.3]\n\n## [1.2.2]\n\nAll.\n", "v1.2.3"), "v1.2.3", `CHANGELOG.md has no section [1.2.3] with text: `},
		"no notes of a candidate": {change("CHANGELOG.md", "## [1.2.2]\n", "v1.2.3-rc.1"), "v1.2.3-rc.1", `CHANGELOG.md has no section [1.2.3] with text: `},
		"no checkout":             {bare(t), "v1.2.3", ` is not a git checkout with a commit: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			err := run(t.Context(), []string{"all", "-root", tt.dir, "-out", out, "-version", tt.version}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, tt.want)
			}
			if left, err := filepath.Glob(out + "*"); err != nil || len(left) > 0 {
				t.Errorf("%q is left, %v", left, err)
			}
		})
	}
	err := run(t.Context(), []string{"check", "-root", clean, "-out", t.TempDir(), "-version", "v1.2.3"}, io.Discard)
	if err == nil || !strings.HasSuffix(err.Error(), ": make release VERSION=v1.2.3 first") {
		t.Errorf("nothing to check: %v", err)
	}
	if err := run(t.Context(), []string{"all", "-root", clean, "-version", "v1.2.3", "tiny"}, io.Discard); err == nil || err.Error() != `a release is of all binaries: leave "tiny" out` {
		t.Errorf("one binary: %v", err)
	}
}

// bare makes a folder with a program that no commit knows.
func bare(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "cmd/tiny/main.go", "package main\n\nfunc main() {}\n")
	return dir
}

// TestMissingProgram: without git it is said what is missing.
func TestMissingProgram(t *testing.T) {
	dir := checkout(t)
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), []string{"all", "-root", dir, "-out", t.TempDir(), "-version", "v1.2.3"}, io.Discard)
	if err == nil || err.Error() != "the program git is missing: install it, and put its folder into PATH" {
		t.Errorf("without git: %v", err)
	}
}

// TestArchiveKnowsItsVersion: what git archive makes of a tag knows the tag, and so do programs that are built from it with the go command alone.
func TestArchiveKnowsItsVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const folder = "internal/platform/buildinfo/"
	for _, name := range []string{".gitattributes", folder + "source.txt"} {
		write(t, dir, name, read(t, root, name))
	}
	git(t, dir, "init", "-q")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "one")
	git(t, dir, "tag", "-a", "-m", "one", "v7.8.9")
	git(t, dir, "archive", "--output", "all.tar", "HEAD")
	archive := must.Get(os.Open(filepath.Join(dir, "all.tar"))).Or(t)
	defer archive.Close()
	text := must.Get(fileOf(archive, folder+"source.txt")).Or(t)
	made, _, _ := strings.Cut(read(t, root, folder, "source.txt"), "\n")
	if want := made + "\nv7.8.9 " + git(t, dir, "rev-parse", "HEAD") + " " + strings.Replace(commitTime, "Z", "+00:00", 1) + "\n"; string(text) != want {
		t.Errorf("the archive has %q, want %q", text, want)
	}
}

// TestLicenses reads the licenses of real modules out of the cache, and asserts nothing where a file is something else.
func TestLicenses(t *testing.T) {
	t.Parallel()
	found := must.Get(findLicenses(t.Context(), source{root: root})).Or(t)
	versions, err := source{root: root}.output(t.Context(), "go", "list", "-m", "github.com/google/go-cmp", "sigs.k8s.io/yaml", "github.com/spf13/cobra")
	must.Do(t, err)
	want := map[string]string{"github.com/google/go-cmp": "BSD-3-Clause", "sigs.k8s.io/yaml": "Apache-2.0 AND BSD-3-Clause AND MIT", "github.com/spf13/cobra": "Apache-2.0"}
	for line := range strings.Lines(versions) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got := found.of(path, version).expression; got != want[path] {
			t.Errorf("the license of %s is %s, want %s", path, got, want[path])
		}
	}
	for name, content := range map[string]string{"no text of a license": "Do what you like, but on Sundays.\n", "no file": ""} {
		dir := t.TempDir()
		if content != "" {
			write(t, dir, "LICENSE", content)
		}
		if got := readLicense(dir).expression; got != unstated {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := readLicense(filepath.Join(t.TempDir(), "none")).expression; got != unstated {
		t.Errorf("no folder: %s", got)
	}
}

// TestChartIsOfThisVersion: the chart of the repository has the version that is being made, and the one that tests upgrade from an earlier one.
func TestChartIsOfThisVersion(t *testing.T) {
	t.Parallel()
	version := func(path ...string) string {
		var chart struct{ Version string }
		must.Do(t, yaml.Unmarshal([]byte(read(t, append([]string{root}, path...)...)), &chart))
		return "v" + chart.Version
	}
	made, _, _ := strings.Cut(read(t, root, "internal/platform/buildinfo/source.txt"), "\n")
	this, previous := version("charts/mooring/Chart.yaml"), version("test/charts/testdata/previous/mooring/Chart.yaml")
	if this != made {
		t.Errorf("the chart is %s, and source.txt says that %s is being made", this, made)
	}
	if semver.Compare(previous, this) >= 0 {
		t.Errorf("tests upgrade from %s to %s", previous, this)
	}
}

// TestDistNamesItsFiles: the page that says which file is for whom names all manifests.
func TestDistNamesItsFiles(t *testing.T) {
	t.Parallel()
	page := read(t, root, "dist", "README.md")
	manifests, err := filepath.Glob(filepath.Join(root, "dist", "*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("%d manifests, %v", len(manifests), err)
	}
	for _, path := range manifests {
		if !strings.Contains(page, "| `"+filepath.Base(path)+"` |") {
			t.Errorf("dist/README.md does not name %s", filepath.Base(path))
		}
	}
	for _, name := range []string{sumsFile, notesFile, noticesFile, provenanceFile, digestsFile, "crds.yaml", chartName + "-VERSION.tgz", chartName + "-VERSION" + chartArchiveEnd} {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("dist/README.md does not name %s", name)
		}
	}
}

// TestWorkflowsRunTargets: what workflows run is a target of the Makefile, so that it can be run by hand, but for what needs the forge.
// Actions are pinned by commit.
func TestWorkflowsRunTargets(t *testing.T) {
	t.Parallel()
	const forge = `^(docker login |xargs -n 1 cosign sign |gh release create |hack/matrix/issue\.sh$)`
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("%d workflows, %v", len(workflows), err)
	}
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, root, "Makefile"), -1) {
		targets[match[1]] = true
	}
	for _, path := range workflows {
		var flow struct {
			Jobs map[string]struct {
				Strategy struct {
					Matrix map[string][]string `json:"matrix"`
				} `json:"strategy"`
				Steps []struct {
					Uses string `json:"uses"`
					Run  string `json:"run"`
				} `json:"steps"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal([]byte(read(t, path)), &flow); err != nil {
			t.Fatal(errors.Join(errors.New(path), err))
		}
		for _, job := range flow.Jobs {
			var runs []string
			for _, step := range job.Steps {
				if step.Uses != "" && !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(step.Uses) {
					t.Errorf("%s uses %s, which is not pinned by a commit", path, step.Uses)
				}
				run := strings.TrimPrefix(strings.TrimPrefix(step.Run, "sudo "), `--preserve-env env "PATH=$PATH" `)
				if rest, ok := strings.CutPrefix(run, "make ${{ matrix.run }}"); ok {
					for _, line := range job.Strategy.Matrix["run"] {
						runs = append(runs, "make "+line+rest)
					}
				} else if run != "" {
					runs = append(runs, run)
				}
			}
			for _, line := range runs {
				words := strings.Fields(line)
				if ours := words[0] == "make" && targets[words[1]]; !ours && !regexp.MustCompile(forge).MatchString(line) {
					t.Errorf("%s runs %q, which is not a target of the Makefile", path, line)
				}
			}
		}
	}
}
