// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// A kind is what the simulated server knows of one kind in one version.
type kind struct {
	schema.GroupVersionKind
	plural     string
	namespaced bool
	// status reports that the status is a subresource.
	status bool
	// generation reports that metadata.generation counts changes of the spec.
	generation bool
	// custom reports that a CustomResourceDefinition defines it; then structural is the schema for defaults and pruning, and validator judges objects.
	custom     bool
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      func() *cel.Validator
	// conditional reports that an update must name a resourceVersion.
	conditional bool
	// fields are the field selectors that the server supports alongside those of metadata.
	fields []string
	// stored is the plural under which another kind keeps the objects, with names of fields that differ: events are served in two groups.
	stored  string
	renamed map[string]string
}

func (k *kind) resource() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.plural) }

func (k *kind) groupResource() schema.GroupResource { return k.resource().GroupResource() }

// table is the name under which objects of the kind are kept.
func (k *kind) table() string {
	if k.stored != "" {
		return k.stored
	}
	return k.groupResource().String()
}

// builtIn lists the kinds of Kubernetes that are served: group/version, kind, plural, and what of namespaced, status, generation and conditional
// it has, as letters.
const builtIn = `
v1 Node nodes s
v1 Namespace namespaces s
v1 Pod pods nsg
v1 ConfigMap configmaps n
v1 Secret secrets n
v1 Service services ns
v1 Endpoints endpoints n
v1 Event events n
v1 ServiceAccount serviceaccounts n
v1 PersistentVolume persistentvolumes s
v1 PersistentVolumeClaim persistentvolumeclaims ns
apps/v1 Deployment deployments nsg
apps/v1 DaemonSet daemonsets nsg
apps/v1 StatefulSet statefulsets nsg
apps/v1 ReplicaSet replicasets nsg
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy validatingadmissionpolicies sg
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings g
apiregistration.k8s.io/v1 APIService apiservices s
authentication.k8s.io/v1 SelfSubjectReview selfsubjectreviews -
coordination.k8s.io/v1 Lease leases nc
discovery.k8s.io/v1 EndpointSlice endpointslices ng
events.k8s.io/v1 Event events n
networking.k8s.io/v1 NetworkPolicy networkpolicies ng
policy/v1 PodDisruptionBudget poddisruptionbudgets nsgc
rbac.authorization.k8s.io/v1 ClusterRole clusterroles -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings -
rbac.authorization.k8s.io/v1 Role roles n
rbac.authorization.k8s.io/v1 RoleBinding rolebindings n
storage.k8s.io/v1 CSINode csinodes c
storage.k8s.io/v1 StorageClass storageclasses -
storage.k8s.io/v1 VolumeAttachment volumeattachments sc
`

// builtInKinds reads the table.
func builtInKinds() []*kind {
	var out []*kind
	for line := range strings.Lines(strings.TrimSpace(builtIn)) {
		words := strings.Fields(line)
		version, _ := schema.ParseGroupVersion(words[0])
		k := &kind{
			GroupVersionKind: version.WithKind(words[1]), plural: words[2],
			namespaced: strings.Contains(words[3], "n"), status: strings.Contains(words[3], "s"), generation: strings.Contains(words[3], "g"),
			conditional: strings.Contains(words[3], "c"),
		}
		switch k.groupResource().String() {
		case "pods":
			k.fields = []string{
				"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
				"status.phase", "status.podIP", "status.nominatedNodeName",
			}
		case "services":
			k.fields = []string{"spec.clusterIP", "spec.type"}
		case "nodes":
			k.fields = []string{"spec.unschedulable"}
		case "secrets":
			k.fields = []string{"type"}
		case "namespaces":
			k.fields = []string{"status.phase"}
		case "events":
			k.fields = eventFields()
		case "events.events.k8s.io":
			k.stored, k.fields = "events", eventFields()
			k.renamed = map[string]string{
				"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent", "deprecatedSource": "source",
				"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
			}
		}
		out = append(out, k)
	}
	return out
}

func eventFields() []string {
	return []string{
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	}
}

// customKinds are the kinds that a definition makes served, the version that is stored first.
func customKinds(crd *apiextensionsv1.CustomResourceDefinition) ([]*kind, error) {
	var out []*kind
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		k := &kind{
			GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}, plural: crd.Spec.Names.Plural,
			namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, custom: true, generation: true, conditional: true,
			rules:  func() *cel.Validator { return nil },
			status: v.Subresources != nil && v.Subresources.Status != nil,
		}
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			internal := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil); err != nil {
				return nil, fmt.Errorf("converting the schema of %s: %w", crd.Name, err)
			}
			var err error
			if k.structural, err = structuralschema.NewStructural(internal); err != nil {
				return nil, fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
			}
			if k.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
				return nil, fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
			}
			k.rules = sync.OnceValue(func() *cel.Validator { return cel.NewValidator(k.structural, true, celconfig.PerCallLimit) })
		}
		out = append(out, k)
	}
	slices.SortStableFunc(out, func(a, _ *kind) int {
		if slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage && v.Name == a.Version }) {
			return -1
		}
		return 0
	})
	return out, nil
}
