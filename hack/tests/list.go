// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/archtest"
)

// testPackage is a package with tests.
type testPackage struct {
	// path is its import path, folder that of its files below the repository's root, module the folder of its module.
	path, folder, module string
	// pure reports whether archtest calls it pure, servers whether its test binary links Kubernetes' or etcd's server, campaign whether it
	// is one.
	pure, servers, campaign bool
	// deps are the folders of this repository's packages that its test binary links; linked is the number of all.
	deps   []string
	linked int
	// files are the names of its test files.
	files []string
}

// campaigns are the folders of tests that drive whole controllers or programs through many cases, or through suites of
// upstream's that wait no longer than they do there: three to ten times as slow with the race detector. Controllers have
// it at night (make nightly); of the others it would find what it finds in the tests of the packages that they drive.
func campaigns() []string {
	return []string{
		"internal/etcdstorage/controller", "internal/nodesync/controller", "internal/routereflector/controller",
		"internal/docloud/provider/simulated",
		"test/contract/digitalocean", "test/contract/etcdstorage/fidelity", "test/contract/etcdstorage/isolation",
	}
}

// comparisons are the folders of tests that run upstream projects' own suites, or compare with what those do. They fail
// when upstream's behavior is misunderstood, which few changes can bring about: CI has them, a change has not.
func comparisons() []string {
	return []string{"test/contract/digitalocean", "test/contract/etcdstorage/fidelity"}
}

// record is what is read of go list -json.
type record struct {
	ImportPath, Dir           string
	Deps                      []string
	TestGoFiles, XTestGoFiles []string
}

// list returns the packages of a module with tests, given build tags; those that link most come first, since they also take longest.
func (r runner) list(ctx context.Context, module, tags string) ([]testPackage, error) {
	out, err := r.output(ctx, module, "go", "list", "-tags", tags, "-test", "-json=ImportPath,Dir,Deps,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	prefix, err := r.output(ctx, ".", "go", "list", "-m")
	if err != nil {
		return nil, err
	}
	records, err := decode(out)
	if err != nil {
		return nil, fmt.Errorf("reading go list in %s: %w", module, err)
	}
	binaries := map[string]record{}
	for _, rec := range records {
		if path, ok := strings.CutSuffix(rec.ImportPath, ".test"); ok {
			binaries[path] = rec
		}
	}
	var all []testPackage
	for _, rec := range records {
		binary, ok := binaries[rec.ImportPath]
		if !ok {
			continue
		}
		folder, err := filepath.Rel(r.root, rec.Dir)
		if err != nil {
			return nil, err
		}
		p := testPackage{path: rec.ImportPath, folder: folder, module: module, pure: archtest.Pure(folder), campaign: slices.Contains(campaigns(), folder), linked: len(binary.Deps), files: slices.Concat(rec.TestGoFiles, rec.XTestGoFiles)}
		p.deps, p.servers = own(binary.Deps, strings.TrimSpace(string(prefix))+"/")
		p.deps = append(p.deps, folder)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b testPackage) int {
		return cmp.Or(cmp.Compare(b.linked, a.linked), cmp.Compare(a.path, b.path))
	})
	return all, nil
}

func decode(out []byte) ([]record, error) {
	var all []record
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one record
		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, one)
	}
}

// own returns the folders of this repository among import paths, and whether a server is among them.
func own(deps []string, prefix string) (folders []string, servers bool) {
	for _, dep := range deps {
		dep, _, _ = strings.Cut(dep, " ") // "a [b.test]" is a, compiled for b's test
		if folder, ok := strings.CutPrefix(dep, prefix); ok {
			folders = append(folders, strings.TrimSuffix(folder, "_test"))
		}
		servers = servers || strings.HasPrefix(dep, "k8s.io/kubernetes/") || strings.HasPrefix(dep, "go.etcd.io/etcd/server/")
	}
	slices.Sort(folders)
	return slices.Compact(folders), servers
}

// tagged returns the packages that have tests only with the tag e2e, or those of them in the folders that are named.
func (r runner) tagged(ctx context.Context, folders []string) ([]testPackage, error) {
	var all []testPackage
	for _, module := range modules() {
		with, err := r.list(ctx, module, "e2e")
		if err != nil {
			return nil, err
		}
		without, err := r.list(ctx, module, "")
		if err != nil {
			return nil, err
		}
		for _, p := range with {
			if !slices.ContainsFunc(without, func(q testPackage) bool { return q.path == p.path }) {
				all = append(all, p)
			}
		}
	}
	if len(folders) == 0 {
		return all, nil
	}
	var selected []testPackage
	for _, folder := range folders {
		i := slices.IndexFunc(all, func(p testPackage) bool { return p.folder == filepath.Clean(folder) })
		if i < 0 {
			return nil, fmt.Errorf("no tests with the tag e2e in %s: name a folder such as %s", folder, all[0].folder)
		}
		selected = append(selected, all[i])
	}
	return selected, nil
}
