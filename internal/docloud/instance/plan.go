// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// Existence is a verdict in one word.
type Existence string

// The verdicts. Only [Gone] lets Kubernetes delete a Node; [Unknown] is an error to it and is asked again.
const (
	Exists  Existence = "exists"
	Gone    Existence = "gone"
	Unknown Existence = "unknown"
)

// Trust reports whether what DigitalOcean answers can be about this cluster at all.
type Trust string

// The states of trust. Without [Trusted] nothing may be deleted, and no load balancer may be made: the answers may be about another account.
const (
	Trusted Trust = "trusted"
	// AnotherAccount means that the token is one of another account than the recorded one.
	AnotherAccount Trust = "another account"
	// NothingVisible means that none of the cluster's droplets is visible.
	NothingVisible Trust = "nothing visible"
	// Unverified means that the account or the list of droplets could not be read, so that neither of the above can be ruled out. What is
	// visible exists, nothing more can be said.
	Unverified Trust = "unverified"
)

// Reason says why a verdict is [Unknown]; it is the label of a metric and MUST not be changed.
type Reason string

// The reasons.
const (
	ReasonNone           Reason = ""
	ReasonAccount        Reason = "account"         // the account is another one or could not be read
	ReasonNothingVisible Reason = "nothing-visible" // none of the cluster's droplets is visible
	ReasonProviderID     Reason = "provider-id"     // the Node has none, or one that names no droplet
	ReasonList           Reason = "list"            // the list is missing, partial, too old, or still holds the droplet
	ReasonAnswer         Reason = "answer"          // the droplet was not asked for by ID, too long ago, or in vain
	ReasonPace           Reason = "pace"            // it is not its turn yet
	ReasonUnseen         Reason = "unseen"          // DigitalOcean has not shown the droplet yet, and the Node is young
)

// Verdict is what is to be told about one Node.
type Verdict struct {
	Node string
	// Droplet is the ID of the Node's droplet, 0 if the Node does not say.
	Droplet   int
	Existence Existence
	// Reason and Message say why a verdict is Unknown; Message is one sentence.
	Reason  Reason
	Message string
}

// Plan is the verdict on all Nodes, and what is to be read and remembered.
type Plan struct {
	Trust Trust
	// Message says in one sentence why Trust is not [Trusted].
	Message string
	// Verdicts has one entry per Node, in the order of names.
	Verdicts []Verdict
	// Record reports that the current account is to be recorded as this cluster's: there was none, and a droplet of the cluster is visible.
	Record bool
	// Refresh reports that a new list would allow more verdicts; Ask are the droplets that are to be asked for by ID, in ascending order.
	Refresh bool
	Ask     []int
	// Memory is to be remembered.
	Memory Memory
}

// Verdict returns the verdict on a Node.
func (d Plan) Verdict(node string) (Verdict, bool) {
	i, ok := slices.BinarySearchFunc(d.Verdicts, node, func(v Verdict, name string) int { return strings.Compare(v.Node, name) })
	if !ok {
		return Verdict{}, false
	}
	return d.Verdicts[i], true
}

// MakePlan gives the verdict on the existence of every Node; the package's comment says by which rules.
func MakePlan(w World, c Config) Plan {
	s := survey(w, c)
	d := Plan{Memory: recent(w, c), Refresh: !w.List.fresh(w.Now, c)}
	d.Trust, d.Message = s.trust(w, c)
	d.Record = w.Recorded == Account{} && d.Trust == Trusted && s.visible
	var candidates []int
	for _, node := range w.Nodes {
		v := s.verdict(w, c, d, node)
		d.Verdicts = append(d.Verdicts, v)
		if v.Existence == Gone {
			candidates = append(candidates, v.Droplet)
		}
		switch v.Reason {
		case ReasonAnswer:
			d.Ask = append(d.Ask, v.Droplet)
		case ReasonList:
			d.Refresh = true
		default:
		}
	}
	if d.Trust == NothingVisible {
		d.Refresh, d.Ask = true, s.probe(w, c)
	}
	s.pace(&d, w, c, candidates)
	slices.SortFunc(d.Verdicts, func(a, b Verdict) int { return strings.Compare(a.Node, b.Node) })
	slices.Sort(d.Ask)
	d.Ask = slices.Compact(d.Ask)
	return d
}

