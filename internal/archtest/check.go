// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Package is one package of this repository and what its files import directly.
type Package struct {
	// Path is the import path without the module's prefix: "internal/calico", "cmd/lab", "lab/internal/process".
	Path string
	// Imports are the import paths in ordinary files; imports of this repository also without the module's prefix.
	Imports []string
	// TestImports are those in test files, of both the package and its external test package.
	TestImports []string
}

// A Room is a set of packages with one duty, and what that duty lets them import.
type Room struct {
	Name string
	// Packages are patterns: a path, or a path with /... for it and everything below. The first room that matches a package has it.
	Packages []string
	// MayImport names the rooms that its ordinary files may import; a room may always import itself.
	MayImport []string
	// TestsMayImport names the rooms that its test files may import in addition.
	TestsMayImport []string
	// Outside lists patterns of standard and foreign packages that its ordinary files may import directly; nil means any.
	Outside []string
	// Reason says what would break if another edge were allowed.
	Reason string
}

// A Ban keeps packages out of binaries, however long the way to them.
type Ban struct {
	// Binaries are patterns of packages under cmd/.
	Binaries []string
	// Packages are patterns of import paths, own ones without the module's prefix.
	Packages []string
	Reason   string
}

// Check compares every import of packages with rooms and returns one sentence for each that is not allowed, in a stable order.
// A package that no room claims is a violation too: a new folder needs a decision about what it may import.
func Check(rooms []Room, packages []Package, own func(path string) bool) []string {
	var violations []string
	for _, p := range packages {
		room, ok := roomOf(rooms, p.Path)
		if !ok {
			violations = append(violations, fmt.Sprintf("%s belongs to no room: add it to one in internal/archtest/rules.go, or move it", p.Path))
			continue
		}
		violations = append(violations, checkImports(rooms, room, p, own)...)
	}
	slices.Sort(violations)
	return slices.Compact(violations)
}

// checkImports returns the violations of one package.
func checkImports(rooms []Room, room Room, p Package, own func(string) bool) []string {
	var violations []string
	complain := func(what, imported string) {
		violations = append(violations, fmt.Sprintf("%s (room %s) %s %s: %s", p.Path, room.Name, what, imported, room.Reason))
	}
	for _, imported := range p.Imports {
		switch {
		case own(imported):
			if !allowed(rooms, room, imported, room.MayImport) {
				complain("must not import", imported)
			}
		case room.Outside != nil && !matchAny(room.Outside, imported):
			complain("must not import", imported)
		}
	}
	forTests := slices.Concat(room.MayImport, room.TestsMayImport)
	for _, imported := range p.TestImports {
		if own(imported) && !allowed(rooms, room, imported, forTests) {
			complain("must not import, not even in tests,", imported)
		}
	}
	return violations
}

// allowed reports whether a package of from may import the package at path of this repository, given the rooms open to it.
func allowed(rooms []Room, from Room, path string, open []string) bool {
	to, ok := roomOf(rooms, path)
	return ok && (to.Name == from.Name || slices.Contains(open, to.Name))
}

// roomOf returns the first room that has the package.
func roomOf(rooms []Room, path string) (Room, bool) {
	for _, r := range rooms {
		if matchAny(r.Packages, path) {
			return r, true
		}
	}
	return Room{}, false
}

// CheckBans returns one sentence for each banned package that a binary reaches. deps maps a binary's package to all that it links.
func CheckBans(bans []Ban, deps map[string][]string) []string {
	var violations []string
	for _, binary := range slices.Sorted(maps.Keys(deps)) {
		for _, ban := range bans {
			if !matchAny(ban.Binaries, binary) {
				continue
			}
			for _, dep := range deps[binary] {
				if matchAny(ban.Packages, dep) {
					violations = append(violations, fmt.Sprintf("%s links %s: %s", binary, dep, ban.Reason))
				}
			}
		}
	}
	return violations
}

// CheckVersions returns one sentence for each module that both maps (path to version) hold at different versions.
func CheckVersions(root, lab map[string]string) []string {
	var violations []string
	for _, path := range slices.Sorted(maps.Keys(root)) {
		if other, ok := lab[path]; ok && other != root[path] {
			violations = append(violations, fmt.Sprintf("%s is %s in go.mod and %s in lab/go.mod: "+
				"shared packages would compile twice, and the lab would test another version than the one shipped", path, root[path], other))
		}
	}
	return violations
}

// matchAny reports whether one of the patterns matches the path.
func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}

// match knows three patterns: "a/b" is itself, "a/b/..." is a/b and all below, "a/*/b" has one free element.
func match(pattern, path string) bool {
	want, below := strings.CutSuffix(pattern, "/...")
	wanted, have := strings.Split(want, "/"), strings.Split(path, "/")
	if len(have) < len(wanted) || (!below && len(have) != len(wanted)) {
		return false
	}
	for i, element := range wanted {
		if element != "*" && element != have[i] {
			return false
		}
	}
	return true
}
