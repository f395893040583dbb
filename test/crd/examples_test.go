// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bgpv1alpha1 "github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Whatever a user may copy from config or docs has only fields that the API server knows: one that was removed from a kind is removed from each example.
func TestExamplesHaveOnlyKnownFields(t *testing.T) {
	t.Parallel()
	clients := map[string]client.Client{
		etcdv1alpha1.GroupVersion.String() + "/EtcdStorage":           storages(t),
		bgpv1alpha1.GroupVersion.String() + "/RouteReflectorTopology": topologies(t),
	}
	tried := map[string]int{}
	for _, folder := range []string{"config", "docs"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			for _, o := range documents(t, path) {
				kind := o.GetAPIVersion() + "/" + o.GetKind()
				c, ours := clients[kind]
				if !ours {
					continue
				}
				tried[kind]++
				if err := client.WithFieldValidation(c, metav1.FieldValidationStrict).Create(t.Context(), o, client.DryRunAll); err != nil {
					t.Errorf("%s: %s: %v", path, o.GetName(), err)
				}
			}
			return nil
		})
		must.Do(t, err)
	}
	for kind := range clients {
		if tried[kind] < 3 {
			t.Errorf("of %s %d examples were found: the search for them is wrong", kind, tried[kind])
		}
	}
}

var fenced = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// documents are the objects in a YAML file, or in the YAML of a page. What is no object, such as a part of one, is left out.
func documents(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	extension := filepath.Ext(path)
	if extension != ".yaml" && extension != ".md" {
		return nil
	}
	text := must.Get(os.ReadFile(path)).Or(t)
	blocks := []string{string(text)}
	if extension == ".md" {
		blocks = nil
		for _, found := range fenced.FindAllStringSubmatch(string(text), -1) {
			blocks = append(blocks, found[1])
		}
	}
	var out []*unstructured.Unstructured
	for _, block := range blocks {
		for document := range strings.SplitSeq("\n"+block, "\n---") {
			o := &unstructured.Unstructured{}
			if yaml.Unmarshal([]byte(document), &o.Object) == nil && o.GetKind() != "" {
				out = append(out, o)
			}
		}
	}
	return out
}