// census is what a World says, digested.
type census struct {
	known, listed map[int]bool
	// visible reports that a known droplet was seen.
	visible bool
}

func survey(w World, c Config) census {
	s := census{known: map[int]bool{}, listed: map[int]bool{}}
	for _, id := range w.Known {
		s.known[id] = true
	}
	for _, node := range w.Nodes {
		if id, err := providerid.Parse(node.Spec.ProviderID); err == nil {
			s.known[id] = true
		}
	}
	for _, id := range w.List.Droplets {
		s.listed[id] = true
	}
	for id := range s.known {
		if s.seen(w, c, id) {
			s.visible = true
		}
	}
	return s
}

// seen reports that the newest word about a droplet is that it is there: the list holds it and no later GET missed it, or a GET that is neither
// old nor older than the list found it.
func (s census) seen(w World, c Config, id int) bool {
	answer := w.Answers[id]
	switch answer.Outcome {
	case AnswerFound:
		return s.listed[id] || !answer.At.Before(w.List.At) && w.Now.Sub(answer.At) <= c.MaxAnswerAge
	case AnswerNotFound:
		return s.listed[id] && !answer.At.After(w.List.At)
	default:
		return s.listed[id]
	}
}

// fresh reports that a list may be believed about what it lacks.
func (l List) fresh(now time.Time, c Config) bool {
	return !l.At.IsZero() && l.Complete && now.Sub(l.At) <= c.MaxListAge
}

// probes is how many droplets are asked for when none is visible: enough to see that all is well again, too few to hurt.
const probes = 3

// probe returns the droplets to ask for when none is visible: the first of those that were not asked for lately.
func (s census) probe(w World, c Config) []int {
	var ids []int
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		if answer, ok := w.Answers[id]; len(ids) < probes && (!ok || w.Now.Sub(answer.At) > c.MaxAnswerAge) {
			ids = append(ids, id)
		}
	}
	return ids
}

// trust reports whether the answers can be about this cluster. A cluster of which no droplet is known yet has nothing that could be lost.
func (s census) trust(w World, c Config) (Trust, string) {
	switch {
	case w.Recorded != Account{} && w.Current != Account{} && !w.Recorded.SameOwner(w.Current):
		return AnotherAccount, fmt.Sprintf("the token is one of account %s, but this cluster's droplets are in account %s: nothing is deleted; "+
			"give a token of that account", w.Current, w.Recorded)
	case w.Current == Account{}:
		return Unverified, "the account of the token could not be read: nothing is deleted"
	case len(s.known) == 0 || s.visible:
		return Trusted, ""
	case !w.List.fresh(w.Now, c):
		return Unverified, "none of the cluster's droplets is visible, but there is no complete list of droplets either: nothing is deleted"
	default:
		return NothingVisible, fmt.Sprintf("none of the cluster's %d known droplets is visible to the token of account %s: nothing is deleted; "+
			"check the token and its scopes", len(s.known), w.Current)
	}
}

// verdict decides about one Node without regard to the pace.
func (s census) verdict(w World, c Config, d Plan, node *corev1.Node) Verdict {
	v := Verdict{Node: node.Name, Existence: Unknown}
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		v.Reason, v.Message = ReasonProviderID, fmt.Sprintf("node %s: %v", node.Name, err)
		return v
	}
	v.Droplet = id
	switch d.Trust {
	case AnotherAccount:
		v.Reason, v.Message = ReasonAccount, d.Message
		return v
	case NothingVisible:
		v.Reason, v.Message = ReasonNothingVisible, d.Message
		return v
	case Trusted, Unverified:
	}
	switch {
	case s.seen(w, c, id):
		v.Existence = Exists
		return v
	case w.Current == Account{}:
		v.Reason, v.Message = ReasonAccount, d.Message
		return v
	}
	v.Reason, v.Message = s.doubt(w, c, id)
	if _, shown := w.Shown[id]; v.Reason == ReasonNone && !shown && !Established(node, w.Now) {
		v.Reason = ReasonUnseen
		v.Message = fmt.Sprintf("DigitalOcean has not shown droplet %d yet: it does not count as gone until node %s is %s old",
			id, node.Name, JoinTime)
	}
	if v.Reason == ReasonNone {
		v.Existence = Gone
	}
	return v
}

