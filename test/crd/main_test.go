// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package crd tests the kinds of Mooring on a real API server: defaults, and every rule with a case that it accepts and one that it rejects.
package crd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// serve returns a client of a cluster that serves the kind of one of the files in config/crd/bases. The list is of that kind.
func serve(t *testing.T, file string, addToScheme func(*runtime.Scheme) error, list client.ObjectList) client.Client {
	t.Helper()
	cluster := controlplane.Shared(t)
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "config", "crd", "bases", file))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	crds, err := apiextensions.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), &crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the kind to be served", func() string {
		if err := c.List(t.Context(), list); err != nil {
			return err.Error()
		}
		return ""
	})
	return c
}

// written is an object as a user writes it.
func written(t *testing.T, version schema.GroupVersion, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", version, kind, name, spec)
	if err := yaml.Unmarshal([]byte(text), &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}
