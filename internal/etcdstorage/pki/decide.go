// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// View is all that is seen of the certificates of one purpose.
type View struct {
	Now      time.Time
	Validity Validity
	Signers  Signers
	// Origin is the issuer from which CAs come, "" for none: then they are made here. Offer is the CA that it has issued last; nil if it has none.
	Origin string
	Offer  *CA
	// Bundles are the places that trust the CAs.
	Bundles []Place
	// Leaves are the places that hold certificates signed by them.
	Leaves []Place
}

// Place is a ConfigMap or a Secret.
type Place struct {
	// Name is for people.
	Name string
	// Blocked reports that it can be neither read nor written now; what it holds is not known.
	Blocked bool
	// Bundle is what a bundle holds.
	Bundle []byte
	// Pair is what a leaf's place holds, and Leaf what it should be.
	Pair Pair
	Leaf Leaf
}

// Deed is what an Action does.
type Deed string

// The deeds, in the order in which they come.
const (
	// MakeCA adds a CA to the signers. What follows depends on it.
	MakeCA Deed = "MakeCA"
	// TakeCA adds the CA of an issuer to the signers.
	TakeCA Deed = "TakeCA"
	// DropCA takes CAs out of the signers that have expired or that nobody needs.
	DropCA Deed = "DropCA"
	// Publish writes the bundle to a place.
	Publish Deed = "Publish"
	// MarkPublished notes in the signers that all bundles hold a CA.
	MarkPublished Deed = "MarkPublished"
	// IssueLeaf issues a certificate to a place.
	IssueLeaf Deed = "IssueLeaf"
)

// Action is one write.
type Action struct {
	Deed   Deed
	Reason string
	// At is the index of the place of Publish and IssueLeaf.
	At int
	// Generation is that of the CA that MakeCA makes or TakeCA takes, or that signs for IssueLeaf.
	Generation int
	// Signers are what TakeCA, DropCA and MarkPublished leave.
	Signers Signers
	// Bundle is what Publish writes.
	Bundle []byte
}

// Decision is what to do about one purpose.
type Decision struct {
	// Actions are the writes, in order. Each is safe after the one before it, and a process that dies between finds the rest again.
	Actions []Action
	// Issuer is the generation that signs now; 0 if there is none yet.
	Issuer int
	// Rotating reports that a newer CA is trusted than the one that signs, or that certificates of an older one are in use.
	Rotating bool
	// Takeover is when the next CA signs at the earliest, if Rotating since it does not yet.
	Takeover time.Time
	// Waiting says what keeps the next CA from signing although it is its time.
	Waiting string
	// Overdue reports that an issuer has not given the next CA although the next one should sign by now, or none that can sign.
	Overdue bool
	// Next is when something is due that is not due now; zero if nothing is.
	Next time.Time
}

const (
	// mostCAs is how many CAs are kept. Two is the ordinary number during a rotation; clocks that jump make more.
	mostCAs = 6
	// maxPropagation is how long a bundle is given to reach anyone who reads it: kubelets renew files within two minutes, proxies read them
	// again within one.
	maxPropagation = 10 * time.Minute
)

// propagation is less for CAs of a short life.
func (v View) propagation() time.Duration { return min(maxPropagation, v.Validity.Signing/24) }

// Decide says what to do now.
func Decide(v View) Decision {
	var d Decision
	if a, needed := v.nextCA(); needed {
		d.Actions = append(d.Actions, a)
		d.Issuer, _ = v.issuer()
		d.Rotating = d.Issuer > 0
		return d
	}
	if d.Overdue = v.overdue(); !slices.ContainsFunc(v.Signers, func(c CA) bool { return c.signs(v.Now) }) {
		return d // an issuer has to give one
	}
	if kept := v.kept(); len(kept) < len(v.Signers) {
		d.Actions = append(d.Actions, Action{Deed: DropCA, Reason: "it has expired, or nothing in use was signed by it", Signers: kept})
		v.Signers = kept
	}
	d.Actions = append(d.Actions, v.publish()...)
	if marked, changed := v.marked(); changed {
		d.Actions = append(d.Actions, Action{Deed: MarkPublished, Reason: "every bundle holds it", Signers: marked})
		v.Signers = marked
	}
	d.Issuer, d.Waiting = v.issuer()
	issuer := v.Signers.of(d.Issuer)
	for i, place := range v.Leaves {
		if place.Blocked {
			continue
		}
		if reason := v.renewal(place, issuer); reason != "" {
			d.Actions = append(d.Actions, Action{Deed: IssueLeaf, Reason: reason, At: i, Generation: d.Issuer})
		}
	}
	newest, _ := v.Signers.newest()
	d.Rotating = newest.Generation != d.Issuer || v.olderInUse(issuer)
	if newest.Generation != d.Issuer {
		d.Takeover = moment(issuer.cert, v.Validity.Signing, 5, 6)
	}
	d.Next = v.next(issuer, newest)
	return d
}

