// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// provenanceFile says how a release was made. It is not signed: who signs it vouches for it (docs/RELEASING.md).
const provenanceFile = "provenance.intoto.json"

// What follows is an in-toto statement (https://in-toto.io/Statement/v1) with the part of SLSA's provenance (https://slsa.dev/provenance/v1) that a build
// without secrets and without a service has.

type statement struct {
	Type          string     `json:"_type"`
	Subject       []artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []artifact        `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// The parameters that the bytes of a release follow from, with the commit and the builder.
const (
	versionParameter  = "version"
	registryParameter = "registry"
	urlParameter      = "url"
	goParameter       = "go"
	timeParameter     = "sourceDateEpoch"
)

func (s statement) external(name string) string {
	return s.Predicate.BuildDefinition.ExternalParameters[name]
}

func (s statement) internal(name string) string {
	return s.Predicate.BuildDefinition.InternalParameters[name]
}

// readProvenance reads the statement of the release in a folder.
func readProvenance(folder string) (statement, error) {
	var out statement
	path := filepath.Join(folder, provenanceFile)
	content, err := os.ReadFile(path)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(content, &out); err != nil {
		return out, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

// statement is how a release is made, of nothing yet.
func (s settings) statement(from source) statement {
	home := "https://" + from.module
	out := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: provenance{BuildDefinition: buildDefinition{
			BuildType:          home + "/blob/main/docs/RELEASING.md#make-release",
			ExternalParameters: map[string]string{versionParameter: s.version, registryParameter: s.registry, urlParameter: s.download(from, "")},
			InternalParameters: map[string]string{goParameter: runtime.Version(), timeParameter: strconv.FormatInt(from.time.Unix(), 10)},
			ResolvedDependencies: []artifact{
				{URI: "git+" + home + "@refs/tags/" + s.version, Digest: map[string]string{"gitCommit": from.commit}},
			},
		}},
	}
	out.Predicate.RunDetails.Builder.ID = cmp.Or(s.builder, home+"/hack/release")
	return out
}

// writeProvenance writes the statement about all files that are there, and about the images by their digests.
func (s settings) writeProvenance(_ context.Context, from source) error {
	sums, err := sumsOf(s.out)
	if err != nil {
		return err
	}
	out := s.statement(from)
	for _, name := range sortedKeys(sums) {
		out.Subject = append(out.Subject, artifact{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	images, err := os.ReadFile(filepath.Join(s.out, digestsFile))
	if err != nil {
		return err
	}
	for _, reference := range slices.Sorted(strings.FieldsSeq(string(images))) {
		name, digest, _ := strings.Cut(reference, "@sha256:")
		out.Subject = append(out.Subject, artifact{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return replace(filepath.Join(s.out, provenanceFile), append(text, '\n'))
}
