// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/volumes"
)

const volumesLong = `Find what keeps volumes of DigitalOcean from being attached, mounted or made: two controllers or two node plugins that run one driver, such as
csi-digitalocean alongside digitalocean-csi-driver; node plugins that leave the udev rule of droplets by which new volumes are mounted for a moment;
machines whose CSINode lacks the driver, or whose Node lacks the driver's topology label; StorageClasses that differ from those of the driver's
manifests under the same name, and more than one default class.

Deployments, StatefulSets and DaemonSets in Mooring's namespaces, Nodes, CSINodes, StorageClasses and VolumeSnapshotClasses are read. Files on machines are not:
whether the udev rule is there is not known, only whether something removes it.`

// Annotations of default classes; the older one of StorageClasses still counts (k8s.io/component-helpers, storage/volume).
const (
	defaultClass    = "storageclass.kubernetes.io/is-default-class"
	defaultClassOld = "storageclass.beta.kubernetes.io/is-default-class"
	defaultSnapshot = "snapshot.storage.kubernetes.io/is-default-class"
)

// lookAtVolumes judges what DigitalOcean's volumes need.
func lookAtVolumes(ctx context.Context, x *Examination) []finding.Finding {
	e := doctor.VolumeEvidence{}
	e.Workloads, _, e.Unread = x.workloads(ctx)
	var err error
	e.Machines, err = x.volumeMachines(ctx)
	unread(&e.Unread, "Nodes and CSINodes", err)
	classes, err := observe.All[storagev1.StorageClass](ctx, "", x.cluster.Typed.StorageV1().StorageClasses().List)
	unread(&e.Unread, "StorageClasses", err)
	for _, c := range classes {
		e.Classes = append(e.Classes, volumeClass(c))
	}
	snapshots, _, err := x.cluster.List(ctx, schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"})
	unread(&e.Unread, "VolumeSnapshotClasses", err)
	for _, s := range snapshots {
		driver, _, _ := unstructured.NestedString(s.Object, "driver") // what is of another form is not there
		if driver == volumes.Driver && s.GetAnnotations()[defaultSnapshot] == "true" {
			e.Snapshots = append(e.Snapshots, s.GetName())
		}
	}
	return doctor.Volumes(e)
}

// volumeMachines reads the Nodes that are droplets, with what the driver registered of each.
func (x *Examination) volumeMachines(ctx context.Context) ([]doctor.VolumeMachine, error) {
	nodes, err := x.cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := x.cluster.Registered(ctx)
	if err != nil {
		return nil, err
	}
	var out []doctor.VolumeMachine
	for _, n := range nodes {
		droplet, err := providerid.Parse(n.Spec.ProviderID)
		if err != nil || droplet == 0 {
			continue // a machine of another kind
		}
		m := doctor.VolumeMachine{
			Name: n.Name, Ready: observe.IsReady(n), Droplet: strconv.Itoa(droplet), Region: n.Labels[doctor.RegionKey],
			CloudRegion: n.Labels[corev1.LabelTopologyRegion],
		}
		if d, ok := registered[n.Name]; ok {
			m.Registered, m.ID, m.Keys = true, d.NodeID, d.TopologyKeys
		}
		out = append(out, m)
	}
	return out, nil
}

func volumeClass(c *storagev1.StorageClass) doctor.VolumeClass {
	out := doctor.VolumeClass{
		Name: c.Name, Provisioner: c.Provisioner, Parameters: c.Parameters, Expands: c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion,
		Default: c.Annotations[defaultClass] == "true" || c.Annotations[defaultClassOld] == "true",
	}
	if c.ReclaimPolicy != nil {
		out.Reclaim = string(*c.ReclaimPolicy)
	}
	if c.VolumeBindingMode != nil {
		out.Binding = string(*c.VolumeBindingMode)
	}
	return out
}
