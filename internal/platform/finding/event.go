// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import "time"

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
