// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

const (
	// TakeOverAnnotation on a Namespace: the IDs of load balancers, separated by commas, that Services in the namespace
	// may adopt by naming them although they do not belong to this cluster; "*" for all. It is on the Namespace because
	// authors of Services usually may not write Namespaces.
	TakeOverAnnotation = "cloud.mooring.dev/load-balancer-take-over"
	// HandedOverAnnotation on a Service: the ID of a load balancer that it took over. It is read, never written: that
	// is in the record now ([RecordTakenOver]), where the Service's author cannot take it away.
	HandedOverAnnotation = "cloud.mooring.dev/load-balancer-handed-over"
)

// TakeOver returns which load balancers that are not this cluster's a Service may take over by naming their IDs.
type TakeOver struct {
	// Any lets it take over any; IDs are those that it may.
	Any bool
	IDs []string
	// Since is when this program ran first in the cluster, the zero time if that is not known.
	Since time.Time
	// Problem says why it could not be read what the namespace allows, empty for nothing.
	Problem string
}

// ParseTakeOver reads [TakeOverAnnotation].
func ParseTakeOver(value string) TakeOver {
	var t TakeOver
	for id := range strings.SplitSeq(value, ",") {
		switch id = strings.TrimSpace(id); id {
		case "":
		case "*":
			t.Any = true
		default:
			t.IDs = append(t.IDs, id)
		}
	}
	return t
}

func (t TakeOver) allows(id string) bool { return t.Any || slices.Contains(t.IDs, id) }

// claim is what a Service has to say for a load balancer.
type claim int

const (
	// none is a name or an ID and nothing else, which anybody can write who may write the Service.
	none claim = iota
	// attempted is the record of a request to make one of that name, sent before the load balancer was made, or what
	// the upstream project left.
	attempted
	// shown is the status of the Service, which has the load balancer's address or ID: who may write Services may not
	// write that.
	shown
	// made is the load balancer's name, which is made of the Service's UID.
	made
)

// claimOf is what a Service has to say for a load balancer.
func (s Search) claimOf(service *corev1.Service, o Observed) claim {
	held, asks := heldID(service), service.Annotations[annotation.LoadBalancerID] == o.ID
	switch {
	case o.Name != "" && o.Name == DefaultName(service):
		return made
	case held == o.ID, held == "" && showsAddress(service, o):
		return shown
	case s.itself(service) && (s.Holds == o.ID || s.isGone(held) && showsAddress(service, o) && asks):
		return shown // the upstream project ran again meanwhile, and has replaced what was recorded
	case s.attempted(service, o), s.itself(service) && s.FromBefore && s.mayBeMadeFor(o):
		return attempted
	}
	return none
}

// mayBeMadeFor reports whether a load balancer is the Service's by the upstream project's own rules, and not older.
func (s Search) mayBeMadeFor(o Observed) bool {
	leads := s.Service.Annotations[annotation.LoadBalancerID] == o.ID || o.Name == NameOf(s.Service)
	return leads && heldID(s.Service) == "" && !o.CreatedAt.Before(s.Service.CreationTimestamp.Time)
}

// attempted reports whether a load balancer is what a request has made that is recorded for a Service.
func (s Search) attempted(service *corev1.Service, o Observed) bool {
	if s.itself(service) {
		return madeBy(s.Attempted, o)
	}
	return madeBy(attemptsOf(service), o)
}

// madeBy reports whether a load balancer is what a request that was recorded before it was sent has made: it has the
// request's name, which was free then, and was made since, but not so long after that it is another's.
func madeBy(attempts []Attempt, o Observed) bool {
	return slices.ContainsFunc(attempts, func(a Attempt) bool {
		return a.Name == o.Name && a.At.Sub(o.CreatedAt) <= clocksDiffer && o.CreatedAt.Sub(a.At) <= hidden
	})
}

// itself reports whether a Service is the one that is looked for.
func (s Search) itself(service *corev1.Service) bool {
	return service.UID == s.Service.UID && key(service) == key(s.Service)
}

