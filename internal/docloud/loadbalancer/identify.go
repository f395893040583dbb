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
	// Others are all other Services of type LoadBalancer; the Service itself may be among them.
	Others []*corev1.Service
	// ClusterID is the cluster's ID (DO_CLUSTER_ID), empty for none.
	ClusterID string
	// List are the load balancers of the account; Complete says that every page arrived.
	List     []Observed
	Complete bool
	// ByID is what a GET by the ID of the Service's annotation said, nil if nobody asked or it failed. It is needed only if the list lacks it.
	ByID *Lookup
	// Droplets are the IDs of this cluster's droplets.
	Droplets []int
	// Rules are the forwarding rules that the Service's load balancer must have.
	Rules []ForwardingRule
	// Holds is the ID of the load balancer that was the Service's when it was last looked for in this process, empty for none.
	Holds string
	// TakeOver is what an administrator lets the Service take over, nil if that was not read.
	TakeOver *TakeOver
	// Attempted are the names under which a load balancer may have been made for the Service without a response. They count like the Service's
	// own name, which may be another one by now.
	Attempted []string
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
	// Foreign means that a load balancer is in the way that is somebody else's: nothing may be made or changed until a person decides.
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
	// AskByID reports that a GET by the ID of the annotation is needed to tell, AskAllowance that it is needed what the namespace may take over.
	AskByID, AskAllowance bool
	// TakenOver reports that the Service takes over by naming it what it did not hold before.
	TakenOver bool
}

// Identify finds the load balancer of a Service. It is the Service's
//
//  1. if the Service's annotation has its ID, and the Service held it before or it is free to be taken over: see [TakeOver] for what is not this
//     cluster's. No Service takes what another one holds, or changes what it holds for something else;
//  2. if it has the Service's name and the tag of this cluster;
//  3. if it has the Service's default name, which is made of its UID, and no cluster's tag, and does not serve other machines only: load
//     balancers of old releases were neither tagged nor noted on the Service;
//  4. if it has the name that the Service asks for, and tags cannot tell (the cluster has no ID, or the token may not see tags), and it has
//     exactly the Service's forwarding rules and serves machines of this cluster: it was made for the Service just before its maker died.
//
// One that has the name and is none of these is [Foreign]: names are unique in an account, so that it is in the way, and it is not taken over.
// The upstream project takes it (its issue 916), with which a second cluster destroys the load balancer of the first.
func Identify(s Search) Identity {
	if id := s.Service.Annotations[annotation.LoadBalancerID]; id != "" {
		if identity, done := s.byID(id); done {
			return identity
		}
	}
	return s.byName()
}

// byID follows the annotation. Without a load balancer of that ID the search goes on by name: it may have been made again.
func (s Search) byID(id string) (Identity, bool) {
	o := s.lookup(id)
	if o == nil {
		switch {
		case s.ByID != nil && !isID(id):
			return Identity{Ownership: Foreign, Message: fmt.Sprintf("annotation %s is %s, which no load balancer has as its ID: write the ID of one, or remove the annotation "+
				"to have a load balancer made", annotation.LoadBalancerID, annotation.Quote(id))}, true
		case s.ByID != nil: // 404: a list that lacks it would be no proof
			return Identity{}, false
		}
		return Identity{
			Ownership: Unclear, AskByID: true,
			Message: fmt.Sprintf("load balancer %s of annotation %s is not in the list, and was not read by ID", id, annotation.LoadBalancerID),
		}, true
	}
	return s.byAnnotation(*o), true
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

func (s Search) lookup(id string) *Observed {
	if s.ByID != nil && s.ByID.Found != nil && s.ByID.Found.ID == id {
		return s.ByID.Found
	}
	if s.ByID != nil && s.ByID.Found == nil {
		return nil // the list is older
	}
	if i := slices.IndexFunc(s.List, func(o Observed) bool { return o.ID == id }); i >= 0 {
		return &s.List[i]
	}
	return nil
}

// byName looks for a load balancer with one of the Service's names.
func (s Search) byName() Identity {
	name, def := NameOf(s.Service), DefaultName(s.Service)
	var ours []*Observed
	var inTheWay string
	for i := range s.List {
		o := &s.List[i]
		if !s.named(*o) {
			continue
		}
		why := s.refusal(*o, o.Name == def)
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
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("%s and %s could both be this service's: set annotation %s to the ID of the right one",
			ours[0], ours[1], annotation.LoadBalancerID)}
	case len(ours) == 1:
		return Identity{Ownership: Ours, LoadBalancer: ours[0]}
	case inTheWay != "":
		return Identity{Ownership: Foreign, Message: inTheWay}
	case !s.Complete:
		return Identity{Ownership: Unclear, Message: "the list of load balancers is not complete, so that the service's may be among those that are missing"}
	}
	return Identity{Ownership: Absent}
}

// named reports whether a load balancer has one of the Service's names, and is not the one that the annotation names and that is gone.
func (s Search) named(o Observed) bool {
	if s.ByID != nil && s.ByID.Found == nil && o.ID == s.Service.Annotations[annotation.LoadBalancerID] {
		return false // the list is older
	}
	return o.Name == NameOf(s.Service) || o.Name == DefaultName(s.Service) || slices.Contains(s.Attempted, o.Name)
}

// refusal says why a load balancer with one of the Service's names is not the Service's, empty if it is.
func (s Search) refusal(o Observed, byDefaultName bool) string {
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
			return refuse("it belongs to service %s", key(holder))
		}
	}
	tag, tags := ClusterTag(s.ClusterID), clusterTags(o.Tags)
	switch {
	case tag != "" && slices.Contains(tags, tag):
		return ""
	case len(tags) > 0:
		return refuse("it carries the tag of another cluster (%s)", strings.Join(tags, ", "))
	case mine == shown, byDefaultName && s.serves(o, true):
		return ""
	case byDefaultName:
		return refuse("none of its droplets is of this cluster")
	case tag != "" && o.Tags != nil:
		return refuse("it does not carry this cluster's tag %s", tag)
	case !sameRules(o.ForwardingRules, s.Rules):
		return refuse("its forwarding rules are others")
	case !s.serves(o, false):
		return refuse("none of its droplets is of this cluster")
	}
	return ""
}

// Leftover returns the load balancer that was most likely made for the Service by a process that died before it could note that, under a name
// that the Service has no longer: it carries this cluster's tag, has exactly the Service's forwarding rules, and neither the annotation nor the
// name of any Service leads to it. Nil for none. That is a guess, so that nothing but a warning may follow from it.
func Leftover(s Search) *Observed {
	tag := ClusterTag(s.ClusterID)
	if tag == "" {
		return nil
	}
	wanted := map[string]bool{}
	for _, service := range append([]*corev1.Service{s.Service}, s.Others...) {
		wanted[NameOf(service)], wanted[DefaultName(service)] = true, true
		wanted[service.Annotations[annotation.LoadBalancerID]] = true
	}
	for i, o := range s.List {
		if !wanted[o.Name] && !wanted[o.ID] && slices.Contains(o.Tags, tag) && sameRules(o.ForwardingRules, s.Rules) {
			return &s.List[i]
		}
	}
	return nil
}

// serves reports whether one of a load balancer's droplets is of this cluster; none says what to say of one that has no droplets.
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
