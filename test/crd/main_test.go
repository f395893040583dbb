// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package crd tests the kinds of Mooring on a real API server: defaults, and every rule with a case that it accepts and one that it rejects.
package crd

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// serve returns a client of a cluster that serves one of our kinds.
func serve(t *testing.T, plural string, addToScheme func(*runtime.Scheme) error) client.Client {
	t.Helper()
	cluster := controlplane.Shared(t)
	cluster.InstallCRDs(t, controlplane.OwnKind(t, plural))
	scheme := runtime.NewScheme()
	must.Do(t, addToScheme(scheme))
	c := must.Get(client.New(cluster.Config, client.Options{Scheme: scheme})).Or(t)
	return c
}

// written is an object as a user writes it.
func written(t *testing.T, version schema.GroupVersion, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", version, kind, name, spec)
	must.Do(t, yaml.Unmarshal([]byte(text), &out.Object))
	return out
}