// nextCA is the action that adds a CA, if it is time for one.
func (v View) nextCA() (a Action, needed bool) {
	newest, _ := v.Signers.newest()
	if v.Origin == "" {
		a = Action{Deed: MakeCA, Reason: v.needsCA(), Generation: newest.Generation + 1}
		return a, a.Reason != ""
	}
	if v.Offer == nil || v.Now.After(v.Offer.cert.NotAfter) || slices.ContainsFunc(v.Signers, func(c CA) bool { return c.cert.Equal(v.Offer.cert) }) {
		return Action{}, false
	}
	taken := *v.Offer
	taken.Generation, taken.Origin, taken.Published = newest.Generation+1, v.Origin, time.Time{}
	return Action{
		Deed: TakeCA, Reason: "the issuer has issued it", Generation: taken.Generation, Signers: append(slices.Clone(v.Signers), taken),
	}, true
}

// overdue reports that an issuer is late: the newest CA is where the next one signs, or there is none that can sign.
func (v View) overdue() bool {
	newest, any := v.Signers.newest()
	return v.Origin != "" && (!any || v.Now.After(newest.cert.NotAfter) || newest.after(v.Now, v.Validity.Signing, 5, 6))
}

// needsCA says why a CA must be made, "" if none must. It is made long before it signs: anyone who reads a bundle at its start only, as API
// servers do, has as long to start again.
func (v View) needsCA() string {
	newest, any := v.Signers.newest()
	switch {
	case !any:
		return "there is none"
	case newest.Origin != "":
		return "CAs no longer come from an issuer"
	case !slices.ContainsFunc(v.Signers, func(c CA) bool { return c.signs(v.Now) }):
		return "none can sign now"
	case !newest.signs(v.Now) && !newest.cert.NotBefore.After(v.Now):
		return "the newest cannot sign"
	case newest.signs(v.Now) && newest.after(v.Now, v.Validity.Signing, 1, 2):
		return "half of its validity is over"
	case !newest.signs(v.Now) && v.allOver():
		return "two thirds of the validity of those that can sign are over"
	}
	return ""
}

// allOver reports that all CAs that can sign are in the last third of their lives. It matters where the newest one is valid only later.
func (v View) allOver() bool {
	return !slices.ContainsFunc(v.Signers, func(c CA) bool { return c.signs(v.Now) && !c.after(v.Now, v.Validity.Signing, 2, 3) })
}

// kept are the CAs that remain: those that have not expired, and of many that were made by jumping clocks the newest and those in use.
func (v View) kept() Signers {
	var out Signers
	issuer, _ := v.issuer()
	for i, ca := range v.Signers {
		switch spare := len(v.Signers) - i; {
		case v.Now.After(ca.cert.NotAfter):
		case spare > mostCAs && ca.Generation != issuer && !v.unknown() && !v.inUse(ca):
		default:
			out = append(out, ca)
		}
	}
	return out
}

// inUse reports whether a certificate in some place is signed by the CA, as far as is known.
func (v View) inUse(ca CA) bool {
	return slices.ContainsFunc(v.Leaves, func(p Place) bool {
		cert, err := p.Pair.inspect()
		return err == nil && cert.CheckSignatureFrom(ca.cert) == nil
	})
}

// unknown reports whether a place of a certificate cannot be looked into.
func (v View) unknown() bool {
	return slices.ContainsFunc(v.Leaves, func(p Place) bool { return p.Blocked })
}