// JoinTime is how long DigitalOcean's API may take to show the droplet of a new Node, by ID and in its lists.
const JoinTime = 5 * time.Minute

// Established reports whether a 404 for a Node's droplet can mean that the droplet is gone, and not that DigitalOcean
// does not show it yet: the Node has existed for [JoinTime], or a cloud controller has described the droplet in its
// labels. All four labels are needed, since a kubelet may set one by itself.
func Established(node *corev1.Node, now time.Time) bool {
	if now.Sub(node.CreationTimestamp.Time) >= JoinTime {
		return true
	}
	size, region := node.Labels[corev1.LabelInstanceTypeStable], node.Labels[corev1.LabelTopologyRegion]
	return size != "" && region != "" && size == node.Labels[corev1.LabelInstanceType] &&
		region == node.Labels[corev1.LabelFailureDomainBetaRegion]
}

// doubt says what is missing before a droplet can be declared gone, [ReasonNone] for nothing.
func (s census) doubt(w World, c Config, id int) (Reason, string) {
	answer := w.Answers[id]
	switch {
	case w.List.At.IsZero() || !w.List.Complete:
		return ReasonList, fmt.Sprintf("droplet %d: the list of droplets is not complete, so that a missing droplet proves nothing", id)
	case !w.List.fresh(w.Now, c):
		return ReasonList, fmt.Sprintf("droplet %d: the list of droplets is older than %s", id, c.MaxListAge)
	case s.listed[id]:
		return ReasonList, fmt.Sprintf("droplet %d is not found by ID, but the list before that still held it", id)
	case answer.Outcome == AnswerFailed:
		return ReasonAnswer, fmt.Sprintf("droplet %d is not in the list, and reading it failed: %s", id, answer.Problem)
	case answer.Outcome != AnswerNotFound:
		return ReasonAnswer, fmt.Sprintf("droplet %d is not in the list, and was not read by ID since", id)
	case w.Now.Sub(answer.At) > c.MaxAnswerAge:
		return ReasonAnswer, fmt.Sprintf("droplet %d was not found by ID, but that is longer than %s ago", id, c.MaxAnswerAge)
	}
	return ReasonNone, ""
}

// recent returns the losses within the window, in ascending order of droplets.
func recent(w World, c Config) Memory {
	var kept []Loss
	for _, loss := range w.Memory.Gone {
		// A loss of the future is one of a clock that was set back; it counts until that time is over.
		if w.Now.Sub(loss.At) < c.Window {
			kept = append(kept, loss)
		}
	}
	slices.SortFunc(kept, func(a, b Loss) int { return a.Droplet - b.Droplet })
	return Memory{Gone: kept}
}

// pace lets as many of the candidates go as the window allows, those first that went before, then by ID, and puts the others off until
// enough lists have lacked them.
func (s census) pace(d *Plan, w World, c Config, candidates []int) {
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	granted := map[int]bool{}
	for _, loss := range d.Memory.Gone {
		granted[loss.Droplet] = true
	}
	allowance := c.allowance(len(s.known))
	free := allowance - len(granted)
	for _, id := range candidates {
		proven := c.ProofLists > 0 && w.Missed[id] >= c.ProofLists
		if !granted[id] && (free > 0 || proven) {
			free--
			granted[id] = true
			d.Memory.Gone = append(d.Memory.Gone, Loss{Droplet: id, At: w.Now})
		}
	}
	slices.SortFunc(d.Memory.Gone, func(a, b Loss) int { return a.Droplet - b.Droplet })
	for i, v := range d.Verdicts {
		if v.Existence == Gone && !granted[v.Droplet] {
			d.Verdicts[i].Existence, d.Verdicts[i].Reason = Unknown, ReasonPace
			d.Verdicts[i].Message = fmt.Sprintf("droplet %d is gone, like many others: %d droplets may be declared gone within %s, so it has to wait, or %d lists, %s apart, have to lack it",
				v.Droplet, allowance, c.Window.Round(time.Second), c.ProofLists, c.ProofEvery)
		}
	}
}
