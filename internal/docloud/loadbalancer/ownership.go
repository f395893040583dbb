// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

const (
	// TakeOverAnnotation on a Namespace: the IDs of load balancers, separated by commas, that Services in the namespace may adopt by naming
	// them although they do not belong to this cluster; "*" for all. It is on the Namespace because authors of Services usually may not write
	// Namespaces.
	TakeOverAnnotation = "cloud.mooring.dev/load-balancer-take-over"
	// HandedOverAnnotation on a Service: the ID of a load balancer that the Service adopted by naming it. It is not deleted with the Service;
	// without the annotation it is deleted.
	HandedOverAnnotation = "cloud.mooring.dev/load-balancer-handed-over"
)

// TakeOver returns which load balancers that are not this cluster's a Service may take over by naming their IDs.
type TakeOver struct {
	// Any lets it take over any; IDs are those that it may.
	Any bool
	IDs []string
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

// claim is what a Service has to say for a load balancer that its annotation names.
type claim int

const (
	// none is a name of an ID and nothing else, which anybody can write who may write the Service.
	none claim = iota
	// shown is the status of the Service, which has the load balancer's address or ID: who may write Services may not write that.
	shown
	// made is the load balancer's name, which is made of the Service's UID.
	made
)

// claimOf is what a Service has to say for a load balancer.
func (s Search) claimOf(service *corev1.Service, o Observed) claim {
	switch {
	case o.Name != "" && o.Name == DefaultName(service):
		return made
	case isRecorded(service, o), showsAddress(service, o), s.itself(service) && s.Holds == o.ID:
		return shown
	}
	return none
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

// compare orders Services by their claims to a load balancer, the best first: who held it last, which its name and the statuses show, then who names
// it, then who took it over last, and of those of whom nothing else is known the older one. So neither a copy of a Service, annotations
// included, nor a Service that is older, nor one that had it before takes what another one has, and a copy does not stop the original either.
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

// owners are the other Services that name a load balancer or have a claim to it, which they keep when they lose the annotation: those that
// have not let it go, or those that have.
func (s Search) owners(o Observed, letGo bool) []*corev1.Service {
	return slices.DeleteFunc(slices.Clone(s.Others), func(other *corev1.Service) bool {
		if s.itself(other) || other.Annotations[annotation.LoadBalancerID] != o.ID && s.claimOf(other, o) == none {
			return true
		}
		disowned, err := annotation.IsDisowned(other.Annotations)
		return (err == nil && disowned) != letGo
	})
}

func key(service *corev1.Service) string { return service.Namespace + "/" + service.Name }

// foreignTags returns the tags of other clusters if the load balancer does not carry this one's.
func (s Search) foreignTags(o Observed) []string {
	tags := clusterTags(o.Tags)
	if slices.Contains(tags, ClusterTag(s.ClusterID)) {
		return nil
	}
	return tags
}

// byAnnotation decides about a load balancer that the Service's annotation names: the Service keeps what it holds, and takes over what is free.
func (s Search) byAnnotation(o Observed) Identity {
	foreign := func(format string, args ...any) Identity {
		return Identity{Ownership: Foreign, Message: fmt.Sprintf("%s is named by annotation %s, but "+format, append([]any{o, annotation.LoadBalancerID}, args...)...)}
	}
	if rival := s.rival(o); rival != nil {
		return foreign("it belongs to service %s, which has precedence: remove the annotation here, or set %s: \"true\" there", key(rival), annotation.Disown)
	}
	ours := Identity{Ownership: Ours, LoadBalancer: &o}
	if tags := s.foreignTags(o); len(tags) > 0 {
		ours.Warning = fmt.Sprintf("%s carries the tag of another cluster (%s) and not this one's: if that cluster still has it, both will change it in turn",
			o, strings.Join(tags, ", "))
	}
	if s.claimOf(s.Service, o) != none {
		return ours
	}
	// What its name would give to the Service as well was made for it, by a process that died before the status could show it.
	ours.TakenOver = !s.named(o) || s.refusal(o, false) != ""
	if !ours.TakenOver || s.TakeOver != nil && s.TakeOver.allows(o.ID) {
		return ours
	}
	if has := s.has(o); has != nil {
		return foreign("this service has %s, and does not replace it by another one: delete the service and create it again, or remove the annotation", has)
	}
	if s.free(o) {
		return ours
	}
	if s.TakeOver == nil {
		return Identity{Ownership: Unclear, AskAllowance: true, Message: "whether the namespace may take over load balancers was not queried"}
	}
	whose := "it does not carry this cluster's tag"
	if tags := s.foreignTags(o); len(tags) > 0 {
		whose = fmt.Sprintf("it carries the tag of another cluster (%s)", strings.Join(tags, ", "))
	}
	identity := foreign("%s: it is left alone; an administrator hands it over with kubectl annotate namespace %s %s=%s", whose, s.Service.Namespace, TakeOverAnnotation, o.ID)
	if s.TakeOver.Problem != "" {
		identity.Message += " (" + s.TakeOver.Problem + ")"
	}
	return identity
}

// has is another load balancer that the Service has, by its claim, nil for none.
func (s Search) has(o Observed) *Observed {
	i := slices.IndexFunc(s.List, func(other Observed) bool { return other.ID != o.ID && s.claimOf(s.Service, other) != none })
	if i < 0 {
		return nil
	}
	return &s.List[i]
}

// free reports whether a load balancer is this cluster's and nobody's there: it carries the cluster's tag, or a Service of the cluster that
// had it has let it go, or, where tags cannot tell, it is what was made for this Service.
func (s Search) free(o Observed) bool {
	if tag := ClusterTag(s.ClusterID); tag != "" && slices.Contains(o.Tags, tag) {
		return true
	}
	if len(s.foreignTags(o)) > 0 {
		return false
	}
	untold := s.ClusterID == "" || o.Tags == nil
	return slices.ContainsFunc(s.owners(o, true), func(before *corev1.Service) bool { return s.claimOf(before, o) != none }) ||
		untold && o.Name == NameOf(s.Service) && sameRules(o.ForwardingRules, s.Rules) && s.serves(o, false)
}

// HandedOver reports whether a Service took a load balancer over that was not made for it.
func HandedOver(service *corev1.Service, o Observed) bool {
	return service.Annotations[HandedOverAnnotation] == o.ID && o.Name != DefaultName(service)
}

// MayDelete reports whether a load balancer may be deleted because its Service is. It may not, with the reason in one sentence, if the Service has
// disowned it or took it over, if another Service has the better claim to it, or if it is another cluster's: by its tag, or by serving other machines
// only. A Service is easily copied with its annotations, and deleting the copy must not take the original's load balancer along.
func MayDelete(s Search, o Observed) (bool, string) {
	disowned, err := annotation.IsDisowned(s.Service.Annotations)
	switch {
	case err != nil:
		return false, err.Error()
	case disowned:
		return false, fmt.Sprintf("%s is disowned by annotation %s", o, annotation.Disown)
	case HandedOver(s.Service, o):
		return false, fmt.Sprintf("%s was handed over to the service, and is kept: delete it at DigitalOcean if it is no longer needed", o)
	}
	advice := fmt.Sprintf("to detach the service and keep the load balancer, set annotation %s: \"true\"", annotation.Disown)
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
