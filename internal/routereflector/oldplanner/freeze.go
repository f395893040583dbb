// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// The observed state is compared with a baseline: how many Nodes there were a while ago, and how many of them the selectors selected. It is
// in the topology's status, so that it survives the program.
//
//	Nodes that are gone            may be an autoscaler's work. If half of them are, nothing is written until a list of the API server has confirmed it
//	                               and it has stood for a while; no person is needed.
//	Nodes that are still there     and are selected no more have lost a label. If half of them have, only a person can say whether that is meant: labels
//	                               are taken from all nodes at once by upgrades, and never by an autoscaler.
//
// Both may happen little by little: what has been less for a while becomes the new baseline, and so does at once whatever only adds to it.
const (
	// DoubtPeriod is how long a loss must have stood to be believed, be it one that is doubted or a lesser one. A Node that was deleted by mistake
	// is registered again by its kubelet well before.
	DoubtPeriod = 5 * time.Minute
	// leastVanished is how many Nodes must be gone before that is noticed: of two or three one may well go.
	leastVanished = 2
)

// census is what is counted.
type census struct {
	now v1alpha1.Baseline
	// nodes, clients and candidates are those of the same names that were there at the time of the baseline, marked all reflectors of the topology.
	nodes, clients, candidates, marked int32
}

func (w candidates) census() census {
	out := census{now: v1alpha1.Baseline{Selectors: w.selectors()}}
	spec, before := &w.Topology.Spec, w.Topology.Status.Baseline
	var newest time.Time
	for i := range w.Nodes {
		n := &w.Nodes[i]
		there := int32(boolInt(before != nil && !n.Created.After(before.Newest.Time)))
		client := int32(boolInt(n.speaks() && selects(spec.ClientSelector, n.Labels)))
		candidate := int32(boolInt(n.speaks() && selects(spec.Reflectors.Required, n.Labels)))
		reflector := int32(boolInt(n.marked(&w.Topology)))
		out.now.Nodes++
		out.now.Clients += client
		out.now.Candidates += candidate
		out.now.Reflectors += reflector * candidate
		out.nodes += there
		out.clients += there * client
		out.candidates += there * candidate
		out.marked += reflector
		if n.Created.After(newest) {
			newest = n.Created
		}
	}
	out.now.Time = second(w.Now)
	if !newest.IsZero() {
		out.now.Newest = second(newest)
	}
	return out
}

// second is a time as the API server keeps it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// selectors names what was selected by, so that a selector that was changed on purpose is told from labels that were lost.
func (w candidates) selectors() string {
	sum := sha256.Sum256([]byte(calicoSelector(w.Topology.Spec.ClientSelector) + "\x00" + calicoSelector(w.Topology.Spec.Reflectors.Required)))
	return hex.EncodeToString(sum[:6])
}

// word is what a person repeats in an annotation to confirm the observed state. It is another one for every baseline.
func word(b *v1alpha1.Baseline) string {
	sum := sha256.Sum256(fmt.Append(nil, b.Time.Unix(), b.Newest.Unix(), b.Nodes, b.Clients, b.Candidates, b.Reflectors, b.Selectors))
	return hex.EncodeToString(sum[:4])
}

