// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// BGPKubernetes is Calico's BGP configuration in the kubernetes datastore. It writes; reading is left to informers, for which
// [BGPKubernetes.AddToScheme] and [NormalizeBGP] are.
//
// The kinds are served in one of two groups: projectcalico.org/v3, by Calico's API server or as native CRDs, or crd.projectcalico.org/v1, the
// CRDs that calico-node itself reads. Where the first is served it is used, since only there somebody else validates.
type BGPKubernetes struct {
	config *rest.Config
	client rest.Interface
	group  schema.GroupVersion
}

// v3Group is the group of Calico's own API.
var v3Group = schema.GroupVersion{Group: apiv3.Group, Version: apiv3.VersionCurrent}

// ErrNoBGPKinds reports that the API server serves Calico's kinds for BGP in neither group.
var ErrNoBGPKinds = errors.New("the API server serves Calico's BGPPeer neither in projectcalico.org/v3 nor in crd.projectcalico.org/v1: " +
	"install Calico with the kubernetes datastore first")

// ErrGroupMoved reports that the kinds are served in another group than when the program started.
var ErrGroupMoved = errors.New("Calico's kinds are served in another API group than at the start; starting again finds the new one") //nolint:staticcheck // Calico is a name

// bgpKinds are the kinds that route reflectors need, by their name in paths.
func bgpKinds() map[string]string {
	return map[string]string{
		"bgppeers": apiv3.KindBGPPeer, "bgpconfigurations": apiv3.KindBGPConfiguration,
		"caliconodestatuses": apiv3.KindCalicoNodeStatus, "clusterinformations": apiv3.KindClusterInformation,
		"bgpfilters": apiv3.KindBGPFilter,
	}
}

// OpenBGP finds out which group is served and makes a client of it. The error is one sentence: the API server cannot be reached, Calico's kinds
// are not there, or one of them is missing.
func OpenBGP(ctx context.Context, config *rest.Config) (*BGPKubernetes, error) {
	b := &BGPKubernetes{config: rest.CopyConfig(config)}
	group, err := b.discover(ctx)
	if err != nil {
		return nil, err
	}
	b.group = group
	if b.client, err = newRESTClient(b.config, group); err != nil {
		return nil, fmt.Errorf("making a client for Calico's resources: %w", err)
	}
	return b, nil
}

// discover returns the first of the two groups in which all kinds are served.
func (b *BGPKubernetes) discover(ctx context.Context) (schema.GroupVersion, error) {
	var missing string
	for _, group := range []schema.GroupVersion{v3Group, crdGroup} {
		client, err := newRESTClient(b.config, group)
		if err != nil {
			return schema.GroupVersion{}, err
		}
		answer, err := do(ctx, client.Get().AbsPath("/apis", group.Group, group.Version))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			// Refused or unavailable is not proof that the group is not there, and to write to the other one meanwhile could be wrong.
			return schema.GroupVersion{}, fmt.Errorf("asking API server %s whether it serves %s: %w", b.config.Host, group, reason(err))
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(answer, &list); err != nil {
			return schema.GroupVersion{}, fmt.Errorf("asking API server %s whether it serves %s: %w", b.config.Host, group, err)
		}
		if missing = lacking(list); missing == "" {
			return group, nil
		}
		missing = fmt.Sprintf("%s has no %s", group, missing)
	}
	if missing != "" {
		return schema.GroupVersion{}, fmt.Errorf("%w (%s)", ErrNoBGPKinds, missing)
	}
	return schema.GroupVersion{}, ErrNoBGPKinds
}

// reason drops the method and the address from an error of transport, which the caller names.
func reason(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// lacking names one of the kinds that the list has not.
func lacking(list metav1.APIResourceList) string {
	served := map[string]bool{}
	for _, r := range list.APIResources {
		served[r.Kind] = true
	}
	for _, resource := range []string{"bgppeers", "bgpconfigurations", "caliconodestatuses", "clusterinformations", "bgpfilters"} {
		if kind := bgpKinds()[resource]; !served[kind] {
			return kind
		}
	}
	return ""
}

// Group is the group in use.
func (b *BGPKubernetes) Group() schema.GroupVersion { return b.group }

// Rediscover asks again, after an answer that the API server has no such kind. The error is [ErrGroupMoved] if it is the other group by now.
func (b *BGPKubernetes) Rediscover(ctx context.Context) error {
	group, err := b.discover(ctx)
	if err != nil {
		return err
	}
	if group != b.group {
		return fmt.Errorf("%w (%s, was %s)", ErrGroupMoved, group, b.group)
	}
	return nil
}

// AddToScheme makes the kinds known in the group in use, so that clients and informers read and watch them there.
func (b *BGPKubernetes) AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(b.group,
		&apiv3.BGPPeer{}, &apiv3.BGPPeerList{}, &apiv3.BGPConfiguration{}, &apiv3.BGPConfigurationList{},
		&apiv3.CalicoNodeStatus{}, &apiv3.CalicoNodeStatusList{}, &apiv3.ClusterInformation{}, &apiv3.ClusterInformationList{},
		&apiv3.BGPFilter{}, &apiv3.BGPFilterList{})
	metav1.AddToGroupVersion(scheme, b.group)
}

