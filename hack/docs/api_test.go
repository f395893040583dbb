// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestEveryFieldHasASection: a heading to link to, for each field of each kind, and each rule with its message.
func TestEveryFieldHasASection(t *testing.T) {
	t.Parallel()
	all, err := definitions(filepath.Join("..", ".."))
	if err != nil || len(all) < 2 {
		t.Fatalf("%d kinds: %v", len(all), err)
	}
	for _, d := range all {
		page := string(kindPage(d, d.Spec.Versions[0]))
		fields := 0
		var walk func(path string, of apiextensionsv1.JSONSchemaProps)
		walk = func(path string, of apiextensionsv1.JSONSchemaProps) {
			for _, rule := range of.XValidations {
				if !strings.Contains(strings.Join(strings.Fields(page), " "), strings.Join(strings.Fields(escape(rule.Message)), " ")) {
					t.Errorf("%s: nothing says %q", path, rule.Message)
				}
			}
			if of.Items != nil {
				walk(path+"[]", *of.Items.Schema)
			}
			if known(of) != "" {
				return
			}
			for name, field := range of.Properties {
				fields++
				if !strings.Contains(page, "\n### "+path+"."+name+"\n") {
					t.Errorf("%s has no section for %s.%s", d.Spec.Names.Kind, path, name)
				}
				walk(path+"."+name, field)
			}
		}
		for _, part := range []string{"spec", "status"} {
			walk(part, d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part])
		}
		if fields < 30 {
			t.Errorf("%s has only %d fields", d.Spec.Names.Kind, fields)
		}
	}
}

// TestFieldsSayTheirBounds reads some fields of which the type, the default and the bounds are known.
func TestFieldsSayTheirBounds(t *testing.T) {
	t.Parallel()
	all := must.Get(kindPages(filepath.Join("..", ".."))).Or(t)
	for page, sections := range map[string][]string{
		"api/etcdstorage.md": {
			"### spec.replicas\n\ninteger · default `3` · value 1 to 32\n\nreplicas is",
			"### spec.deletionPolicy\n\nstring · default `Retain` · one of `Retain`, `Delete`\n",
			"### spec.quota.bytes\n\nquantity of Kubernetes, such as 64Mi\n",
			"### spec.clientCertSecret[].namespace\n\nstring · length 1 to 63 · matches `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$` · required\n",
			"### status.conditions\n\nlist of condition of Kubernetes · one entry for each `type`\n",
			"- spec.quota.historyBytes: must be at least 16Mi: `quantity(string(self)).compareTo(quantity('16Mi')) >= 0`\n",
			"etcd-&lt;name>.&lt;operator's namespace>.svc:2379", "| Policy (wide) | `spec.deletionPolicy` | What becomes of the data |",
		},
		"api/routereflectortopology.md": {
			"### spec.adopt.nodes\n\nlabel selector of Kubernetes · required\n", "### spec.mesh\n\nstring · default `Manage` · one of `Manage`, `Observe`, `Ignore`\n",
		},
	} {
		for _, want := range sections {
			if !strings.Contains(string(all[page]), want) {
				t.Errorf("%s lacks %s", page, want)
			}
		}
	}
}

// TestEveryMarkIsDocumented finds labels, annotations and finalizers of ours that people meet, in packages that the reference does not read.
func TestEveryMarkIsDocumented(t *testing.T) {
	t.Parallel()
	// The plugin reads what others write, and draws it.
	readers := []string{"internal/plugin/observe", "internal/plugin/observe/overview", "internal/topology"}
	// Entries of the journal, which a command reads for people.
	own := regexp.MustCompile(`^nodes\.mooring\.dev/(journal-(content|entry|part|sha256)|host|kubernetes-node|because|time|objects|steps)$`)
	all := must.Get(marks(filepath.Join("..", ".."))).Or(t)
	found := 0
	eachFile(t, func(folder string, file *ast.File) {
		folder = "internal/" + folder
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil || !markForm.MatchString(value) || slices.Contains(readers, folder) || own.MatchString(value) {
				return true
			}
			found++
			if !slices.Contains(markFolders(), folder) || !slices.ContainsFunc(all, func(s sign) bool { return s.value == value }) {
				t.Errorf("%s has %s, which is not in the reference", folder, value)
			}
			return true
		})
	})
	if found < 10 {
		t.Errorf("found only %d", found)
	}
}
