// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/archtest"
)

// listed is what this test reads of one record of go list -json.
type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       *module
}

type module struct {
	Path, Version string
	Main          bool
	Replace       *module
}

// repository is the checkout under test.
type repository struct {
	root   string // folder of the root go.mod
	module string // its module path
}

// open finds the checkout and makes the test's cached result depend on it: go test sees the files that the test itself looks at, not those
// that go list reads in another process, so without this walk an old "ok" would outlive a new import.
func open(t *testing.T) repository {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if name := d.Name(); strings.HasSuffix(name, ".go") || name == "go.mod" {
			_, err = os.Stat(path)
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatalf("walking the checkout: %v", err)
	}
	return repository{root: root, module: strings.TrimSpace(string(goTool(t, root, "list", "-m")))}
}

// ignoreGone lets files vanish during the walk, as those of another test's temporary folder may.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// goTool runs the go command in dir and returns its standard output.
func goTool(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the product is built, also when this test runs under the race detector
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, stderr.String())
	}
	return out
}

// list runs go list -json with the arguments in dir.
func list(t *testing.T, dir string, args ...string) []listed {
	t.Helper()
	args = append([]string{"list", "-tags", "e2e", "-json=ImportPath,Imports,TestImports,XTestImports,Module"}, args...)
	decoder := json.NewDecoder(strings.NewReader(string(goTool(t, dir, args...))))
	var all []listed
	for {
		var one listed
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("reading go list: %v", err)
		}
		all = append(all, one)
	}
}

// relative cuts the module's prefix off the paths of this repository.
func (r repository) relative(paths ...[]string) []string {
	var out []string
	for _, list := range paths {
		for _, p := range list {
			if rest, ok := strings.CutPrefix(p, r.module+"/"); ok {
				p = rest
			}
			out = append(out, p)
		}
	}
	return out
}

// isOwn reports whether a path without prefix names a package of the repository, by its folder.
func (r repository) isOwn(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	switch first {
	case "api", "cmd", "config", "hack", "internal", "lab", "test":
		// The standard library has internal/ too, but ours may not import it.
		return true
	}
	return false
}

// TestDependencyDirections holds every package of both modules to the rules.
func TestDependencyDirections(t *testing.T) {
	t.Parallel()
	r := open(t)
	var packages []archtest.Package
	for _, dir := range []string{r.root, filepath.Join(r.root, "lab")} {
		for _, p := range list(t, dir, "./...") {
			packages = append(packages, archtest.Package{
				Path:        r.relative([]string{p.ImportPath})[0],
				Imports:     r.relative(p.Imports),
				TestImports: r.relative(p.TestImports, p.XTestImports),
			})
		}
	}
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages: the test does not see the repository", len(packages))
	}
	for _, v := range archtest.Check(archtest.Rooms(), packages, r.isOwn) {
		t.Error(v)
	}
}