// rival returns another Service that has the better claim to a load balancer than the Service, nil for none.
func (s Search) rival(o Observed) *corev1.Service {
	best := s.Service
	for _, other := range s.owners(o, false) {
		if s.compare(other, best, o) < 0 {
			best = other
		}
	}
	if best == s.Service {
		return nil
	}
	return best
}

// compare orders Services by their claims to a load balancer, the best first: who held it last, which its name and the
// statuses show, then who names it, then who took it over last, and of those of whom nothing else is known the older
// one. So neither a copy of a Service, annotations included, nor a Service that is older, nor one that had it before
// takes what another one has, and a copy does not stop the original either.
func (s Search) compare(a, b *corev1.Service, o Observed) int {
	names := func(x *corev1.Service) int {
		if x.Annotations[annotation.LoadBalancerID] == o.ID {
			return 1
		}
		return 0
	}
	return cmp.Or(int(s.claimOf(b, o)-s.claimOf(a, o)), names(b)-names(a), recordedAt(b, o).Compare(recordedAt(a, o)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(key(a), key(b)))
}

// owners are the other Services that have a claim to a load balancer, which they keep when they lose the annotation, or
// that name it with the same right as this one: in its namespace. Of another namespace to name it is no right at all,
// or anybody could stop a hand-over. They are those that have not let it go, or those that have.
func (s Search) owners(o Observed, letGo bool) []*corev1.Service {
	return slices.DeleteFunc(slices.Clone(s.Others), func(other *corev1.Service) bool {
		names := other.Namespace == s.Service.Namespace && other.Annotations[annotation.LoadBalancerID] == o.ID
		if s.itself(other) || !names && s.claimOf(other, o) == none {
			return true
		}
		disowned, err := annotation.IsDisowned(other.Annotations)
		return (err == nil && disowned) != letGo
	})
}

func key(service *corev1.Service) string { return service.Namespace + "/" + service.Name }

// foreignTags returns the tags of other clusters if the load balancer does not carry this one's.
func (s Search) foreignTags(o Observed) []string {
	tags := ClusterTags(o.Tags)
	if slices.Contains(tags, ClusterTag(s.ClusterID)) {
		return nil
	}
	return tags
}

// leads is what leads from a Service to a load balancer, in words.
func (s Search) leads(service *corev1.Service, o Observed) string {
	if s.claimOf(service, o) == none {
		return "is named by"
	}
	return "belongs to"
}

// byAnnotation decides about a load balancer that the Service's annotation names: the Service keeps what it holds, and
// takes over what is free.
func (s Search) byAnnotation(o Observed) Identity {
	foreign := func(format string, args ...any) Identity {
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("%s is named by annotation %s, but %s",
			o, annotation.LoadBalancerID, fmt.Sprintf(format, args...))}
	}
	if rival := s.rival(o); rival != nil {
		return foreign("it %s service %s, which has precedence: remove the annotation here, or set %s: \"true\" there",
			s.leads(rival, o), key(rival), annotation.Disown)
	}
	ours := s.ours(o)
	if claim := s.claimOf(s.Service, o); claim > attempted || claim == attempted && s.refusal(o) == "" {
		return ours
	}
	if s.Leaving {
		return foreign("no record shows that it was made for this service: it is left alone")
	}
	ours.TakenOver = true
	if s.TakeOver != nil && s.TakeOver.allows(o.ID) {
		return ours
	}
	held := s.heldID()
	if _, known := s.lookup(held); held != "" && !known {
		identity, _ := s.ask(held, "that the status records")
		return identity
	}
	if has := s.has(o.ID); has != nil {
		return foreign("this service has %s, and does not replace it by another one: "+
			"delete the service and create it again, or remove the annotation", has)
	}
	if s.free(o) {
		return ours
	}
	if s.TakeOver == nil {
		return Identity{
			Ownership: Unclear, AskAllowance: true,
			Message: "whether the namespace may take over load balancers was not queried",
		}
	}
	identity := foreign("%s: it is left alone; an administrator hands it over with kubectl annotate namespace %s %s=%s",
		s.whose(o), s.Service.Namespace, TakeOverAnnotation, o.ID)
	if s.TakeOver.Problem != "" {
		identity.Message += " (" + s.TakeOver.Problem + ")"
	}
	return identity
}

