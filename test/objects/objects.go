// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Parse reads several YAML documents; source names them in errors. A document that is not an object, or holds a key twice, ends the test.
// No content at all is not objects.
func Parse(tb testing.TB, source string, content []byte) []*unstructured.Unstructured {
	tb.Helper()
	if len(bytes.TrimSpace(content)) == 0 {
		return nil
	}
	var all []*unstructured.Unstructured
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &u.Object); err != nil {
			tb.Fatalf("%s: %v", source, err)
		}
		if u.GetKind() == "" || u.GetName() == "" {
			tb.Fatalf("%s holds a document without kind or name:\n%s", source, document)
		}
		all = append(all, u)
	}
	return all
}

// As converts the object, strictly: a field that the type does not have ends the test.
func As[T any](tb testing.TB, u *unstructured.Unstructured) *T {
	tb.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, out, true); err != nil {
		tb.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return out
}

// OfKind returns the objects of a kind, converted as by As, in their order.
func OfKind[T any](tb testing.TB, all []*unstructured.Unstructured, kind string) []*T {
	tb.Helper()
	var out []*T
	for _, u := range all {
		if u.GetKind() == kind {
			out = append(out, As[T](tb, u))
		}
	}
	return out
}