// doubt says why the observed state is not trusted, nil if it is.
func (w candidates) doubt() *Refusal {
	b := w.Topology.Status.Baseline
	if b == nil || w.Topology.Annotations[v1alpha1.ConfirmAnnotation] == word(b) {
		return nil
	}
	c := w.census()
	gone := c.gone(b)
	if vanished(b, c) && !(w.stood(b) && w.Confirmed) && !w.emergency() {
		return refuse(ReasonNodesVanished, "of %d Nodes at %s there are %d left; nothing is written until this has lasted for %s and a list of the API "+
			"server confirms it, or until a person who knows that it is true runs %s",
			b.Nodes, b.Time.UTC().Format(time.RFC3339), c.now.Nodes, DoubtPeriod, w.howToConfirm(v1alpha1.ConfirmAnnotation, word(b)))
	}
	if b.Selectors != c.now.Selectors || w.exiting() {
		return nil
	}
	for _, s := range []struct {
		field     string
		were, are int32
		everyone  int32
		gone      int32
	}{
		{"spec.clientSelector", b.Clients, c.clients, c.now.Clients, gone},
		{"spec.reflectors.required", b.Candidates, c.candidates, c.now.Candidates, gone},
		{"spec.reflectors.required", min(b.Reflectors, c.marked), c.now.Reflectors, c.now.Candidates, 0},
	} {
		remain := s.were - s.gone
		if remain <= 0 || 2*s.are >= remain {
			continue
		}
		reason, what := ReasonMatchesTooFew, fmt.Sprintf("only %d", s.are)
		if s.everyone == 0 {
			reason, what = ReasonMatchesNothing, "none"
		}
		return refuse(reason, "%s selects %s of the %d Nodes that it selected at %s and that still exist; nothing is written until their labels are back, the selector "+
			"is changed, or a person who knows that it is intended runs %s",
			s.field, what, remain, b.Time.UTC().Format(time.RFC3339), w.howToConfirm(v1alpha1.ConfirmAnnotation, word(b)))
	}
	return nil
}

// vanished reports that so many fewer Nodes are there that it is not believed at once. That others have come in their place is not a loss:
// pools are replaced.
func vanished(b *v1alpha1.Baseline, c census) bool {
	fewer := b.Nodes - c.now.Nodes
	return fewer >= leastVanished && 2*fewer >= b.Nodes
}

// stood reports that the observed state has been doubted for long enough.
func (w candidates) stood(b *v1alpha1.Baseline) bool {
	return b.DoubtedSince != nil && w.Now.Sub(b.DoubtedSince.Time) >= DoubtPeriod
}

// believe is the baseline from now on, and whether a list of the API server would end a doubt.
func (w candidates) believe() (baseline *v1alpha1.Baseline, confirm bool) {
	b, c := w.Topology.Status.Baseline, w.census()
	if b == nil {
		return &c.now, false
	}
	if doubt := w.doubt(); doubt != nil {
		kept := b.DeepCopy()
		kept.FewerSince = nil
		if kept.DoubtedSince == nil {
			since := second(w.Now)
			kept.DoubtedSince = &since
		}
		return kept, doubt.Reason == ReasonNodesVanished && w.stood(b)
	}
	kept := b.DeepCopy()
	kept.DoubtedSince, kept.FewerSince = nil, nil
	meant := w.Topology.Annotations[v1alpha1.ConfirmAnnotation] == word(b) || b.Selectors != c.now.Selectors
	switch {
	case c.same(kept):
		return kept, false
	case vanished(b, c) && !meant && !w.Confirmed:
		return b.DeepCopy(), false // in an emergency what is gone is acted on, not believed
	case meant, c.grown(b), vanished(b, c):
		return &c.now, false
	}
	// A list that lacks some Nodes for a moment lowers nothing: until some have been missing for a while, all of them count. FewerSince is the time of
	// the first loss, and another one does not put it off, so that who vanished last counts for a shorter while.
	since := second(w.Now)
	if b.FewerSince != nil {
		since = *b.FewerSince
	}
	if kept.FewerSince = &since; w.Now.Sub(since.Time) >= DoubtPeriod {
		return &c.now, false
	}
	return kept, false
}

// gone counts the Nodes of the baseline that are there no more.
func (c census) gone(b *v1alpha1.Baseline) int32 { return max(b.Nodes-c.nodes, 0) }

// same reports that nothing has changed.
func (c census) same(b *v1alpha1.Baseline) bool {
	now := c.now
	now.Time, now.Newest = b.Time, b.Newest
	return c.gone(b) == 0 && now == *b
}

// grown reports that nothing of the baseline is lost.
func (c census) grown(b *v1alpha1.Baseline) bool {
	return c.gone(b) == 0 && c.clients >= b.Clients && c.candidates >= b.Candidates && c.now.Reflectors >= b.Reflectors
}
