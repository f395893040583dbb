// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"fmt"
	"time"
)

// Event is a step that a component reported, by an Event or in its journal.
type Event struct {
	// At is when it was reported last; Count is how often, 0 for once.
	At    time.Time
	Count int32
	// Source reported it; About is the object or the machine, "" where that is known.
	Source, About string
	// Reason is one word, Text the sentence.
	Reason, Text string
	Warning      bool
	// Unverified reports that others than the components may have written it, whatever its source says.
	Unverified bool
}

// Said is the sentence, with how often it was reported.
func (e Event) Said() string {
	if e.Count > 1 {
		return fmt.Sprintf("%s (%d times)", e.Text, e.Count)
	}
	return e.Text
}

// Compare orders Events: the last one first, and those of one time by what they say.
func (e Event) Compare(o Event) int {
	return cmp.Or(o.At.Compare(e.At), cmp.Compare(e.Source, o.Source), cmp.Compare(e.About, o.About),
		cmp.Compare(e.Reason, o.Reason), cmp.Compare(e.Text, o.Text), cmp.Compare(e.Count, o.Count))
}
