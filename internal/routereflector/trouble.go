// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

const (
	// ShutdownTaint is what cloud controllers set on the Node of a machine that is powered off (k8s.io/cloud-provider,
	// api.TaintNodeShutdown).
	ShutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"
	// Quorum is how many observers must have lost a reflector before it is replaced, or all where there are fewer.
	Quorum = 2
	// WordLost is the word of a reflector that its witnesses have lost although its Node is Ready.
	WordLost = "lost"
	// NoAnswer is what is said of a reflector whose kubelet answers no connection.
	NoAnswer = ", and its kubelet answers no connection"
	// MaxObservers is how many are queried about one reflector: one more than needed, since one of them may be silent.
	MaxObservers = Quorum + 1
)

// Trouble is a reflector whose Node is not Ready, or that its witnesses have lost, with what is waited for before it is
// replaced.
type Trouble struct {
	Node string
	// Word is NotReady, unreachable or lost, or "lost and then" one of the others. Off reports that the cloud has marked
	// the machine as powered off, NoAnswer that its kubelet answers no connection, while others' do.
	Word          string
	Off, NoAnswer bool
	// Since is when the trouble began. The reflector is not replaced before Until, so that a machine that starts again
	// comes back to its role.
	Since, Until time.Time
	// Lost, Held and Silent are the nodes that are queried about it, sorted: those that reported no session with it
	// since the trouble began, those that reported an Established one, and those that have not reported.
	Lost, Held, Silent []string
	// Alone reports that no other reflector works that it had sessions with: nobody is waited for then.
	Alone bool
	// Reported is the time of the newest report about a lost reflector.
	Reported time.Time
	// Spare is the node that takes its place until it returns or is demoted, "" for none.
	Spare string
}

// IsLost reports that the reflector's Node is Ready, and its witnesses have lost it.
func (t *Trouble) IsLost() bool { return t.Word == WordLost }

// Observers are all that are queried about the reflector.
func (t *Trouble) Observers() []string { return slices.Concat(t.Lost, t.Held, t.Silent) }

// Gone reports whether the reflector is given up.
func (t *Trouble) Gone(now time.Time) bool {
	enough := len(t.Lost) >= min(Quorum, len(t.Observers()))
	if t.IsLost() { // one report alone decides nothing, and neither does any without a kubelet's silence where nobody else can be asked
		enough = len(t.Lost) >= Quorum
	}
	return !now.Before(t.Until) && (t.Alone || t.Off || t.NoAnswer || enough)
}

// NeedsSpare reports whether a spare takes the reflector's place already: it has been lost for some time, those who
// decide later whether it is given up report so, and nobody reports a session.
func (t *Trouble) NeedsSpare(now time.Time, after time.Duration) bool {
	if now.Before(t.Since.Add(after)) {
		return false
	}
	most := Quorum
	if !t.IsLost() {
		most = min(Quorum, len(t.Observers()))
	}
	return t.Off || t.NoAnswer || len(t.Held) == 0 && len(t.Lost) > 0 && len(t.Lost) >= most
}

// Describe is the trouble in words: how long it may last, and whose report is missing.
func (t *Trouble) Describe(now time.Time) string {
	if t.Spare != "" {
		return t.describe(now) + fmt.Sprintf("; until then %s takes its place", t.Spare)
	}
	return t.describe(now)
}

func (t *Trouble) describe(now time.Time) string {
	if t.IsLost() {
		return t.describeLost(now)
	}
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	out := fmt.Sprintf("the Node of reflector %s has been %s since %s", t.Node, t.Word, at(t.Since))
	if t.Off {
		out += ", and the cloud reports its machine as powered off"
	}
	if t.NoAnswer {
		out += NoAnswer
	}
	before := ""
	if now.Before(t.Until) {
		before = " after " + at(t.Until)
	}
	switch {
	case t.Gone(now):
		return out + "; it will be replaced"
	case t.Off || t.Alone || t.NoAnswer:
		return out + "; it is replaced" + before
	}
	out += fmt.Sprintf("; it is replaced%s once %d of %s report that they have no session with it", before,
		min(Quorum, len(t.Observers())), strings.Join(slices.Sorted(slices.Values(t.Observers())), ", "))
	if len(t.Lost) > 0 {
		out += ", as " + strings.Join(t.Lost, ", ") + " did"
	}
	return out + fmt.Sprintf(" (BIRD keeps a silent machine's session until %s at the latest)",
		at(t.Since.Add(assumed.HoldTime)))
}

// describeLost is the trouble of a lost reflector in words.
func (t *Trouble) describeLost(now time.Time) string {
	who := strings.Join(t.Lost, ", ")
	if who == "" {
		who = "its witnesses"
	}
	out := fmt.Sprintf(
		"reflector %s is lost since %s, although its Node is Ready: %s report that they have no BGP session with it any more",
		t.Node, t.Since.UTC().Format(time.RFC3339), who)
	if len(t.Held) > 0 {
		out += ", " + strings.Join(t.Held, ", ") + " still one"
	}
	switch {
	case t.Gone(now):
		out += "; it will be replaced"
	case now.Before(t.Until):
		out += fmt.Sprintf("; it is replaced after %s unless %d witnesses report a session again",
			t.Until.UTC().Format(time.RFC3339), Quorum)
	default:
		out += fmt.Sprintf(
			"; it is replaced once %d witnesses that still have a session with another reflector report so again",
			Quorum)
	}
	return out + fmt.Sprintf(
		"; check on %s that calico-node runs, that its disk is not full, and that TCP port 179 is open", t.Node)
}
