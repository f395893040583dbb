// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Search is all that says which load balancer is a Service's.
type Search struct {
	Service *corev1.Service
	// Leaving reports that the Service wants none any more: what it asks for counts no longer, only what it has.
	Leaving bool
	// FromBefore reports that the Service is of the time before this program ran first in the cluster, which was just
	// now: what the upstream project would call the Service's counts, if it may have been made for it.
	FromBefore bool
	// Others are all other Services of type LoadBalancer; the Service itself may be among them.
	Others []*corev1.Service
	// ClusterID is the cluster's ID (DO_CLUSTER_ID), empty for none.
	ClusterID string
	// List are the load balancers of the account; Complete says that every page arrived.
	List     []Observed
	Complete bool
	// ByID is what GETs by ID said, by the IDs. One is needed only for an ID that the list lacks.
	ByID map[string]Lookup
	// Droplets are the IDs of this cluster's droplets.
	Droplets []int
	// Rules are the forwarding rules that the Service's load balancer must have.
	Rules []ForwardingRule
	// Holds is the ID of the load balancer that was the Service's when it was last looked for in this process, empty
	// for none.
	Holds string
	// TakeOver is what an administrator lets the Service take over, nil if that was not read.
	TakeOver *TakeOver
	// Attempted are the requests that may have made a load balancer for the Service without a response.
	Attempted []Attempt
}

// Lookup is the answer to a GET by ID: the load balancer, or nil for 404.
type Lookup struct{ Found *Observed }

// Ownership is an identity in one word.
type Ownership string

// What a search may find.
const (
	// Ours means that the load balancer is the Service's.
	Ours Ownership = "ours"
	// Absent means that there is none and that one may be made.
	Absent Ownership = "absent"
	// Foreign means that a load balancer is in the way that is somebody else's: nothing may be made or changed until a
	// person decides.
	Foreign Ownership = "foreign"
	// Unclear means that not enough could be read to tell; it is to be tried again.
	Unclear Ownership = "unclear"
)

// Identity is what a search found.
type Identity struct {
	Ownership Ownership
	// LoadBalancer is the Service's if it is [Ours].
	LoadBalancer *Observed
	// Message says in one sentence why it is [Foreign] or [Unclear], and what a person can do.
	Message string
	// Warning is something to know about a load balancer that is ours, empty for nothing.
	Warning string
	// AskByID is the ID for which a GET is needed to tell, empty for none; AskAllowance reports that it is needed what
	// the namespace may take over.
	AskByID      string
	AskAllowance bool
	// TakenOver reports that the Service takes over by naming it what it did not hold before, Adopted that it has what
	// the upstream project left.
	TakenOver, Adopted bool
}

// Identify finds the load balancer of a Service. It is the Service's
//
//  1. if the record in the Service's status has its ID, and nobody has a later one (see [ConditionHeld]): what was
//     recorded is found without any annotation, and whatever the annotations say when the Service leaves;
//  2. if the Service's annotation has its ID, and the Service has a proof for it, or may take it over: see [TakeOver].
//     No Service takes what another one holds, or changes what it holds for something else;
//  3. if it has one of the Service's names and there is a proof. The default name is one, since it is made of the
//     Service's UID; so is the record of an attempt to make one of that name before it was made ([ConditionAttempted]).
//
// A name alone, a tag alone or both prove nothing: people choose names, and the tag is on all that the cluster ever
// had. One that has the Service's name without a proof is [Foreign]: names are unique in an account, so that it is in
// the way, and it is not taken over. The upstream project takes it (its issue 916), with which a second cluster
// destroys the load balancer of the first.
func Identify(s Search) Identity {
	asked, held := s.Service.Annotations[annotation.LoadBalancerID], s.heldID()
	if held != "" && (s.Leaving || asked == "" || asked == held || s.isGone(asked)) {
		if identity, done := s.byRecord(held); done {
			return identity
		}
	}
	if asked != "" {
		if identity, done := s.byID(asked); done {
			return s.butHas(identity)
		}
	}
	return s.butHas(s.byName())
}