// TestTheLinterKnowsEveryPurePackage compares depguard's list with the rules: what it lacks, an editor takes for any other package.
func TestTheLinterKnowsEveryPurePackage(t *testing.T) {
	t.Parallel()
	r := open(t)
	var linter struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules struct {
						Pure struct {
							Files []string `json:"files"`
						} `json:"pure"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	content, err := os.ReadFile(filepath.Join(r.root, ".golangci.yaml"))
	if err = errors.Join(err, yaml.Unmarshal(content, &linter)); err != nil {
		t.Fatal(err)
	}
	var listed, pure []string
	for _, pattern := range linter.Linters.Settings.Depguard.Rules.Pure.Files {
		if folder, ok := strings.CutPrefix(pattern, "**/"); ok {
			listed = append(listed, strings.TrimSuffix(folder, "/*.go"))
		}
	}
	for _, p := range list(t, r.root, "./...") {
		if folder := r.relative([]string{p.ImportPath})[0]; archtest.Pure(folder) {
			pure = append(pure, folder)
		}
	}
	slices.Sort(listed)
	slices.Sort(pure)
	if diff := cmp.Diff(pure, listed); diff != "" {
		t.Errorf(".golangci.yaml, linters.settings.depguard.rules.pure.files (- want, + is):\n%s", diff)
	}
}

// TestPlannerPartsImportNoLaterOne holds the planner of route reflectors to the order of its results.
func TestPlannerPartsImportNoLaterOne(t *testing.T) {
	t.Parallel()
	r := open(t)
	const folder = "internal/routereflector/"
	parts := archtest.PlannerParts()
	for at, part := range parts {
		for _, p := range list(t, r.root, "./"+folder+part) {
			for _, imported := range r.relative(p.Imports) {
				if later := slices.Index(parts, strings.TrimPrefix(imported, folder)); later >= at {
					t.Errorf("%s%s imports %s, whose results come after its own", folder, part, imported)
				}
			}
		}
	}
}

// TestBinariesLinkNothingBanned follows the imports of each binary to their end.
func TestBinariesLinkNothingBanned(t *testing.T) {
	t.Parallel()
	r := open(t)
	mains, err := filepath.Glob(filepath.Join(r.root, "cmd", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatalf("no binaries under cmd/ (%v)", err)
	}
	deps := map[string][]string{}
	for _, main := range mains {
		binary := "cmd/" + filepath.Base(filepath.Dir(main))
		for _, p := range list(t, r.root, "-deps", "./"+binary) {
			deps[binary] = append(deps[binary], r.relative([]string{p.ImportPath})...)
		}
	}
	for _, v := range archtest.CheckBans(archtest.Bans(), deps) {
		t.Error(v)
	}
}

// TestRootModuleReplacesNothing keeps `go install` of the product's binaries working: go refuses modules with replace directives.
func TestRootModuleReplacesNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	var mod struct{ Replace, Exclude []any }
	if err := json.Unmarshal(goTool(t, r.root, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace)+len(mod.Exclude) > 0 {
		t.Errorf("go.mod has replace or exclude directives (%v %v); replaces belong to lab/go.mod", mod.Replace, mod.Exclude)
	}
}

// TestModulesAgreeOnVersions compares the modules that the packages of both sides really come from, replacements followed.
func TestModulesAgreeOnVersions(t *testing.T) {
	t.Parallel()
	r := open(t)
	versions := func(dir string) map[string]string {
		found := map[string]string{}
		for _, p := range list(t, dir, "-deps", "-test", "./...") {
			m := p.Module
			if m == nil || m.Main || strings.HasPrefix(m.Path, r.module) {
				continue
			}
			if m.Replace != nil {
				m = m.Replace
			}
			found[p.Module.Path] = m.Version
		}
		return found
	}
	root, lab := versions(r.root), versions(filepath.Join(r.root, "lab"))
	if len(root) < 20 || len(lab) < 20 {
		t.Fatalf("go list found %d and %d modules: the test does not see the repository", len(root), len(lab))
	}
	for _, v := range archtest.CheckVersions(root, lab) {
		t.Error(v)
	}
}

// sidecar is the image of a program of Kubernetes that runs beside the volume driver, with its version.
var sidecar = regexp.MustCompile(`registry\.k8s\.io/sig-storage/csi-([a-z]+):(v\S+)`)

// TestSidecarsAreThoseOfTheTests: the images that manifests and chart name are of the versions that the lab builds and runs beside the driver (ADR 31).
func TestSidecarsAreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	r := open(t)
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(goTool(t, r.root, "mod", "edit", "-json", "go.csi.mod"), &mod); err != nil {
		t.Fatal(err)
	}
	built := map[string]string{}
	for _, m := range mod.Require {
		if name, ok := strings.CutPrefix(m.Path, "github.com/kubernetes-csi/external-"); ok && !strings.Contains(name, "/client/") {
			name, _, _ = strings.Cut(name, "/")
			built[name] = m.Version
		}
	}
	for _, file := range []string{"charts/mooring/values.yaml", "config/digitalocean-csi-driver/base/controller.yaml"} {
		content, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		images := sidecar.FindAllStringSubmatch(string(content), -1)
		if len(images) != 4 {
			t.Errorf("%s names %d sidecars, want 4", file, len(images))
		}
		for _, image := range images {
			if image[2] != built[image[1]] {
				t.Errorf("%s names %s; go.csi.mod builds %q: change both together", file, image[0], built[image[1]])
			}
		}
	}
}
