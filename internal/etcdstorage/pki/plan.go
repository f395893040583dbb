// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// World is all that is seen of the certificates of one purpose.
type World struct {
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

// Step is one write. The set of steps is closed: only the types below implement it.
//
//sumtype:decl
type Step interface {
	// Because returns why.
	Because() string
	step()
}

// Reason is why a step is planned.
type Reason string

// Because implements Step.
func (r Reason) Because() string { return string(r) }

// The kinds of steps. At is the index of a place.
type (
	// MakeCA adds a CA to the signers. What follows depends on it.
	MakeCA struct {
		Reason
		Generation int
	}
	// TakeCA adds the CA of an issuer to the signers, which are these then.
	TakeCA struct {
		Reason
		Signers Signers
	}
	// ChangeSigners takes CAs out of the signers that have expired or that nobody needs, or notes in them that all bundles hold a CA.
	ChangeSigners struct {
		Reason
		Signers Signers
	}
	// Publish writes the bundle to a place.
	Publish struct {
		Reason
		At     int
		Bundle []byte
	}
	// IssueLeaf issues a certificate to a place, signed by the CA of the generation.
	IssueLeaf struct {
		Reason
		At, Generation int
	}
)

func (MakeCA) step()        {}
func (TakeCA) step()        {}
func (ChangeSigners) step() {}
func (Publish) step()       {}
func (IssueLeaf) step()     {}

// Plan is what to do about one purpose.
type Plan struct {
	// Steps are the writes, in order. Each is safe after the one before it, and a process that dies between finds the rest again.
	Steps []Step
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
func (w World) propagation() time.Duration { return min(maxPropagation, w.Validity.Signing/24) }

// MakePlan says what to do now.
func MakePlan(w World) Plan {
	var p Plan
	if s := w.nextCA(); s != nil {
		p.Steps = append(p.Steps, s)
		p.Issuer, _ = w.issuer()
		p.Rotating = p.Issuer > 0
		return p
	}
	if p.Overdue = w.overdue(); !slices.ContainsFunc(w.Signers, func(c CA) bool { return c.signs(w.Now) }) {
		return p // an issuer has to give one
	}
	if kept := w.kept(); len(kept) < len(w.Signers) {
		p.Steps = append(p.Steps, ChangeSigners{"it has expired, or nothing in use was signed by it", kept})
		w.Signers = kept
	}
	p.Steps = append(p.Steps, w.publish()...)
	if marked, changed := w.marked(); changed {
		p.Steps = append(p.Steps, ChangeSigners{"every bundle holds it", marked})
		w.Signers = marked
	}
	p.Issuer, p.Waiting = w.issuer()
	issuer := w.Signers.of(p.Issuer)
	for i, place := range w.Leaves {
		if place.Blocked {
			continue
		}
		if reason := w.renewal(place, issuer); reason != "" {
			p.Steps = append(p.Steps, IssueLeaf{Reason(reason), i, p.Issuer})
		}
	}
	newest, _ := w.Signers.newest()
	p.Rotating = newest.Generation != p.Issuer || w.olderInUse(issuer)
	if newest.Generation != p.Issuer {
		p.Takeover = moment(issuer.cert, w.Validity.Signing, 5, 6)
	}
	p.Next = w.next(issuer, newest)
	return p
}

// nextCA is the step that adds a CA, nil if it is not time for one.
func (w World) nextCA() Step {
	newest, _ := w.Signers.newest()
	if w.Origin == "" {
		if reason := w.needsCA(); reason != "" {
			return MakeCA{Reason(reason), newest.Generation + 1}
		}
		return nil
	}
	if w.Offer == nil || w.Now.After(w.Offer.cert.NotAfter) || slices.ContainsFunc(w.Signers, func(c CA) bool { return c.cert.Equal(w.Offer.cert) }) {
		return nil
	}
	taken := *w.Offer
	taken.Generation, taken.Origin, taken.Published = newest.Generation+1, w.Origin, time.Time{}
	return TakeCA{"the issuer has issued it", append(slices.Clone(w.Signers), taken)}
}

// overdue reports that an issuer is late: the newest CA is where the next one signs, or there is none that can sign.
func (w World) overdue() bool {
	newest, any := w.Signers.newest()
	return w.Origin != "" && (!any || w.Now.After(newest.cert.NotAfter) || newest.after(w.Now, w.Validity.Signing, 5, 6))
}

// needsCA says why a CA must be made, "" if none must. It is made long before it signs: anyone who reads a bundle at its start only, as API
// servers do, has as long to start again.
func (w World) needsCA() string {
	newest, any := w.Signers.newest()
	switch {
	case !any:
		return "there is none"
	case newest.Origin != "":
		return "CAs no longer come from an issuer"
	case !slices.ContainsFunc(w.Signers, func(c CA) bool { return c.signs(w.Now) }):
		return "none can sign now"
	case !newest.signs(w.Now) && !newest.cert.NotBefore.After(w.Now):
		return "the newest cannot sign"
	case newest.signs(w.Now) && newest.after(w.Now, w.Validity.Signing, 1, 2):
		return "half of its validity is over"
	case !newest.signs(w.Now) && w.allOver():
		return "two thirds of the validity of those that can sign are over"
	}
	return ""
}

// allOver reports that all CAs that can sign are in the last third of their lives. It matters where the newest one is valid only later.
func (w World) allOver() bool {
	return !slices.ContainsFunc(w.Signers, func(c CA) bool { return c.signs(w.Now) && !c.after(w.Now, w.Validity.Signing, 2, 3) })
}

// kept are the CAs that remain: those that have not expired, and of many that were made by jumping clocks the newest and those in use.
func (w World) kept() Signers {
	var out Signers
	issuer, _ := w.issuer()
	for i, ca := range w.Signers {
		switch spare := len(w.Signers) - i; {
		case w.Now.After(ca.cert.NotAfter):
		case spare > mostCAs && ca.Generation != issuer && !w.unknown() && !w.inUse(ca):
		default:
			out = append(out, ca)
		}
	}
	return out
}

// inUse reports whether a certificate in some place is signed by the CA, as far as is known.
func (w World) inUse(ca CA) bool {
	return slices.ContainsFunc(w.Leaves, func(p Place) bool {
		cert, err := p.Pair.inspect()
		return err == nil && cert.CheckSignatureFrom(ca.cert) == nil
	})
}

// unknown reports whether a place of a certificate cannot be looked into.
func (w World) unknown() bool {
	return slices.ContainsFunc(w.Leaves, func(p Place) bool { return p.Blocked })
}

func (w World) olderInUse(issuer CA) bool {
	return slices.ContainsFunc(w.Signers, func(c CA) bool { return c.Generation < issuer.Generation && w.inUse(c) })
}

// publish are the writes of bundles that do not hold what they should.
func (w World) publish() []Step {
	var out []Step
	want := w.Signers.Bundle(w.Now)
	for i, place := range w.Bundles {
		if !place.Blocked && !bytes.Equal(place.Bundle, want) {
			out = append(out, Publish{"it does not hold the CAs that are trusted", i, want})
		}
	}
	return out
}

// marked are the signers with the time noted since when every bundle holds each. It comes after the writes of bundles, so that only places
// that are blocked are in the way.
func (w World) marked() (out Signers, changed bool) {
	if slices.ContainsFunc(w.Bundles, func(p Place) bool { return p.Blocked }) {
		return w.Signers, false
	}
	out = slices.Clone(w.Signers)
	for i := range out {
		if out[i].Published.IsZero() {
			out[i].Published, changed = w.Now.UTC().Truncate(time.Second), true
		}
	}
	return out, changed
}

// issuer is the generation that signs: the oldest that can, until it is time for the next one and the next one is known to be trusted.
func (w World) issuer() (generation int, waiting string) {
	var current CA
	for _, ca := range w.Signers {
		if !ca.signs(w.Now) {
			continue
		}
		if current.cert == nil {
			current = ca
			continue
		}
		due := current.after(w.Now, w.Validity.Signing, 5, 6) || w.replaces(ca, current)
		must := current.after(w.Now, w.Validity.Signing, 11, 12)
		trusted := !ca.Published.IsZero() && !w.Now.Before(ca.Published.Add(w.propagation()))
		switch {
		case due && trusted, must:
			current, waiting = ca, ""
		case due && ca.Published.IsZero():
			waiting = fmt.Sprintf("CA %d does not sign yet: it is not known to be in every bundle%s", ca.Generation, w.blocked())
		case due:
			waiting = fmt.Sprintf("CA %d does not sign yet: the bundles with it are on their way", ca.Generation)
		}
	}
	return current.Generation, waiting
}

// replaces reports that a CA signs before the one before it is old, since that one comes from somewhere else than is wanted now. Anyone who
// reads a bundle at its start only has as long for a restart as in any rotation.
func (w World) replaces(next, current CA) bool {
	return w.former(current) && !w.former(next) && !next.Published.IsZero() && !w.Now.Before(w.settled(next))
}

// former reports that a CA, or one after it, comes from somewhere else than is wanted now.
func (w World) former(ca CA) bool {
	return slices.ContainsFunc(w.Signers, func(c CA) bool { return c.Generation >= ca.Generation && c.Origin != w.Origin })
}

// settled is when a CA that was made before its time may sign: a sixth of a CA's life after every bundle held it.
func (w World) settled(ca CA) time.Time { return ca.Published.Add(w.Validity.Signing / 6) }

// blocked names the first bundle that is blocked.
func (w World) blocked() string {
	for _, p := range w.Bundles {
		if p.Blocked {
			return ", such as " + p.Name
		}
	}
	return ""
}

// next is the first moment after the present at which something is due.
func (w World) next(issuer, newest CA) time.Time {
	moments := []time.Time{
		moment(newest.cert, w.Validity.Signing, 1, 2), moment(issuer.cert, w.Validity.Signing, 5, 6), moment(issuer.cert, w.Validity.Signing, 11, 12),
	}
	for _, ca := range w.Signers {
		moments = append(moments, ca.cert.NotAfter.Add(time.Second))
		if !ca.Published.IsZero() {
			moments = append(moments, ca.Published.Add(w.propagation()))
			if w.former(issuer) && !w.former(ca) {
				moments = append(moments, w.settled(ca))
			}
		}
	}
	for _, p := range w.Leaves {
		if cert, err := p.Pair.inspect(); err == nil {
			moments = append(moments, moment(cert, w.Validity.Leaf, 2, 3))
		}
	}
	var out time.Time
	for _, m := range moments {
		if m.After(w.Now) && (out.IsZero() || m.Before(out)) {
			out = m
		}
	}
	return out
}
