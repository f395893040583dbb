// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// root is the repository's.
const root = "../.."

// TestGeneratedFilesAreFresh fails when the lists have changed and a file has not.
func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	for name, want := range must.Get(render(root, rights.All())).Or(t) {
		if have, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what internal/rights lists: run make manifests (%v)", name, err)
		}
	}
}

// TestEveryRoleIsGenerated finds roles that somebody wrote by hand in config/ or in the chart.
func TestEveryRoleIsGenerated(t *testing.T) {
	t.Parallel()
	written := must.Get(render(root, rights.All())).Or(t)
	for _, folder := range []string{"config", filepath.Join("charts", "mooring", "templates")} {
		must.Do(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if d.IsDir() && d.Name() == "example" { // of tenants
				return filepath.SkipDir
			}
			if err != nil || d.IsDir() {
				return err
			}
			content := must.Get(os.ReadFile(path)).Or(t)
			name := must.Get(filepath.Rel(root, path)).Or(t)
			if bytes.Contains(content, []byte("\nrules:\n")) && bytes.Contains(content, []byte("Role\n")) && written[name] == nil {
				t.Errorf("%s has a role that is not in internal/rights", name)
			}
			return nil
		}))
	}
}

// TestRenderedFilesGrantTheLists compares what each file of dist/ and releases/ grants, and to whom, with the lists: a kustomization may
// leave a file out, or take one too many.
func TestRenderedFilesGrantTheLists(t *testing.T) {
	t.Parallel()
	paths := append(must.Get(filepath.Glob(filepath.Join(root, "dist", "*.yaml"))).Or(t),
		must.Get(filepath.Glob(filepath.Join(root, "releases", "*", "*.yml"))).Or(t)...)
	for _, path := range paths {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		i := slices.IndexFunc(rights.All(), func(c rights.Component) bool { return strings.Contains(name, c.Name) })
		if i < 0 || strings.Contains(name, "admission") {
			continue
		}
		c := rights.All()[i]
		overlay := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), c.Name+"-"), ".yaml")
		options := map[string][]string{ // of those that build upon others
			"environment": {"kubernetes", "environment"}, "kdd": {"kubernetes", "environment"},
			"startup-taint": {"out-of-service", "startup-taint"},
		}[overlay]
		want := listed(c, append(options, overlay))
		if diff := cmp.Diff(want, granted(t, must.Get(os.ReadFile(path)).Or(t))); diff != "" || len(want) == 0 {
			t.Errorf("%s (- internal/rights, + granted):\n%s", name, diff)
		}
	}
}

// listed are the rights of a program with options, one for each line, as granted has them.
func listed(c rights.Component, options []string) []string {
	var out []string
	to := "ServiceAccount " + c.Namespace + "/" + c.Account
	for _, role := range c.Roles(options...) {
		in := role.In
		if in == rights.Own {
			in = c.Namespace
		}
		for _, rule := range role.Rules {
			out = append(out, spread(to+" by "+role.Kind()+" "+in+"/"+role.Name, rule.Policy())...)
		}
	}
	slices.Sort(out)
	return out
}

// granted are the rights that a file grants, to whom and by which role. Roles that nobody is bound to grant none.
func granted(t *testing.T, content []byte) []string {
	t.Helper()
	type object struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		Rules    []rbacv1.PolicyRule
		RoleRef  rbacv1.RoleRef
		Subjects []rbacv1.Subject
	}
	bound := map[string][]string{}
	var roles []object
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var o object
		must.Do(t, yaml.Unmarshal(document, &o))
		if strings.HasSuffix(o.Kind, "Role") {
			roles = append(roles, o)
		}
		for _, s := range o.Subjects {
			by := o.RoleRef.Kind + " " + o.Metadata.Namespace + "/" + o.RoleRef.Name
			bound[by] = append(bound[by], s.Kind+" "+s.Namespace+"/"+s.Name+" by "+by)
		}
	}
	var out []string
	for _, role := range roles {
		for _, to := range bound[role.Kind+" "+role.Metadata.Namespace+"/"+role.Metadata.Name] {
			for _, rule := range role.Rules {
				out = append(out, spread(to, rule)...)
			}
		}
	}
	slices.Sort(out)
	return out
}

// spread is a rule as one line for each verb on each kind of object.
func spread(to string, rule rbacv1.PolicyRule) (out []string) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, strings.TrimSpace(to+": "+verb+" "+resource+"."+group+" "+strings.Join(rule.ResourceNames, " ")))
			}
		}
	}
	return out
}

// TestWrongListsAreRefused: nothing is written from them.
func TestWrongListsAreRefused(t *testing.T) {
	t.Parallel()
	good := rights.Rule{Resources: "nodes", Verbs: "get", Why: "Which there are."}
	change := func(f func(*rights.Rule)) rights.Role {
		bad := good
		f(&bad)
		return rights.Role{Name: "r", Why: "All.", Rules: []rights.Rule{good, bad}}
	}
	for want, role := range map[string]rights.Role{
		"": change(func(*rights.Rule) {}), "it needs rules and a reason": {Name: "r", Why: "All."},
		"a rule needs resources, verbs and a sentence": change(func(r *rights.Rule) { r.Why = "" }),
		"no rule has a wildcard":                       change(func(r *rights.Rule) { r.Verbs = "get, *" }),
		"in the program's namespace alone":             change(func(r *rights.Rule) { r.Resources = "secrets" }),
	} {
		_, err := render(root, []rights.Component{{Name: "c", Parts: []rights.Part{{File: "f", Roles: []rights.Role{role}}}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", role, err, want)
		}
	}
}