// whose says why a load balancer is not the Service's to take.
func (s Search) whose(o Observed) string {
	if tags := s.foreignTags(o); len(tags) > 0 {
		return fmt.Sprintf("it carries the tag of another cluster (%s)", strings.Join(tags, ", "))
	}
	for _, before := range s.owners(o, true) {
		if s.claimOf(before, o) != none {
			return fmt.Sprintf("it was released by service %s, for services of that namespace", key(before))
		}
	}
	if tag := ClusterTag(s.ClusterID); tag != "" && o.Tags != nil && !slices.Contains(o.Tags, tag) {
		return "it does not carry this cluster's tag"
	}
	return "no record shows that it was made for this service"
}

// heldID is the ID of the load balancer that the Service has by its record or, until an informer shows that, by the
// memory of this process.
func (s Search) heldID() string { return cmp.Or(heldID(s.Service), s.Holds) }

// has is a load balancer other than one that the Service has, by its claim, nil for none.
func (s Search) has(other string) *Observed {
	if o, _ := s.lookup(s.heldID()); o != nil && o.ID != other {
		return o
	}
	i := slices.IndexFunc(s.List, func(o Observed) bool { return o.ID != other && s.claimOf(s.Service, o) > attempted })
	if i < 0 {
		return nil
	}
	return &s.List[i]
}

// free reports whether a Service of the same namespace had a load balancer and has let it go. Neither the cluster's tag
// nor a name makes one free: they tell nothing of whose it was.
func (s Search) free(o Observed) bool {
	return len(s.foreignTags(o)) == 0 && slices.ContainsFunc(s.owners(o, true), func(before *corev1.Service) bool {
		return before.Namespace == s.Service.Namespace && s.claimOf(before, o) != none
	})
}

// HandedOver reports whether a Service took a load balancer over that was not made for it.
func HandedOver(service *corev1.Service, o Observed) bool {
	c := condition(service, ConditionHeld)
	return c != nil && c.Message == o.ID && c.Reason == RecordTakenOver ||
		service.Annotations[HandedOverAnnotation] == o.ID && o.Name != DefaultName(service)
}

// MayDelete reports whether a load balancer may be deleted because its Service is. It may not, with the reason in one
// sentence, if the Service has disowned it, took it over or has no proof that it was made for it, if another Service
// has the better claim to it, or if it is another cluster's: by its tag, or by serving other machines only. A Service
// is easily copied with its annotations, and deleting the copy must not take the original's load balancer along.
func MayDelete(s Search, o Observed) (bool, string) {
	disowned, err := annotation.IsDisowned(s.Service.Annotations)
	switch {
	case err != nil:
		return false, err.Error()
	case disowned:
		return false, fmt.Sprintf("%s is disowned by annotation %s", o, annotation.Disown)
	case HandedOver(s.Service, o):
		return false, fmt.Sprintf("%s was handed over to the service, and is kept: "+
			"delete it at DigitalOcean if it is no longer needed", o)
	}
	if s.claimOf(s.Service, o) == none {
		return false, fmt.Sprintf("%s is kept, since no record shows that it was made for the service", o)
	}
	const how = "to detach the service and keep the load balancer, set annotation %s: \"true\""
	advice := fmt.Sprintf(how, annotation.Disown)
	if rival := s.rival(o); rival != nil {
		return false, fmt.Sprintf("%s belongs to service %s, which has precedence: %s", o, key(rival), advice)
	}
	tag := ClusterTag(s.ClusterID)
	tags := s.foreignTags(o)
	switch {
	case o.Type != "" && o.Type != annotation.TypeRegional && o.Type != annotation.TypeRegionalNetwork:
		return false, fmt.Sprintf("%s is of type %s, which no service has made: %s", o, o.Type, advice)
	case slices.Contains(o.Tags, tag) && tag != "":
		return true, ""
	case tag != "" && len(tags) > 0:
		return false, fmt.Sprintf("%s carries the tag of another cluster (%s): %s", o, strings.Join(tags, ", "), advice)
	case len(s.Droplets) > 0 && !s.serves(o, true):
		return false, fmt.Sprintf("%s serves droplets of which none is of this cluster: %s", o, advice)
	}
	return true, ""
}