// byRecord follows the record. One that does not exist any more may have been made again, so that the search goes on.
func (s Search) byRecord(id string) (Identity, bool) {
	o, known := s.lookup(id)
	switch {
	case !known:
		return s.ask(id, "that the status records")
	case o == nil:
		return Identity{}, false
	}
	if rival := s.rival(*o); rival != nil {
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("%s was this service's, but it belongs to service %s, "+
			"which has precedence: set annotation %s: \"true\" there to have it back, or here to be told no more",
			o, key(rival), annotation.Disown)}, true
	}
	return s.ours(*o), true
}

// ours is what is the Service's, with a warning about a tag that says otherwise.
func (s Search) ours(o Observed) Identity {
	adopted := s.claimOf(s.Service, o) == attempted && !s.attempted(s.Service, o)
	identity := Identity{Ownership: Ours, LoadBalancer: &o, Adopted: adopted}
	if tags := s.foreignTags(o); len(tags) > 0 {
		identity.Warning = fmt.Sprintf("%s carries the tag of another cluster (%s) and not this one's: "+
			"if that cluster still has it, both will change it in turn", o, strings.Join(tags, ", "))
	}
	return identity
}

// butHas is for a Service that leaves: what it has is its own, although it asked for something else when it left.
func (s Search) butHas(found Identity) Identity {
	if s.Leaving && found.Ownership == Foreign {
		if has := s.has(""); has != nil && s.refusal(*has) == "" {
			return s.ours(*has)
		}
	}
	return found
}

// byID follows the annotation. Without a load balancer of that ID the search goes on by name: it may have been made
// again.
func (s Search) byID(id string) (Identity, bool) {
	o, known := s.lookup(id)
	switch {
	case o == nil && !isID(id): // nothing of that form can be asked for
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("annotation %s is %s, which no load balancer has as "+
			"its ID: write the ID of one, or remove the annotation to have a load balancer made",
			annotation.LoadBalancerID, annotation.Quote(id))}, true
	case !known:
		return s.ask(id, "of annotation "+annotation.LoadBalancerID)
	case o == nil:
		return Identity{}, false
	}
	return s.byAnnotation(*o), true
}

// ask is for an ID that the list lacks, which proves nothing.
func (s Search) ask(id, whose string) (Identity, bool) {
	return Identity{
		Ownership: Unclear, AskByID: id,
		Message: fmt.Sprintf("load balancer %s %s is not in the list, and was not read by ID", id, whose),
	}, true
}

// isID reports whether a text has the form of a load balancer's ID, which is a UUID.
func isID(text string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(text) != len(form) {
		return false
	}
	for i, c := range strings.ToLower(text) {
		if dash := form[i] == '-'; dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdef", c) {
			return false
		}
	}
	return true
}

// lookup returns the load balancer of an ID, nil for one that does not exist. It is not known of one that the list
// lacks and nobody asked for.
func (s Search) lookup(id string) (o *Observed, known bool) {
	if answer, ok := s.ByID[id]; ok { // a list is older
		return answer.Found, true
	}
	if i := slices.IndexFunc(s.List, func(o Observed) bool { return o.ID == id }); i >= 0 {
		return &s.List[i], true
	}
	return nil, false
}

// isGone reports whether a GET said that there is no load balancer of that ID, which is one: a list may be older.
func (s Search) isGone(id string) bool {
	answer, ok := s.ByID[id]
	return ok && answer.Found == nil && isID(id)
}

// byName looks for a load balancer with one of the Service's names.
func (s Search) byName() Identity {
	name := NameOf(s.Service)
	var ours []*Observed
	var inTheWay string
	for i := range s.List {
		o := &s.List[i]
		if !s.named(*o) {
			continue
		}
		why := s.refusal(*o)
		switch {
		case why == "":
			ours = append(ours, o)
		case o.Name == name && inTheWay == "":
			inTheWay = why
		}
	}
	slices.SortFunc(ours, func(a, b *Observed) int { return strings.Compare(a.ID, b.ID) })
	ours = slices.CompactFunc(ours, func(a, b *Observed) bool { return a.ID == b.ID })
	switch {
	case len(ours) > 1:
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("%s and %s could both be this service's: "+
			"set annotation %s to the ID of the right one", ours[0], ours[1], annotation.LoadBalancerID)}
	case len(ours) == 1:
		return s.ours(*ours[0])
	case inTheWay != "":
		return Identity{Ownership: Foreign, Message: inTheWay}
	case !s.Complete:
		return Identity{Ownership: Unclear, Message: "the list of load balancers is not complete, " +
			"so that the service's may be among those that are missing"}
	}
	return Identity{Ownership: Absent}
}

