// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"maps"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// A file system is made where three agree: where the volume comes from (an attribute of its PersistentVolume, which
// cannot be changed), where it was (its actions at DigitalOcean, read after the attachment), and what it holds (the
// node reads it right before). The controller tells the node of the first two in the publish context.

// longestLag is how far the list of a volume's actions may lag behind ([assumed.ListLags]), with a margin.
const longestLag = 40 * time.Second

// formatOf reads what a StorageClass's parameters, or the attributes of a PersistentVolume, say of formatting.
func formatOf(where string, values map[string]string) (volume.Format, error) {
	f := volume.Format(values[FormatKey])
	if f != volume.FormatNever && f != volume.FormatFirst && f != volume.FormatBlank {
		return "", invalid("%s has %s: %q: it can be %q (once, at the first attachment) or %q (whenever the volume is blank)",
			where, FormatKey, f, volume.FormatFirst, volume.FormatBlank)
	}
	return f, nil
}

// made is the attribute of a volume that was made as requested. A copy holds what its source held, and has none.
func made(r *spec.CreateVolumeRequest) (map[string]string, error) {
	f, err := formatOf("the StorageClass", r.GetParameters())
	if err != nil || r.GetVolumeContentSource() != nil {
		return nil, err
	}
	if f == volume.FormatNever {
		f = volume.FormatFirst
	}
	return map[string]string{FormatKey: string(f)}, nil
}

// asksForHistory reports whether an attachment's right depends on the volume's actions.
func asksForHistory(r *spec.ControllerPublishVolumeRequest, f volume.Format) bool {
	return f == volume.FormatFirst && r.GetVolumeCapability().GetBlock() == nil &&
		keptUnformatted(r.GetVolumeContext()) == ""
}

// keptUnformatted returns the attribute that keeps a volume from ever being formatted, "" if it has none.
func keptUnformatted(attributes map[string]string) string {
	for _, key := range noFormatKeys() {
		if _, set := attributes[key]; set {
			return key
		}
	}
	return ""
}

// past is what this process knows of a volume's attachments.
type past struct {
	// before is true once it is known that the volume was attached before. It stays so.
	before bool
	// droplet has the volume, as far as this process knows since a time; action is the ID of the action, 0 if another
	// process began it or its response was lost.
	droplet, action int
	since           time.Time
}

// attaching keeps by which action a volume is on its way to a droplet, 0 if no response says.
func (c *Controller) attaching(id string, droplet, action int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pasts[id] = past{before: c.pasts[id].before, droplet: droplet, action: action, since: c.o.Clock.Now()}
}

// sighted keeps which droplet a volume is at, 0 for none, and returns what is known of it.
func (c *Controller) sighted(id string, droplet int) past {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pasts[id]
	if p.droplet != droplet {
		p = past{before: p.before, droplet: droplet, since: c.o.Clock.Now()}
		c.pasts[id] = p
	}
	return p
}

// leftDroplet keeps that a volume was attached.
func (c *Controller) leftDroplet(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pasts[id] = past{before: true}
}

func (c *Controller) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pasts, id)
}

// history returns what the actions of a volume show that is at a droplet. What was attached before is asked about once.
func (c *Controller) history(ctx context.Context, v volume.Observed, droplet int) volume.History {
	p := c.sighted(v.ID, droplet)
	if p.before {
		return volume.AttachedBefore
	}
	end := p.since.Add(longestLag)
	for wait := settleTime; v.History == volume.NotShown; wait = min(2*wait, longestLag/4) {
		last := !c.o.Clock.Now().Before(end)
		actions, err := c.o.API.LatestActions(ctx, v.ID)
		v.History = volume.HistoryOf(actions, p.action)
		if v.History == volume.FirstAttachment && p.action == 0 && !last {
			v.History = volume.NotShown // it may be an earlier one: the list must be younger than the attachment
		}
		if v.History == volume.NotShown && (last || c.pause(ctx, wait) != nil) {
			c.o.Log.Info("DigitalOcean does not show the attachment among the volume's actions: it is not formatted",
				"volume", v.ID, "error", err)
			break
		}
	}
	if v.History == volume.AttachedBefore {
		c.leftDroplet(v.ID)
	}
	return v.History
}

// reasons are why a volume without a file system does not get one, and what a person can do about it.
func reasons() map[volume.Right]string {
	const again = "If nothing was ever written to it, delete the claim and make another; " +
		"otherwise restore the volume's snapshot"
	return map[volume.Right]string{
		volume.RightOrigin: "and nothing shows that it never had one: only a volume that this driver has made empty " +
			"is formatted. If nothing was ever written to it, make its PersistentVolume again with the attribute " +
			FormatKey + ": " + string(volume.FormatBlank),
		volume.RightSpent:   "and was attached before, so that it may have had one. " + again,
		volume.RightUnknown: "and DigitalOcean did not show whether it was attached before. " + again,
		"":                  "and was attached before this driver could find out whether it ever had one. " + again,
	}
}

// mayFormat returns an error if the publish context gives no right to make a file system on a blank volume.
func mayFormat(publish, attributes map[string]string) error {
	if key := keptUnformatted(attributes); key != "" {
		return status.Errorf(codes.FailedPrecondition,
			"the volume has no file system and its attribute %s keeps it from getting one", key)
	}
	right := volume.Right(publish[FormatKey])
	if right.Allows() {
		return nil
	}
	reason, known := reasons()[right]
	if !known {
		return invalid("the publish context has %s: %q, which is none of %q", FormatKey, right,
			slices.Sorted(maps.Keys(reasons())))
	}
	return status.Errorf(codes.FailedPrecondition, "the volume has no file system, %s", reason)
}
