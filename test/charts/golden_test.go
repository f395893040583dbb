// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A valueSet is a file of values as a user might have it, testdata/values/NAME.yaml; what it renders is in testdata/golden/NAME.yaml.
type valueSet struct{ name, namespace, values string }

// valueSets are all value sets, with the namespace that their release is for.
func valueSets(t *testing.T) []valueSet {
	t.Helper()
	paths, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(paths) < 6 {
		t.Fatalf("there are %d value sets, %v", len(paths), err)
	}
	var out []valueSet
	for _, path := range paths {
		content := must.Get(os.ReadFile(path)).Or(t)
		set := valueSet{name: strings.TrimSuffix(filepath.Base(path), ".yaml"), namespace: namespace, values: string(content)}
		switch {
		case strings.HasPrefix(set.name, "cloud-"):
			set.namespace = cloudNamespace
		case strings.HasPrefix(set.name, "etcd-storage-"):
			set.namespace = etcdNamespace
		}
		out = append(out, set)
	}
	return out
}

// TestGoldenRenders shows each change of what the chart renders as a change of a file, and has each pod judged: all meet the restricted Pod Security
// Standard but DigitalOcean's controller and the route reflectors' operator, which are on their machines' network and thereby privileged; but for that, they
// are restricted as well. What the API server says of the sets is in TestServerAcceptsEveryObject.
func TestGoldenRenders(t *testing.T) {
	t.Parallel()
	golden := map[string]bool{}
	for _, set := range valueSets(t) {
		path := filepath.Join("testdata", "golden", set.name+".yaml")
		golden[path] = true
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			out, complaint, err := helm(t, set.values, "template", "mooring", chart, "--namespace", set.namespace)
			if err != nil {
				t.Fatalf("helm template: %v\n%s", err, complaint)
			}
			compareGolden(t, path, abridged(out))
			checkStandards(t, set.name, out)
		})
	}
	paths := must.Get(filepath.Glob("testdata/golden/*")).Or(t)
	for _, path := range paths {
		if !golden[path] {
			t.Errorf("%s belongs to no file of testdata/values", path)
		}
	}
}

// compareGolden compares with a golden file, or writes it.
func compareGolden(t *testing.T, path, have string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(have), 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./test/charts -run TestGoldenRenders -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), have); diff != "" {
		t.Errorf("%s differs (- want, + rendered); if that is meant, go test ./test/charts -run TestGoldenRenders -update:\n%s", path, diff)
	}
}

// abridged leaves the contents of generated files out: they are compared with their origins elsewhere, and are thousands of lines.
func abridged(rendered string) string {
	documents := strings.SplitAfter(rendered, "\n---\n")
	for i, document := range documents {
		for kind, field := range map[string]string{
			"CustomResourceDefinition": "spec", "ConfigMap": "data", "PrometheusRule": "spec", "ValidatingAdmissionPolicy": "spec",
		} {
			if !strings.Contains(document, "\nkind: "+kind+"\n") {
				continue
			}
			if head, rest, ok := strings.Cut(document, "\n"+field+":\n"); ok {
				document = head + "\n" + field + ": # left out\n"
				if strings.HasSuffix(rest, "\n---\n") {
					document += "---\n"
				}
			}
		}
		documents[i] = document
	}
	return strings.Join(documents, "")
}

// checkStandards compares the strictest standard that each pod meets with the one that it should.
func checkStandards(t *testing.T, source, rendered string) {
	t.Helper()
	all := objects.Parse(t, source, []byte(rendered))
	objects.CheckPods(t, source, all)
	for _, d := range objects.OfKind[appsv1.Deployment](t, all, "Deployment") {
		want := api.LevelRestricted
		if d.Spec.Template.Spec.HostNetwork {
			if d.Name != cloudComponent && d.Name != reflectorsComponent {
				t.Errorf("%s: the pods of %s are on their machines' network", source, d.Name)
			}
			want = api.LevelPrivileged
		}
		if have := objects.Standard(t, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec); have != want {
			t.Errorf("%s: the pods of %s meet the standard %s, and should meet %s", source, d.Name, have, want)
		}
	}
}
