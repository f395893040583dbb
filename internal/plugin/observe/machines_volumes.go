// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// nodeVolumes is what Kubernetes has attached to machines. It is read around DigitalOcean's droplets, so that what
// changes meanwhile is known.
type nodeVolumes struct {
	cluster *Cluster
	side    finding.Side
	// limits are how many volumes each Node can have, by its name, for those that have the driver.
	limits map[string]int
	// ids are the volumes' IDs by the PersistentVolumes' names.
	ids    map[string]string
	before []volumes.Attachment
}

// attachedBefore reads what Kubernetes has attached before DigitalOcean is queried. A cluster of which no machine has
// the driver has nothing to compare.
func (c *Cluster) attachedBefore(ctx context.Context) *nodeVolumes {
	v := &nodeVolumes{cluster: c, limits: map[string]int{}, ids: map[string]string{}}
	v.side.Problem = OneLine(v.read(ctx))
	if v.side.Problem == "" && len(v.limits)+len(v.before) == 0 {
		v.side.NotAsked = "no machine has the driver " + volumes.Driver
	}
	return v
}

func (v *nodeVolumes) read(ctx context.Context) error {
	registered, err := v.cluster.Registered(ctx)
	if err != nil || len(registered) == 0 {
		return err
	}
	for node, driver := range registered {
		v.limits[node] = 0
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			v.limits[node] = int(*driver.Allocatable.Count)
		}
	}
	kept, err := All[corev1.PersistentVolume](ctx, "PersistentVolumes", v.cluster.Typed.CoreV1().PersistentVolumes().List)
	if err != nil {
		return err
	}
	for _, pv := range kept {
		if p, ours := volumeOf(pv); ours {
			v.ids[p.Name] = p.ID
		}
	}
	v.before, err = v.cluster.attachments(ctx, nil)
	return err
}

// beside adds what Kubernetes has attached to the droplets, which were read since.
func (v *nodeVolumes) beside(ctx context.Context, nodes []*corev1.Node, droplets []instance.Droplet) agreement.Volumes {
	out := agreement.Volumes{Side: v.side, IDs: v.ids}
	var after []volumes.Attachment
	if v.side == (finding.Side{}) {
		var err error
		after, err = v.cluster.attachments(ctx, nil)
		out.Problem = OneLine(err)
	}
	seen := map[int]*instance.Droplet{}
	for i := range droplets {
		seen[droplets[i].ID] = &droplets[i]
	}
	by := v.compared(after)
	for _, node := range nodes {
		n := agreement.NodeVolumes{Node: node.Name, Limit: v.limits[node.Name], Attachments: by[node.Name]}
		id, _ := providerid.Parse(node.Spec.ProviderID) // a machine of another kind has none
		d := seen[id]
		if d == nil {
			continue
		}
		n.Cloud, n.Unseen = d.Volumes, d.Volumes == nil
		if _, registered := v.limits[n.Node]; registered || len(n.Cloud)+len(n.Attachments) > 0 {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out
}

// compared are the VolumeAttachments by Node, with what has changed between two readings.
func (v *nodeVolumes) compared(after []volumes.Attachment) map[string][]volumes.Attachment {
	type key struct{ volume, node string }
	states := map[key]volumes.Attachment{}
	out := map[string][]volumes.Attachment{}
	for _, a := range after {
		states[key{a.Volume, a.Node}] = a
	}
	for _, a := range v.before {
		now, there := states[key{a.Volume, a.Node}]
		delete(states, key{a.Volume, a.Node})
		a.Changing = !there || a.Deleting != now.Deleting || a.Attached != now.Attached || v.ids[a.Volume] == ""
		a.Problem = now.Problem
		out[a.Node] = append(out[a.Node], a)
	}
	for _, a := range states { // made since
		a.Changing = true
		out[a.Node] = append(out[a.Node], a)
	}
	return out
}

// Registered is what the CSINodes have of the driver, by the names of Nodes.
func (c *Cluster) Registered(ctx context.Context) (map[string]storagev1.CSINodeDriver, error) {
	out := map[string]storagev1.CSINodeDriver{}
	all, err := All[storagev1.CSINode](ctx, "CSINodes", c.Typed.StorageV1().CSINodes().List)
	for _, n := range all {
		for _, d := range n.Spec.Drivers {
			if d.Name == volumes.Driver {
				out[n.Name] = d
			}
		}
	}
	return out, err
}