// named reports whether a load balancer has one of the Service's names, and does exist.
func (s Search) named(o Observed) bool {
	own := o.Name == NameOf(s.Service) || o.Name == DefaultName(s.Service)
	return !s.isGone(o.ID) && (own || s.attempted(s.Service, o))
}

// refusal says why a load balancer with one of the Service's names is not the Service's, empty if it is.
func (s Search) refusal(o Observed) string {
	refuse := func(format string, args ...any) string {
		return fmt.Sprintf("%s has the name of this service's load balancer, but %s: it is left alone; rename it, "+
			"choose another name by annotation %s, or set annotation %s to its ID to hand it over",
			o, fmt.Sprintf(format, args...), annotation.Name, annotation.LoadBalancerID)
	}
	// A Service that lets go hands over by ID, not to any Service that takes the name.
	mine := s.claimOf(s.Service, o)
	if owners := slices.Concat(s.owners(o, false), s.owners(o, true)); len(owners) > 0 {
		holder := slices.MinFunc(owners, func(a, b *corev1.Service) int { return s.compare(a, b, o) })
		if mine == none || s.compare(holder, s.Service, o) < 0 {
			return refuse("it %s service %s", s.leads(holder, o), key(holder))
		}
	}
	if why := s.doubt(o, mine); why != "" {
		return refuse("%s", why)
	}
	return ""
}

// doubt says what speaks against a claim to a load balancer that nobody else has, empty for nothing.
func (s Search) doubt(o Observed, mine claim) string {
	tag, tags := ClusterTag(s.ClusterID), ClusterTags(o.Tags)
	own := tag != "" && slices.Contains(tags, tag)
	switch {
	case own && mine != none, mine == shown:
		return ""
	case !own && len(tags) > 0:
		return "it carries the tag of another cluster (" + strings.Join(tags, ", ") + ")"
	case !own && mine != made && tag != "" && o.Tags != nil:
		return "it does not carry this cluster's tag " + tag
	case mine == none:
		return "no record shows that it was made for this service"
	case mine != made && !sameRules(o.ForwardingRules, s.Rules):
		return "its forwarding rules are others"
	case !s.serves(o, mine == made):
		return "none of its droplets is of this cluster"
	}
	return ""
}

// Leftover returns the load balancer that was most likely made for the Service by a process that died before it could
// note that, under a name that the Service has no longer: it carries this cluster's tag, has exactly the Service's
// forwarding rules, and neither the record, the annotation nor the name of any Service refers to it. Nil for none. That
// is a guess, so that nothing but a warning may follow from it.
func Leftover(s Search) *Observed {
	tag := ClusterTag(s.ClusterID)
	if tag == "" {
		return nil
	}
	leads := IndexLeads(append([]*corev1.Service{s.Service}, s.Others...))
	for i, o := range s.List {
		if leads.To(o) == (Lead{}) && slices.Contains(o.Tags, tag) && sameRules(o.ForwardingRules, s.Rules) {
			return &s.List[i]
		}
	}
	return nil
}

// serves reports whether one of a load balancer's droplets is of this cluster; none says what to say of one that has no
// droplets.
func (s Search) serves(o Observed, none bool) bool {
	if len(o.DropletIDs) == 0 {
		return none && o.DropletTag == ""
	}
	return slices.ContainsFunc(o.DropletIDs, func(id int) bool { return slices.Contains(s.Droplets, id) })
}

// sameRules compares rules without their certificates, which are renewed.
func sameRules(a, b []ForwardingRule) bool {
	plain := func(rules []ForwardingRule) []ForwardingRule {
		out := slices.Clone(rules)
		for i := range out {
			out[i].CertificateID = ""
		}
		slices.SortFunc(out, compareRules)
		return out
	}
	return slices.Equal(plain(a), plain(b))
}
