// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// CreatePeer creates one of a topology's BGPPeers. One of that name that exists already, no matter whose it is, is a conflict.
func (b *BGPKubernetes) CreatePeer(ctx context.Context, p routereflector.Peer) error {
	spec, err := fields(p.PeerSpec.Spec())
	if err != nil {
		return err
	}
	metadata := map[string]any{"name": p.Name, "labels": map[string]string{v1alpha1.TopologyLabel: p.Topology}}
	return wrapWrite("creating BGPPeer "+p.Name, b.create(ctx, "bgppeers", p.Name, map[string]any{"metadata": metadata, "spec": spec}))
}

// UpdatePeer gives a topology's BGPPeer the spec that it shall have, if it still is the one that was read. Fields that it shall not have go.
func (b *BGPKubernetes) UpdatePeer(ctx context.Context, p routereflector.Peer, uid, resourceVersion string) error {
	spec, err := fields(p.PeerSpec.Spec())
	if err != nil {
		return err
	}
	for _, field := range peerFields() {
		if _, wanted := spec[field]; !wanted {
			spec[field] = nil
		}
	}
	return wrapWrite("updating BGPPeer "+p.Name, b.patch(ctx, "bgppeers", p.Name, uid, resourceVersion, map[string]any{"spec": spec}))
}

// peerFields are all fields of a BGPPeer's spec, which a test compares with Calico's type.
func peerFields() []string {
	return []string{
		"node", "nodeSelector", "peerIP", "asNumber", "localASNumber", "peerSelector", "keepOriginalNextHop", "nextHopMode", "password",
		"sourceAddress", "maxRestartTime", "numAllowedLocalASNumbers", "ttlSecurity", "reachableBy", "filters", "localWorkloadSelector",
		"reversePeering",
	}
}

// DeletePeer deletes a topology's BGPPeer, if it still is the one that was read.
func (b *BGPKubernetes) DeletePeer(ctx context.Context, name, uid, resourceVersion string) error {
	return wrapWrite("deleting BGPPeer "+name, b.delete(ctx, "bgppeers", name, uid, resourceVersion))
}

// meshBefore is what the mesh had before it was turned off. Calico refuses both while the mesh is off (libcalico-go lib/validator/v3,
// validateBGPConfigurationSpec), so they wait in an annotation.
type meshBefore struct {
	Password    *apiv3.BGPPassword `json:"nodeMeshPassword,omitempty"`
	RestartTime *metav1.Duration   `json:"nodeMeshMaxRestartTime,omitempty"`
}

// SetMesh turns the node-to-node mesh on or off. have is BGPConfiguration default as it was read, nil if there is none, in which case it is
// created. Turning it off stashes the mesh's password and restart time in an annotation, turning it on puts them back.
func (b *BGPKubernetes) SetMesh(ctx context.Context, have *apiv3.BGPConfiguration, on bool) error {
	deed := map[bool]string{true: "turning the node-to-node mesh on", false: "turning the node-to-node mesh off"}[on]
	if have == nil {
		spec := map[string]any{"nodeToNodeMeshEnabled": on}
		return wrapWrite(deed, b.create(ctx, "bgpconfigurations", "default", map[string]any{"metadata": map[string]any{"name": "default"}, "spec": spec}))
	}
	patch, err := meshPatch(have, on)
	if err != nil {
		return fmt.Errorf("%s: %w", deed, err)
	}
	return wrapWrite(deed, b.patch(ctx, "bgpconfigurations", "default", string(have.UID), have.ResourceVersion, patch))
}

// MeshFields are what SetMesh changes of a BGPConfiguration, as [outputs.Write] has them.
func MeshFields() []string {
	return []string{
		outputs.Field("spec", "nodeToNodeMeshEnabled"), outputs.Field("spec", "nodeMeshPassword"),
		outputs.Field("spec", "nodeMeshMaxRestartTime"), outputs.Field("metadata", "annotations", v1alpha1.MeshAnnotation),
		outputs.Field("metadata", "annotations", metadataAnnotation),
	}
}

func meshPatch(have *apiv3.BGPConfiguration, on bool) (map[string]any, error) {
	spec := map[string]any{"nodeToNodeMeshEnabled": on}
	if !on {
		spec["nodeMeshPassword"], spec["nodeMeshMaxRestartTime"] = nil, nil
		before := meshBefore{Password: have.Spec.NodeMeshPassword, RestartTime: have.Spec.NodeMeshMaxRestartTime}
		if before == (meshBefore{}) {
			return map[string]any{"spec": spec}, nil
		}
		text, err := json.Marshal(before)
		if err != nil {
			return nil, err
		}
		value := string(text)
		return map[string]any{"spec": spec, "metadata": map[string]any{"annotations": annotate(have, v1alpha1.MeshAnnotation, &value)}}, nil
	}
	text, stashed := have.Annotations[v1alpha1.MeshAnnotation]
	if !stashed {
		return map[string]any{"spec": spec}, nil
	}
	var before meshBefore
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		return nil, fmt.Errorf("BGPConfiguration default, annotation %s: %q is not what was written there; correct or remove it: %w",
			v1alpha1.MeshAnnotation, text, err)
	}
	if before.Password != nil {
		spec["nodeMeshPassword"] = before.Password
	}
	if before.RestartTime != nil {
		spec["nodeMeshMaxRestartTime"] = before.RestartTime
	}
	return map[string]any{"spec": spec, "metadata": map[string]any{"annotations": annotate(have, v1alpha1.MeshAnnotation, nil)}}, nil
}

// StatusRequest asks calico-node of one node for its sessions.
//
// It is never updated to ask again: calico-node goes by metadata.generation, of which libcalico-go keeps an old value in an annotation, so that it
// would pass an update over, and then write nothing as long as nothing changes (node/pkg/status/reporter.go, HasSameOrNewerSpec). Nor is one of the
// same name created right after another was deleted: calico-node may take the two for an update.
type StatusRequest struct {
	// Name is the object's.
	Name string
	// Node is who is asked.
	Node                string
	Labels, Annotations map[string]string
	// Routes asks for routes as well as for sessions.
	Routes bool
	// Period is how often calico-node looks again, in whole seconds.
	Period time.Duration
}

// classes are what calico-node is asked for.
func (r StatusRequest) classes() []apiv3.NodeStatusClassType {
	classes := []apiv3.NodeStatusClassType{apiv3.NodeStatusClassTypeBGP}
	if r.Routes {
		classes = append(classes, apiv3.NodeStatusClassTypeRoutes)
	}
	return classes
}

// CreateStatus creates a CalicoNodeStatus, which calico-node fills in and keeps up with what changes as long as it is there.
func (b *BGPKubernetes) CreateStatus(ctx context.Context, r StatusRequest) error {
	return wrapWrite("creating CalicoNodeStatus "+r.Name, b.create(ctx, "caliconodestatuses", r.Name, map[string]any{
		"metadata": map[string]any{"name": r.Name, "labels": r.Labels, "annotations": r.Annotations},
		"spec":     map[string]any{"node": r.Node, "classes": r.classes(), "updatePeriodSeconds": int64(r.Period / time.Second)},
	}))
}

// DeleteStatus deletes a CalicoNodeStatus. The resourceVersion does not count, since calico-node writes it all the time.
func (b *BGPKubernetes) DeleteStatus(ctx context.Context, name, uid string) error {
	return wrapWrite("deleting CalicoNodeStatus "+name, b.delete(ctx, "caliconodestatuses", name, uid, ""))
}

func wrapWrite(deed string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", deed, err)
}

// fields is an object as JSON has it.
func fields(object any) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(text, &out)
}
