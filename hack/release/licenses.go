// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// license is what the files of a module say of its license.
type license struct {
	// expression is in SPDX's words, or NOASSERTION.
	expression string
	// text is that of all files, one after the other.
	text string
}

// licenses reads the licenses of modules in Go's module cache. None at all, nil, knows of nothing.
type licenses struct {
	modules, goroot string
	known           map[string]license
}

// findLicenses looks for the module cache. What is built from a checkout is in it.
func findLicenses(ctx context.Context, from source) (*licenses, error) {
	folders, err := from.output(ctx, "go", "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules, goroot, _ := strings.Cut(folders, "\n")
	return &licenses{modules: modules, goroot: goroot, known: map[string]license{}}, nil
}

// of returns the license of a module, or of Go itself for the standard library.
func (l *licenses) of(path, version string) license {
	if l == nil {
		return license{expression: unstated}
	}
	key := path + "@" + version
	found, ok := l.known[key]
	if !ok {
		found = readLicense(l.folder(path, version))
		l.known[key] = found
	}
	return found
}

// folder is where the files of a module are, or "" for one of no valid name.
func (l *licenses) folder(path, version string) string {
	if path == standardLibrary {
		return l.goroot
	}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return ""
	}
	at, err := module.EscapeVersion(version)
	if err != nil {
		return ""
	}
	return filepath.Join(l.modules, filepath.FromSlash(escaped)+"@"+at)
}

// licenseFile matches the names of files with a license, as https://pkg.go.dev/license-policy lists them.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-._].*)?$`)

// covered is the share of a file, in percent, that must be the text of licenses, as for pkg.go.dev.
const covered = 75

// named are the licenses that are taken from a text: the identifiers of the classifier that are SPDX's too.
func named() []string {
	return []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unlicense", "Zlib"}
}

// readLicense reads the license of the module in a folder. Of one file that is not understood it asserts nothing.
func readLicense(folder string) license {
	entries, err := os.ReadDir(folder)
	if folder == "" || err != nil {
		return license{expression: unstated}
	}
	var ids, texts []string
	understood := true
	for _, entry := range entries {
		if entry.IsDir() || !licenseFile.MatchString(entry.Name()) || filepath.Ext(entry.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return license{expression: unstated}
		}
		texts = append(texts, strings.TrimSpace(string(text)))
		found := classify(text)
		understood = understood && len(found) > 0
		ids = append(ids, found...)
	}
	out := license{expression: unstated, text: strings.Join(texts, "\n\n")}
	if slices.Sort(ids); understood && len(ids) > 0 {
		out.expression = strings.Join(slices.Compact(ids), " AND ")
	}
	return out
}

// classify returns the licenses that a text consists of, or none if some of it is something else.
func classify(text []byte) []string {
	found := licensecheck.Scan(text)
	if found.Percent < covered {
		return nil
	}
	var ids []string
	for _, match := range found.Match {
		if !slices.Contains(named(), match.ID) {
			return nil
		}
		ids = append(ids, match.ID)
	}
	return ids
}

// notices are the texts of the licenses of what programs are linked with, each module once.
func (l *licenses) notices(programs []program) []byte {
	modules := map[string]license{}
	for _, p := range programs {
		modules[standardLibrary+" "+p.info.GoVersion] = l.of(standardLibrary, p.info.GoVersion)
		for _, m := range sortedModules(p.info) {
			modules[m.Path+" "+m.Version] = l.of(m.Path, m.Version)
		}
	}
	var out strings.Builder
	for _, name := range sortedKeys(modules) {
		fmt.Fprintf(&out, "%s\n%s: %s\n\n%s\n\n", strings.Repeat("=", 80), name, modules[name].expression, modules[name].text)
	}
	return []byte(out.String())
}
