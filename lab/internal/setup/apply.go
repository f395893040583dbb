// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	calicoconfig "github.com/projectcalico/calico/libcalico-go/config"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is whose fields the applied ones are.
const fieldOwner = client.FieldOwner("mooring-lab")

// componentNamespace is where kustomize puts what the component's manifests leave without a namespace.
const componentNamespace = "mooring-system"

// systemNamespace is Kubernetes' own.
const systemNamespace = "kube-system"

//go:embed manifests/nodes.yaml
var nodesManifest []byte

//go:embed manifests/coredns.yaml
var coreDNSManifest []byte

//go:embed manifests/node-removal.yaml
var removalManifest []byte

// installCalicoResources installs Calico's custom resource definitions, those of the pinned version, and waits until the API server serves them.
func installCalicoResources(ctx context.Context, api client.Client) error {
	definitions, err := calicoconfig.AllCRDs()
	if err != nil {
		return fmt.Errorf("reading Calico's custom resource definitions: %w", err)
	}
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	for _, definition := range definitions {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
		if err != nil {
			return fmt.Errorf("converting %s: %w", definition.Name, err)
		}
		object := &unstructured.Unstructured{Object: content}
		object.SetGroupVersionKind(kind)
		unstructured.RemoveNestedField(object.Object, "status")
		if err := apply(ctx, api, object); err != nil {
			return err
		}
	}
	for _, definition := range definitions {
		if err := waitEstablished(ctx, api, kind, definition.Name); err != nil {
			return err
		}
	}
	return nil
}

func waitEstablished(ctx context.Context, api client.Client, kind schema.GroupVersionKind, name string) error {
	for {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := api.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &definition); err != nil {
			return fmt.Errorf("converting %s: %w", name, err)
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is served: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// applyManifests applies the lab's own and the identities and rights of the product's components that run.
func (o options) applyManifests(ctx context.Context, api client.Client) error {
	if err := applyYAML(ctx, api, nodesManifest, ""); err != nil {
		return err
	}
	if o.realNodes || o.cloudManagerManifests != "" {
		if err := waitNamespace(ctx, api, systemNamespace); err != nil {
			return err
		}
	}
	if o.realNodes {
		if err := applyYAML(ctx, api, coreDNSManifest, ""); err != nil {
			return err
		}
	}
	if o.cloudManagerManifests != "" {
		if err := applyFiles(ctx, api, o.cloudManagerManifests, systemNamespace, "base/service-account.yaml", "base/rbac.yaml", "overlays/out-of-service/rbac.yaml"); err != nil {
			return err
		}
	} else if !o.foreignRemoval {
		if err := applyYAML(ctx, api, removalManifest, ""); err != nil {
			return err
		}
	}
	if o.calicoNodeSyncManifests == "" {
		return nil
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": componentNamespace},
	}}
	if err := apply(ctx, api, namespace); err != nil {
		return err
	}
	return applyFiles(ctx, api, o.calicoNodeSyncManifests, componentNamespace,
		"base/service-account.yaml", "base/rbac.yaml", "leases/rbac.yaml", "overlays/"+o.datastore+"/rbac.yaml")
}

// waitNamespace waits for a namespace that the API server makes by itself, which takes it a moment at the first start.
func waitNamespace(ctx context.Context, api client.Client, name string) error {
	for {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
		err := api.Get(ctx, client.ObjectKey{Name: name}, object)
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for namespace %s: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// applyFiles applies those of a component's files that are there: not every datastore needs rights in Kubernetes.
func applyFiles(ctx context.Context, api client.Client, folder, namespace string, names ...string) error {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading a manifest of %s: %w", filepath.Base(folder), err)
		}
		if err := applyYAML(ctx, api, content, namespace); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// applyYAML applies each document; namespace is for objects that need one and name none.
func applyYAML(ctx context.Context, api client.Client, content []byte, namespace string) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parsing a manifest: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if object.GetNamespace() == "" {
			namespaced, err := api.IsObjectNamespaced(object)
			if err != nil {
				return fmt.Errorf("looking up %s: %w", object.GetKind(), err)
			}
			if namespaced {
				object.SetNamespace(namespace)
			}
		}
		if err := apply(ctx, api, object); err != nil {
			return err
		}
	}
}

// apply applies one object. Right after a start the API server may not serve every kind yet; that is waited for.
func apply(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	for {
		configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		err := api.Apply(ctx, configuration, fieldOwner, client.ForceOwnership)
		if !meta.IsNoMatchError(err) {
			if err != nil {
				return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
