// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Attachment is a VolumeAttachment of the driver.
type Attachment struct {
	Volume, Node       string // of Kubernetes
	Attached, Deleting bool
	// Since is when its deletion was requested, or else its creation; the zero time if that is not known.
	Since time.Time
	// Problem is what the last attempt to attach or detach came to, if that failed.
	Problem string
	// Changing is one that came, went or changed while the sides were read: what others know of it may be older or newer.
	Changing bool
}

// Judge is what is known of an attachment by itself. Whether a Pod needs the volume there, [Compare] knows, which reads
// Pods and claims. What takes longer than the driver takes needs attention.
func (a Attachment) Judge(now time.Time) finding.Verdict {
	v := finding.Verdict{State: finding.Settling, Next: "the driver attaches and detaches them"}
	if !a.Since.IsZero() {
		v.Since = &a.Since
	}
	late := ""
	switch {
	case a.Problem != "":
		late = a.Problem
	case a.Changing:
	case a.Deleting:
		late = "it is still not detached"
	case !a.Attached:
		late = "it is still not attached"
	default:
		return finding.Verdict{State: finding.Agree}
	}
	if a.Problem != "" || late != "" && v.Since != nil && now.Sub(a.Since) >= patience {
		v.State, v.What, v.Next = finding.Disagree, late, "kubectl mooring volumes"
	}
	return v
}

// Again takes in the VolumeAttachments as they are after DigitalOcean was read. Those that were there before stay as
// they were; those that have come since are changing.
func (w *World) Again(attachments []Attachment) {
	before := map[[2]string]bool{}
	for _, a := range w.Attachments {
		before[[2]string{a.Volume, a.Node}] = true
	}
	for _, a := range attachments {
		if !before[[2]string{a.Volume, a.Node}] {
			a.Changing = true
			w.Attachments = append(w.Attachments, a)
		}
	}
}