// NormalizeBGP gives an object the labels and annotations that Calico sees on it, wherever they are kept. It leaves the UID, which libcalico-go
// would change, as the API server has it, since preconditions need that one. It is for informers' transforms; it never fails.
//
// In crd.projectcalico.org/v1 libcalico-go moves labels and annotations, but for Calico's own, into one annotation with each of its writes, and
// reads both places with the latter first (libcalico-go lib/backend/k8s/resources/resources.go). So a selector of the API server cannot find
// objects that calico-node has written.
func NormalizeBGP(object metav1.Object) {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	text, kept := annotations[metadataAnnotation]
	if !kept {
		return
	}
	var inner objectMetadata
	if json.Unmarshal([]byte(text), &inner) != nil {
		return
	}
	labels := object.GetLabels()
	object.SetLabels(merged(labels, inner.Labels))
	object.SetAnnotations(merged(annotations, inner.Annotations))
}

// merged is outer with inner over it, a map of its own.
func merged(outer, inner map[string]string) map[string]string {
	out := make(map[string]string, len(outer)+len(inner))
	maps.Copy(out, outer)
	maps.Copy(out, inner)
	return out
}

// annotate returns what a merge patch must set to give an object an annotation, or with value nil to take it away, wherever it is kept.
func annotate(object metav1.Object, key string, value *string) map[string]any {
	patch := map[string]any{key: value}
	text, kept := object.GetAnnotations()[metadataAnnotation]
	var inner map[string]json.RawMessage
	if !kept || json.Unmarshal([]byte(text), &inner) != nil {
		return patch
	}
	var annotations map[string]string
	if json.Unmarshal(inner["annotations"], &annotations) != nil || annotations[key] == "" {
		return patch
	}
	delete(annotations, key)
	rest, err := json.Marshal(annotations)
	if err != nil {
		return patch
	}
	inner["annotations"] = rest
	whole, err := json.Marshal(inner)
	if err != nil {
		return patch
	}
	patch[metadataAnnotation] = string(whole)
	return patch
}

// DatastoreReady reads ClusterInformation live. Without one it is false: no calico-node has started yet.
func (b *BGPKubernetes) DatastoreReady(ctx context.Context) (bool, error) {
	raw, err := do(ctx, b.client.Get().Resource("clusterinformations").Name("default"))
	switch {
	case isAbsent(err, "default"):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Calico's ClusterInformation: %w", b.explain(err))
	}
	var info apiv3.ClusterInformation
	if err := json.Unmarshal(raw, &info); err != nil {
		return false, fmt.Errorf("parsing Calico's ClusterInformation: %w", err)
	}
	return info.Spec.DatastoreReady != nil && *info.Spec.DatastoreReady, nil
}

// explain turns the answer to a path that is not served into ErrNotServed.
func (b *BGPKubernetes) explain(err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w: %s", errNotServed, b.group)
	}
	return err
}

// NotServed reports that an error means that the API server does not serve the kind (any more).
func NotServed(err error) bool { return errors.Is(err, errNotServed) }

// create posts an object. It never overwrites: one of that name that exists already is a conflict.
func (b *BGPKubernetes) create(ctx context.Context, resource, name string, object map[string]any) error {
	object["apiVersion"], object["kind"] = b.group.String(), bgpKinds()[resource]
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = do(ctx, b.client.Post().Resource(resource).Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON))
	if apierrors.IsAlreadyExists(err) {
		return &ConflictError{Key: bgpKinds()[resource] + " " + name, Detail: "somebody else created it meanwhile"}
	}
	return b.explain(err)
}

// patch sends a JSON merge patch that holds only for the object with that UID at that resourceVersion.
func (b *BGPKubernetes) patch(ctx context.Context, resource, name string, uid, resourceVersion string, patch map[string]any) error {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = uid, resourceVersion
	patch["metadata"] = metadata
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = do(ctx, b.client.Patch(types.MergePatchType).Resource(resource).Name(name).Body(body))
	return b.conflict(resource, name, err)
}

func (b *BGPKubernetes) delete(ctx context.Context, resource, name, uid, resourceVersion string) error {
	preconditions := &metav1.Preconditions{}
	if id := types.UID(uid); uid != "" {
		preconditions.UID = &id
	}
	if resourceVersion != "" {
		preconditions.ResourceVersion = &resourceVersion
	}
	body, err := json.Marshal(metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: preconditions})
	if err != nil {
		return err
	}
	_, err = do(ctx, b.client.Delete().Resource(resource).Name(name).Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON))
	return b.conflict(resource, name, err)
}

// conflict turns the answers that mean "not as you saw it" into a ConflictError.
func (b *BGPKubernetes) conflict(resource, name string, err error) error {
	if apierrors.IsConflict(err) || isAbsent(err, name) {
		return &ConflictError{Key: bgpKinds()[resource] + " " + name, Detail: err.Error()}
	}
	return b.explain(err)
}
