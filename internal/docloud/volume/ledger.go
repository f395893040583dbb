// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import "slices"

// Ledger is what reads of the account's list of actions have shown without a gap, the newest first. The zero value
// shows nothing.
type Ledger struct {
	actions []Action
	whole   bool // there are no older ones
}

// Add takes what one read of the list showed, the newest first; whole reports that there are no older ones. Where that
// does not reach back to the newest action that was read before, others may be between the two, and what was read
// before is forgotten. The newest are kept, up to a number.
func (l *Ledger) Add(read []Action, whole bool, most int) {
	if len(read) == 0 {
		return
	}
	fresh := make(map[int]bool, len(read))
	all := make([]Action, 0, len(read))
	add := func(actions []Action) {
		for _, a := range actions {
			if !fresh[a.ID] { // pages move while they are read
				fresh[a.ID] = true
				all = append(all, a)
			}
		}
	}
	meets := l.Meets(read)
	add(read)
	if meets {
		add(l.actions)
		whole = whole || l.whole
	}
	l.actions, l.whole = all[:min(len(all), most)], whole && len(all) <= most
}

// Meets reports whether what is read reaches back to what was read before.
func (l *Ledger) Meets(read []Action) bool {
	return len(l.actions) > 0 && slices.ContainsFunc(read, func(a Action) bool { return a.ID == l.actions[0].ID })
}

// Index returns how many actions are newer than one, as far as is known; -1 if it is not known.
func (l *Ledger) Index(action int) int {
	return slices.IndexFunc(l.actions, func(a Action) bool { return a.ID == action })
}

// History judges by the account's actions, which do not say whose they are: FirstAttachment, or NotShown if they do not
// prove that. They prove it if they reach back to before the volume was created, show its attachment, and every other
// attachment since is known to be another volume's.
//
// attachment is the ID of the volume's action, and owner returns the ID of the volume of another action, "" if it is
// not known.
func (l *Ledger) History(v Observed, attachment int, owner func(action int) string) History {
	shown, whole := false, l.whole
	for _, a := range l.actions {
		switch {
		case a.Began.IsZero() || v.Created.IsZero():
			return NotShown
		case a.Began.Before(v.Created):
			whole = true
		case a.ID == attachment:
			shown = true
		case is(a, Attach) && a.Status != Errored && (owner(a.ID) == "" || owner(a.ID) == v.ID):
			return NotShown
		}
	}
	if shown && whole {
		return FirstAttachment
	}
	return NotShown
}
