// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// definitions reads the kinds as controller-gen has written them from the types in api.
func definitions(root string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return nil, err
	}
	out := make([]apiextensionsv1.CustomResourceDefinition, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(content, &out[i]); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return out, nil
}

// kindPages are the pages of all kinds, by file name.
func kindPages(root string) (map[string][]byte, error) {
	all, err := definitions(root)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, d := range all {
		for _, version := range d.Spec.Versions {
			name := strings.ToLower(d.Spec.Names.Kind)
			if len(d.Spec.Versions) > 1 {
				name += "-" + version.Name
			}
			out["api/"+name+".md"] = kindPage(d, version)
		}
	}
	return out, nil
}

// kindPage renders one version of a kind.
func kindPage(d apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion) []byte {
	var b bytes.Buffer
	names, schema := d.Spec.Names, version.Schema.OpenAPIV3Schema
	fmt.Fprintf(&b, "%s# %s\n\nWritten by `make generate` from the definition that the API server checks with; do not edit.\n\n%s\n\n", header, names.Kind, prose(schema.Description))
	fmt.Fprintf(&b, "- API version: `%s/%s`\n- scope: %s\n", d.Spec.Group, version.Name, d.Spec.Scope)
	fmt.Fprintf(&b, "- for kubectl: `%s`\n", strings.Join(slices.Concat([]string{names.Plural, names.Singular}, names.ShortNames, names.Categories), "`, `"))
	fmt.Fprintf(&b, "- [conditions](../conditions.md#%s), [labels, annotations and finalizers](../marks.md)\n", strings.ToLower(names.Kind))
	f := fields{&b}
	f.rules(*schema)
	for _, part := range []string{"spec", "status"} {
		if of, ok := schema.Properties[part]; ok {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", part, prose(of.Description))
			f.rules(of)
			f.below(part, of)
		}
	}
	b.WriteString("\n## Columns of kubectl get\n\nThose with (wide) need `-o wide`.\n\n| column | field | meaning |\n|---|---|---|\n")
	for _, c := range version.AdditionalPrinterColumns {
		wide := ""
		if c.Priority > 0 {
			wide = " (wide)"
		}
		fmt.Fprintf(&b, "| %s%s | `%s` | %s |\n", c.Name, wide, strings.TrimPrefix(c.JSONPath, "."), cell(c.Description))
	}
	return b.Bytes()
}

// fields renders fields into b.
type fields struct{ b *bytes.Buffer }

// below renders the fields of an object, in alphabetical order, and those below them.
func (f fields) below(path string, of apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		field := of.Properties[name]
		here := path + "." + name
		facts := append([]string{typeOf(field)}, facts(field)...)
		if slices.Contains(of.Required, name) && field.Default == nil {
			facts = append(facts, "required")
		}
		fmt.Fprintf(f.b, "\n### %s\n\n%s\n", here, wrap(strings.Join(facts, " · "), ""))
		if field.Description != "" {
			fmt.Fprintf(f.b, "\n%s\n", prose(field.Description))
		}
		f.rules(field)
		if known(field) != "" {
			continue
		}
		if field.Items != nil {
			here, field = here+"[]", *field.Items.Schema
			f.rules(field)
		}
		if known(field) == "" {
			f.below(here, field)
		}
	}
}

// rules renders what the API server checks beyond types and bounds: the message of a refusal, and the rule in CEL.
func (f fields) rules(of apiextensionsv1.JSONSchemaProps) {
	for i, rule := range of.XValidations {
		if i == 0 {
			f.b.WriteString("\nRefused unless:\n\n")
		}
		text := "`" + strings.Join(strings.Fields(rule.Rule), " ") + "`"
		if rule.Message != "" {
			text = escape(rule.Message) + ": " + text
		}
		fmt.Fprintf(f.b, "%s\n", wrap("- "+text, "  "))
	}
}

// known names a type of Kubernetes, which its own reference explains; "" for a type of ours.
func known(of apiextensionsv1.JSONSchemaProps) string {
	has := func(names ...string) bool {
		return of.Type == "object" && slices.Equal(slices.Sorted(maps.Keys(of.Properties)), names)
	}
	switch {
	case of.XIntOrString && strings.Contains(of.Pattern, "[KMGTPE]i"):
		return "quantity of Kubernetes, such as 64Mi"
	case has("matchExpressions", "matchLabels"):
		return "label selector of Kubernetes"
	case has("lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"):
		return "condition of Kubernetes"
	}
	return ""
}

// typeOf is the type of a field in words.
func typeOf(of apiextensionsv1.JSONSchemaProps) string {
	name := of.Type
	switch {
	case known(of) != "":
		return known(of)
	case of.XIntOrString:
		name = "integer or string"
	case of.Type == "array":
		return "list of " + typeOf(*of.Items.Schema)
	case of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*of.AdditionalProperties.Schema)
	case of.Format != "" && of.Format != "int32" && of.Format != "int64":
		name = of.Format
	}
	return name
}

// facts are default and bounds of a field, those of a list's items after "each".
func facts(of apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if of.Default != nil && string(of.Default.Raw) != "{}" {
		say("default `%s`", strings.Trim(string(of.Default.Raw), `"`))
	}
	if len(of.Enum) > 0 {
		words := make([]string, len(of.Enum))
		for i, e := range of.Enum {
			words[i] = "`" + strings.Trim(string(e.Raw), `"`) + "`"
		}
		say("one of %s", strings.Join(words, ", "))
	}
	bounds(say, "value", of.Minimum, of.Maximum)
	bounds(say, "length", of.MinLength, of.MaxLength)
	bounds(say, "entries", of.MinItems, of.MaxItems)
	bounds(say, "keys", of.MinProperties, of.MaxProperties)
	if of.Pattern != "" && known(of) == "" {
		say("matches `%s`", of.Pattern)
	}
	switch {
	case of.XListType != nil && *of.XListType == "set":
		say("each entry once")
	case of.XListType != nil && *of.XListType == "map":
		say("one entry for each `%s`", strings.Join(of.XListMapKeys, "`, `"))
	}
	if of.Items != nil && known(*of.Items.Schema) == "" {
		if each := facts(*of.Items.Schema); len(each) > 0 {
			say("each %s", strings.Join(each, ", "))
		}
	}
	return out
}

// bounds says between which numbers something is.
func bounds[T int64 | float64](say func(string, ...any), what string, least, most *T) {
	switch {
	case least != nil && most != nil:
		say("%s %v to %v", what, *least, *most)
	case least != nil:
		say("%s at least %v", what, *least)
	case most != nil:
		say("%s at most %v", what, *most)
	}
}
