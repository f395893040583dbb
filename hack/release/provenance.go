// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// writeProvenance writes the statement about all files that are there, and about the images by their digests.
func (s settings) writeProvenance(_ context.Context, from source) error {
	sums, err := sumsOf(s.out)
	if err != nil {
		return err
	}
	home := "https://" + from.module
	out := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: provenance{BuildDefinition: buildDefinition{
			BuildType:          home + "/blob/main/docs/RELEASING.md#make-release",
			ExternalParameters: map[string]string{"version": s.version, "registry": s.registry, "url": s.download(from, "")},
			InternalParameters: map[string]string{"go": runtime.Version()},
			ResolvedDependencies: []artifact{
				{URI: "git+" + home + "@refs/tags/" + s.version, Digest: map[string]string{"gitCommit": from.commit}},
			},
		}},
	}
	out.Predicate.RunDetails.Builder.ID = cmp.Or(s.builder, home+"/hack/release")
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
