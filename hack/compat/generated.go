// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var (
	flagRow     = regexp.MustCompile("^\\| (?:`-\\w`, )?`(--[a-z0-9-]+)` \\|")
	variableRow = regexp.MustCompile("^\\| `([A-Z][A-Z0-9_]+)` \\|")
	metricRow   = regexp.MustCompile("^\\| `(mooring_[a-z0-9_]+)")
	nameRow     = regexp.MustCompile("^\\| `([a-z0-9./-]+)` \\|")
	commandHead = regexp.MustCompile(`^## (kubectl mooring(?: [a-z-]+)+)`)
)

// reference reads commands, flags, variables and annotations off their pages.
func reference(root string) ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(root, "cmd", "*"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, folder := range folders {
		name := filepath.Base(folder)
		content, err := os.ReadFile(filepath.Join(root, "docs", "reference", name+".md"))
		if err != nil {
			return nil, err
		}
		of := name
		for line := range strings.Lines(string(content)) {
			switch {
			case commandHead.MatchString(line):
				of = commandHead.FindStringSubmatch(line)[1]
				out = append(out, "command "+of)
			case flagRow.MatchString(line):
				out = append(out, "flag "+of+" "+flagRow.FindStringSubmatch(line)[1])
			case variableRow.MatchString(line):
				out = append(out, "variable "+of+" "+variableRow.FindStringSubmatch(line)[1])
			}
		}
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", "reference", "digitalocean-annotations.md"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		if m := nameRow.FindStringSubmatch(line); m != nil {
			out = append(out, "annotation "+m[1])
		}
	}
	return out, nil
}

// metrics reads the names of metrics off the pages that describe them, since some are put together in the code.
func metrics(root string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "[cr]*", "*.md")) // components and reference
	if err != nil {
		return nil, err
	}
	var out []string
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(content)) {
			if m := metricRow.FindStringSubmatch(line); m != nil {
				out = append(out, "metric "+m[1])
			}
		}
	}
	return out, nil
}

// kinds reads the custom resources: their versions, names, fields with types, and the values that a field may have.
func kinds(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, short := range append(crd.Spec.Names.ShortNames, crd.Spec.Names.Categories...) {
			out = append(out, "kind "+crd.Name+" "+short)
		}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			of := crd.Name + "/" + version.Name
			out = append(out, "kind "+of+" "+crd.Spec.Names.Kind)
			out = append(out, fields(of, "", *version.Schema.OpenAPIV3Schema)...)
		}
	}
	return out, nil
}

// fields are those below path.
func fields(of, path string, schema apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	for _, value := range schema.Enum {
		out = append(out, fmt.Sprintf("value of field %s %s %s", of, path, value.Raw))
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		out = append(out, fields(of, path+"[]", *schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		out = append(out, fields(of, path+"{}", *schema.AdditionalProperties.Schema)...)
	}
	for name, inner := range schema.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		kind := inner.Type
		if inner.XIntOrString {
			kind = "int-or-string"
		}
		out = append(out, strings.TrimSpace("field "+of+" "+at+" "+kind))
		out = append(out, fields(of, at, inner)...)
	}
	return out
}

// schema is what of the chart's values.schema.json is looked at.
type schema struct {
	Ref         string            `json:"$ref"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Enum        []any             `json:"enum"`
	Definitions map[string]schema `json:"definitions"`
}

// values reads the chart's values.
func values(root string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, "charts", "mooring", "values.schema.json"))
	if err != nil {
		return nil, err
	}
	var whole schema
	if err := json.Unmarshal(content, &whole); err != nil {
		return nil, err
	}
	var out []string
	var follow func(path string, s schema)
	follow = func(path string, s schema) {
		if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
			s = whole.Definitions[name]
		}
		for _, value := range s.Enum {
			out = append(out, fmt.Sprintf("value of chart value %s %q", path, fmt.Sprint(value)))
		}
		if s.Items != nil {
			follow(path+"[]", *s.Items)
		}
		for name, inner := range s.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			out = append(out, "chart value "+at)
			follow(at, inner)
		}
	}
	follow("", whole)
	return out, nil
}
