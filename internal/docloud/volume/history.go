// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import "strings"

// History is what a volume's actions at DigitalOcean show of the droplets that had it before.
type History int

// Histories. The zero value says nothing.
const (
	// NotShown is a list that does not show the present attachment, and so may lack earlier ones too.
	NotShown History = iota
	// FirstAttachment is a volume that was at no droplet before the one that has it.
	FirstAttachment
	// AttachedBefore is a volume that some droplet has had.
	AttachedBefore
)

// HistoryOf judges by the actions of a volume that is attached. Every attachment has an action, by whomever it was
// made, while a droplet that is destroyed lets a volume go without one. So a second attachment tells as much as a
// detachment. A list that shows the present attachment shows what was before it. An action that failed attached
// nothing.
//
// attachment is the ID of the action of the present attachment. It is 0 if that is not known: then the list must have
// been read so long after the attachment that it shows it, or else it may show only an earlier one.
func HistoryOf(actions []Action, attachment int) History {
	attachments, shown := 0, attachment == 0
	for _, a := range actions {
		shown = shown || a.ID == attachment
		switch {
		case is(a, Detach):
			return AttachedBefore
		case is(a, Attach) && a.Status != Errored:
			attachments++
		}
	}
	switch {
	case attachments > 1:
		return AttachedBefore
	case attachments == 1 && shown:
		return FirstAttachment
	default:
		return NotShown
	}
}

// is reports whether an action is of a kind, by either of the names that DigitalOcean has for it
// ([assumed.AttachTypes]).
func is(a Action, kind ActionKind) bool {
	return strings.TrimSuffix(string(a.Kind), "_volume") == string(kind)
}

// Format is what the attributes of a PersistentVolume say of making a file system on it. The values MUST NOT change.
type Format string

// Formats that are known.
const (
	// FormatNever is a volume of which nothing is known: it may have held data.
	FormatNever Format = ""
	// FormatFirst is a volume that the driver has made of nothing: it is formatted at its first attachment, or never.
	FormatFirst Format = "first"
	// FormatBlank is a volume of which a person has said that it may be formatted whenever it is blank.
	FormatBlank Format = "blank"
)

// Right is whether a volume may be formatted where it is attached, or why it may not. It goes from the controller to
// the node in the publish context: the values MUST NOT change.
type Right string

// Rights. The zero value is an attachment that an earlier version or csi-digitalocean made.
const (
	// RightFirst is the right to make one file system, while the first attachment lasts.
	RightFirst Right = "first"
	// RightBlank is the right to make a file system whenever the volume is blank.
	RightBlank Right = "blank"
	// RightOrigin is none: nothing shows that the volume was made of nothing.
	RightOrigin Right = "no-origin"
	// RightSpent is none: the volume was attached before, and may have held data since.
	RightSpent Right = "attached-before"
	// RightUnknown is none: DigitalOcean did not show the volume's actions.
	RightUnknown Right = "actions-not-shown"
)

// Allows reports whether a file system may be made, given that the volume is blank.
func (r Right) Allows() bool { return r == RightFirst || r == RightBlank }

// RightOf decides by where a volume comes from, and where it was before.
func RightOf(f Format, h History) Right {
	switch {
	case f == FormatBlank:
		return RightBlank
	case f != FormatFirst:
		return RightOrigin
	case h == FirstAttachment:
		return RightFirst
	case h == AttachedBefore:
		return RightSpent
	default:
		return RightUnknown
	}
}
