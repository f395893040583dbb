// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// world is a cluster and its account at DigitalOcean, before it is written. A fault changes it.
type world struct {
	*testing.T
	now     time.Time
	objects map[string]runtime.Object // by key in etcd
	cloud   *sim.Simulator
	account *sim.Account
	// droplets are those of the Nodes by name; balancer and volume are the IDs of the load balancer and the volume.
	droplets         map[string]int
	balancer, volume string
	// token is what is in DO_ACCESS_TOKEN.
	token string
	// beating are Leases that somebody renews.
	beating map[string]bool
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) ago(d time.Duration) metav1.Time { return metav1.NewTime(w.now.Add(-d)) }

// prefixes are where the API server keeps kinds whose place is not their plural.
func prefixes() map[string]string {
	return map[string]string{
		"Node": "minions", "Service": "services/specs", "CSIDriver": "csidrivers", "CSINode": "csinodes",
		"StorageClass": "storageclasses", "PodDisruptionBudget": "poddisruptionbudgets", "Endpoints": "services/endpoints",
	}
}

// keyOf is where the API server keeps an object.
func keyOf(kind schema.GroupVersionKind, namespace, name string) string {
	place, known := prefixes()[kind.Kind]
	if !known {
		place = strings.ToLower(kind.Kind) + "s"
		if stem, ends := strings.CutSuffix(place, "ys"); ends {
			place = stem + "ies"
		}
	}
	if !scheme.Scheme.Recognizes(kind) {
		place = kind.Group + "/" + place
	}
	return strings.Join(append([]string{"/registry", place}, compact(namespace, name)...), "/")
}

func compact(parts ...string) (out []string) {
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// put adds objects, each a month old unless it says otherwise.
func (w *world) put(objects ...runtime.Object) {
	w.Helper()
	for _, o := range objects {
		kind := o.GetObjectKind().GroupVersionKind()
		if kind.Empty() {
			kinds, _, err := scheme.Scheme.ObjectKinds(o)
			w.must(err)
			kind = kinds[0]
			o.GetObjectKind().SetGroupVersionKind(kind)
		}
		m, ok := o.(metav1.Object)
		if !ok {
			w.Fatalf("%T has no metadata", o)
		}
		if at := m.GetCreationTimestamp(); at.IsZero() {
			m.SetCreationTimestamp(w.ago(30 * 24 * time.Hour))
		}
		if m.GetUID() == "" {
			m.SetUID(types.UID("uid-of-" + m.GetNamespace() + "-" + m.GetName()))
		}
		w.objects[keyOf(kind, m.GetNamespace(), m.GetName())] = o
	}
}

// of is an object of the world, to be changed in place.
func of[T any](w *world, namespace, name string) *T {
	w.Helper()
	for _, o := range w.objects {
		m, _ := o.(metav1.Object)
		if typed, is := any(o).(*T); is && m.GetNamespace() == namespace && m.GetName() == name {
			return typed
		}
	}
	w.Fatalf("the world has no %s %s/%s", reflect.TypeFor[T](), namespace, name)
	return nil
}

// drop removes an object.
func drop[T any](w *world, namespace, name string) {
	w.Helper()
	gone := any(of[T](w, namespace, name))
	for key, o := range w.objects {
		if any(o) == gone {
			delete(w.objects, key)
		}
	}
}

// manifest puts all objects of a file of dist/; kinds that Kubernetes does not have itself only if a CRD of the walk
// serves them.
func (w *world) manifest(file string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(w.T), "dist", file))
	w.must(err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if w.must(err); len(u.Object) == 0 {
			continue
		}
		kind := u.GroupVersionKind()
		if kind.Kind == "CustomResourceDefinition" || kind.Kind == "Namespace" || strings.HasPrefix(kind.Kind, "Validating") {
			continue
		}
		typed, err := scheme.Scheme.New(kind)
		if err != nil {
			w.put(u)
			continue
		}
		w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed))
		typed.GetObjectKind().SetGroupVersionKind(kind)
		w.put(typed)
	}
}

// encoded is what is written for an object.
func (w *world) encoded(o runtime.Object) string {
	w.Helper()
	text, err := json.Marshal(o)
	w.must(err)
	return string(text)
}

// custom is an object of one of our own or of Calico's kinds.
func (w *world) custom(apiVersion, kind, name string, content map[string]any) *unstructured.Unstructured {
	w.Helper()
	text, err := json.Marshal(content) // plain values, as an API server has them
	w.must(err)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	w.must(json.Unmarshal(text, &u.Object))
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	w.put(u)
	return u
}

// customOf is an object of such a kind.
func (w *world) customOf(kind, name string) *unstructured.Unstructured {
	w.Helper()
	for _, o := range w.objects {
		if u, is := o.(*unstructured.Unstructured); is && u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	w.Fatalf("the world has no %s %s", kind, name)
	return nil
}

// set changes a field of such an object.
func (w *world) set(kind, name string, value any, path ...string) {
	w.Helper()
	var plain any
	text, err := json.Marshal(value)
	w.must(err)
	w.must(json.Unmarshal(text, &plain))
	w.must(unstructured.SetNestedField(w.customOf(kind, name).Object, plain, path...))
}

func (w *world) leaseOf(namespace, name string) *coordinationv1.Lease {
	w.Helper()
	return of[coordinationv1.Lease](w, namespace, name)
}

// decode is a value of an object as another type has it.
func (w *world) decode(from, into any) {
	w.Helper()
	text, err := json.Marshal(from)
	w.must(err)
	w.must(json.Unmarshal(text, into))
}
