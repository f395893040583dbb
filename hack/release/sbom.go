// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// What follows is the part of SPDX 2.3 that a list of modules needs (https://spdx.github.io/spdx-spec/v2.3/).

type spdxDocument struct {
	SPDXVersion       string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	SPDXID            string             `json:"SPDXID"`
	Name              string             `json:"name"`
	DocumentNamespace string             `json:"documentNamespace"`
	CreationInfo      spdxCreationInfo   `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
}

type spdxCreationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string            `json:"SPDXID"`
	Name             string            `json:"name"`
	VersionInfo      string            `json:"versionInfo"`
	PackageFileName  string            `json:"packageFileName,omitempty"`
	PrimaryPurpose   string            `json:"primaryPackagePurpose"`
	DownloadLocation string            `json:"downloadLocation"`
	FilesAnalyzed    bool              `json:"filesAnalyzed"`
	Checksums        []spdxChecksum    `json:"checksums,omitempty"`
	SourceInfo       string            `json:"sourceInfo,omitempty"`
	LicenseDeclared  string            `json:"licenseDeclared"`
	LicenseComments  string            `json:"licenseComments,omitempty"`
	ExternalRefs     []spdxExternalRef `json:"externalRefs"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxExternalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	spdxRoot        = "SPDXRef-DOCUMENT"
	unstated        = "NOASSERTION"
	standardLibrary = "stdlib"
)

// modules renders the list of what a program is made of, as an SPDX document: the program, Go's standard library, and each module that the program
// itself names, and each package of Debian in its image, all with versions. The document follows from the program and what its image says of itself.
func modules(a about, p program) ([]byte, error) {
	sum := sha256.Sum256(p.content)
	digest := hex.EncodeToString(sum[:])
	own := spdxModule(p.info.Main.Path, a.version)
	own.PackageFileName, own.PrimaryPurpose, own.LicenseDeclared = "bin/"+a.binary, "APPLICATION", "Apache-2.0"
	own.Checksums = []spdxChecksum{{"SHA256", digest}}
	own.SourceInfo = "commit " + a.commit
	parts := []spdxPackage{spdxModule(standardLibrary, p.info.GoVersion)}
	parts[0].LicenseDeclared = a.licenses.of(standardLibrary, p.info.GoVersion).expression
	for _, m := range sortedModules(p.info) {
		part := spdxModule(m.Path, m.Version)
		part.LicenseDeclared = a.licenses.of(m.Path, m.Version).expression
		if m.Sum != "" {
			part.SourceInfo = "go.sum " + m.Sum
		}
		parts = append(parts, part)
	}
	parts = append(parts, p.debian.list()...)
	document := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: spdxRoot,
		Name:              fmt.Sprintf("%s %s %s/%s", a.binary, a.version, p.platform.os, p.platform.arch),
		DocumentNamespace: "https://" + path.Join(p.info.Main.Path, "sbom", a.binary, digest),
		CreationInfo:      spdxCreationInfo{a.time.Format(time.RFC3339), []string{"Organization: The Mooring Authors", "Tool: hack/release"}},
		Packages:          append([]spdxPackage{own}, parts...),
		Relationships:     []spdxRelationship{{spdxRoot, "DESCRIBES", own.SPDXID}},
	}
	for _, part := range parts {
		document.Relationships = append(document.Relationships, spdxRelationship{own.SPDXID, "DEPENDS_ON", part.SPDXID})
	}
	out, err := json.MarshalIndent(document, "", "  ")
	return append(out, '\n'), err
}

// sortedModules returns the modules that a program is linked from in addition to its own, by path; a replaced one is what replaces it.
func sortedModules(info *debug.BuildInfo) []debug.Module {
	var all []debug.Module
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// notInID matches what an identifier of SPDX cannot hold.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// spdxModule describes one module.
func spdxModule(module, version string) spdxPackage {
	return spdxPackage{
		// Other signs by their numbers, so that a/b and a-b are not the same.
		SPDXID: "SPDXRef-" + notInID.ReplaceAllStringFunc(module, func(s string) string { return fmt.Sprintf("-%x-", s) }),
		Name:   module, VersionInfo: version, PrimaryPurpose: "LIBRARY",
		DownloadLocation: unstated, LicenseDeclared: unstated,
		ExternalRefs: []spdxExternalRef{{"PACKAGE-MANAGER", "purl", packageURL(module, version)}},
	}
}

// packageURL names a module as scanners look it up (https://github.com/package-url/purl-spec): lower case, and Go itself without "go" before
// its version.
func packageURL(module, version string) string {
	if module == standardLibrary {
		version = strings.TrimPrefix(version, "go")
	}
	return "pkg:golang/" + strings.ToLower(module) + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}