func (v View) olderInUse(issuer CA) bool {
	return slices.ContainsFunc(v.Signers, func(c CA) bool { return c.Generation < issuer.Generation && v.inUse(c) })
}

// publish are the writes of bundles that do not hold what they should.
func (v View) publish() []Action {
	var out []Action
	want := v.Signers.Bundle(v.Now)
	for i, place := range v.Bundles {
		if !place.Blocked && !bytes.Equal(place.Bundle, want) {
			out = append(out, Action{Deed: Publish, Reason: "it does not hold the CAs that are trusted", At: i, Bundle: want})
		}
	}
	return out
}

// marked are the signers with the time noted since when every bundle holds each. It comes after the writes of bundles, so that only places
// that are blocked are in the way.
func (v View) marked() (out Signers, changed bool) {
	if slices.ContainsFunc(v.Bundles, func(p Place) bool { return p.Blocked }) {
		return v.Signers, false
	}
	out = slices.Clone(v.Signers)
	for i := range out {
		if out[i].Published.IsZero() {
			out[i].Published, changed = v.Now.UTC().Truncate(time.Second), true
		}
	}
	return out, changed
}

// issuer is the generation that signs: the oldest that can, until it is time for the next one and the next one is known to be trusted.
func (v View) issuer() (generation int, waiting string) {
	var current CA
	for _, ca := range v.Signers {
		if !ca.signs(v.Now) {
			continue
		}
		if current.cert == nil {
			current = ca
			continue
		}
		due := current.after(v.Now, v.Validity.Signing, 5, 6) || v.replaces(ca, current)
		must := current.after(v.Now, v.Validity.Signing, 11, 12)
		trusted := !ca.Published.IsZero() && !v.Now.Before(ca.Published.Add(v.propagation()))
		switch {
		case due && trusted, must:
			current, waiting = ca, ""
		case due && ca.Published.IsZero():
			waiting = fmt.Sprintf("CA %d does not sign yet: it is not known to be in every bundle%s", ca.Generation, v.blocked())
		case due:
			waiting = fmt.Sprintf("CA %d does not sign yet: the bundles with it are on their way", ca.Generation)
		}
	}
	return current.Generation, waiting
}

// replaces reports that a CA signs before the one before it is old, since that one comes from somewhere else than is wanted now. Anyone who
// reads a bundle at its start only has as long for a restart as in any rotation.
func (v View) replaces(next, current CA) bool {
	return v.former(current) && !v.former(next) && !next.Published.IsZero() && !v.Now.Before(v.settled(next))
}

// former reports that a CA, or one after it, comes from somewhere else than is wanted now.
func (v View) former(ca CA) bool {
	return slices.ContainsFunc(v.Signers, func(c CA) bool { return c.Generation >= ca.Generation && c.Origin != v.Origin })
}

// settled is when a CA that was made before its time may sign: a sixth of a CA's life after every bundle held it.
func (v View) settled(ca CA) time.Time { return ca.Published.Add(v.Validity.Signing / 6) }

// blocked names the first bundle that is blocked.
func (v View) blocked() string {
	for _, p := range v.Bundles {
		if p.Blocked {
			return ", such as " + p.Name
		}
	}
	return ""
}

// next is the first moment after the present at which something is due.
func (v View) next(issuer, newest CA) time.Time {
	moments := []time.Time{
		moment(newest.cert, v.Validity.Signing, 1, 2), moment(issuer.cert, v.Validity.Signing, 5, 6), moment(issuer.cert, v.Validity.Signing, 11, 12),
	}
	for _, ca := range v.Signers {
		moments = append(moments, ca.cert.NotAfter.Add(time.Second))
		if !ca.Published.IsZero() {
			moments = append(moments, ca.Published.Add(v.propagation()))
			if v.former(issuer) && !v.former(ca) {
				moments = append(moments, v.settled(ca))
			}
		}
	}
	for _, p := range v.Leaves {
		if cert, err := p.Pair.inspect(); err == nil {
			moments = append(moments, moment(cert, v.Validity.Leaf, 2, 3))
		}
	}
	var out time.Time
	for _, m := range moments {
		if m.After(v.Now) && (out.IsZero() || m.Before(out)) {
			out = m
		}
	}
	return out
}
