// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// another is a Service alongside the one of service().
func another(name string, age int, pairs ...string) *corev1.Service {
	s := service(pairs...)
	s.Name, s.UID = name, types.UID("ffffffff-"+name)
	s.CreationTimestamp = metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, -age, 0, time.UTC)}
	return s
}

func lb(id, name string, tags []string, droplets ...int) loadbalancer.Observed {
	return loadbalancer.Observed{ID: id, Name: name, CreatedAt: born, Type: regional, Tags: tags, DropletIDs: droplets, ForwardingRules: []loadbalancer.ForwardingRule{
		{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080},
		{EntryProtocol: "tcp", EntryPort: 443, TargetProtocol: "tcp", TargetPort: 30443},
	}}
}

// search is one of a cluster with ID c1 and droplets 1 to 3.
func search(s *corev1.Service, list ...loadbalancer.Observed) loadbalancer.Search {
	return loadbalancer.Search{
		Service: s, Others: []*corev1.Service{s}, ClusterID: "c1", List: list, Complete: true, Droplets: []int{1, 2, 3}, Rules: lb("", "", nil).ForwardingRules,
	}
}

// showing is a Service whose status shows an address, addressed a load balancer that has it.
func showing(s *corev1.Service) *corev1.Service {
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	return s
}

// recorded is a Service whose status has the ID of the load balancer "lb" since a second.
func recorded(s *corev1.Service, second int) *corev1.Service {
	s.Status.Conditions = []metav1.Condition{{
		Type: loadbalancer.ConditionHeld, Status: metav1.ConditionTrue, Reason: "Held", Message: "lb",
		LastTransitionTime: metav1.Time{Time: time.Date(2026, 3, 1, 0, 0, second, 0, time.UTC)},
	}}
	return s
}

func addressed(o loadbalancer.Observed) loadbalancer.Observed {
	o.IP = "203.0.113.7"
	return o
}

// born is when the load balancers of a test were made, attempts are requests that were sent for them.
var born = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func attempts(names ...string) []loadbalancer.Attempt {
	var all []loadbalancer.Attempt
	for _, name := range names {
		all = append(all, loadbalancer.Attempt{Name: name, At: born.Add(-time.Second)})
	}
	return all
}

// none are answers to GETs by ID of what does not exist.
func none(ids ...string) map[string]loadbalancer.Lookup {
	all := map[string]loadbalancer.Lookup{}
	for _, id := range ids {
		all[id] = loadbalancer.Lookup{}
	}
	return all
}

// allow lets the Service's namespace take over load balancers.
func allow(ids string) func(*loadbalancer.Search) {
	return func(s *loadbalancer.Search) { s.TakeOver = new(loadbalancer.ParseTakeOver(ids)) }
}

// attempted lets a request for a load balancer named "web" be under way; unnamed does so in a cluster without an ID.
func attempted(s *loadbalancer.Search) { s.Attempted = attempts("web") }

func unnamed(s *loadbalancer.Search) {
	attempted(s)
	s.ClusterID = ""
}

// attempting is a Service whose status has a note of such a request, inShop one of another namespace.
func attempting(s *corev1.Service, name string) *corev1.Service {
	s.Status.Conditions = []metav1.Condition{{
		Type: loadbalancer.ConditionAttempted, Status: metav1.ConditionTrue, Reason: "Attempted", Message: name, LastTransitionTime: metav1.Time{Time: born},
	}}
	return s
}

// before lets the Service be of the time before the first start, which was just now.
func before(s *loadbalancer.Search) {
	s.FromBefore, s.TakeOver = true, &loadbalancer.TakeOver{}
}

func inShop(s *corev1.Service) *corev1.Service {
	s.Namespace = "shop"
	return s
}

func mine() []string   { return []string{"x", "k8s:c1"} }
func theirs() []string { return []string{"k8s:c2"} }

func TestIdentify(t *testing.T) {
	t.Parallel()
	annotated := func(pairs ...string) *corev1.Service {
		return service(append(pairs, annotation.LoadBalancerID, "lb")...)
	}
	for name, tt := range map[string]struct {
		search loadbalancer.Search
		change func(*loadbalancer.Search)
		want   loadbalancer.Ownership
		id     string
		says   string // a part of message or warning
	}{
		"by ID, shown by the status": {
			search: search(showing(annotated()), addressed(lb("lb", "any", nil))), want: loadbalancer.Ours, id: "lb",
		},
		"by ID, allowed, though another has the name": {
			search: search(annotated("name", "web"), lb("other", "web", mine()), lb("lb", "any", mine())), change: allow("lb"), want: loadbalancer.Ours, id: "lb",
		},
		"by ID, with this cluster's tag alone": {
			search: search(annotated(), lb("lb", "any", mine(), 1)), change: allow(""), want: loadbalancer.Foreign,
			says: "but no record shows that it was made for this service: it is left alone; an administrator hands it over",
		},
		"by ID and name, with this cluster's tag": {
			search: search(annotated("name", "web"), lb("lb", "web", mine(), 1)), change: allow(""), want: loadbalancer.Foreign, says: "no record shows",
		},
		"by ID and name, no cluster ID, the same rules and machines": {
			search: search(annotated("name", "web"), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) {
				s.ClusterID = ""
				allow("")(s)
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"by the record, without any annotation": {
			search: search(recorded(service(), 1), lb("lb", "any", mine())), want: loadbalancer.Ours, id: "lb",
		},
		"by the record, and the annotation names one that is gone": {
			search: search(recorded(service(annotation.LoadBalancerID, lbID), 1), lb("lb", "any", mine())),
			change: func(s *loadbalancer.Search) { s.ByID = none(lbID) }, want: loadbalancer.Ours, id: "lb",
		},
		"by the record, not in the list": {
			search: search(recorded(service(), 1)), want: loadbalancer.Unclear, says: "load balancer lb that the status records is not in the list, and was not read by ID",
		},
		"by the record, gone, and an address of it is another's by now": {
			search: search(showing(recorded(annotated(), 1)), addressed(lb("new", "by-hand", nil, 1))),
			change: func(s *loadbalancer.Search) { s.ByID, s.Service.Annotations = none("lb"), nil }, want: loadbalancer.Absent,
		},
		"by ID, allowed, and what is recorded is not in the list": {
			search: search(recorded(service(annotation.LoadBalancerID, lbID), 1), lb(lbID, "any", mine())), change: func(s *loadbalancer.Search) {
				s.TakeOver = &loadbalancer.TakeOver{}
			}, want: loadbalancer.Unclear, says: "load balancer lb that the status records is not in the list, and was not read by ID",
		},
		"the upstream project ran again, and has replaced what was recorded": {
			search: search(showing(recorded(service("name", "any", annotation.LoadBalancerID, lbID), 1)), addressed(lb(lbID, "any", mine(), 1))),
			change: func(s *loadbalancer.Search) {
				const gone = "00000000-0000-4000-8000-000000000000"
				s.Service.Status.Conditions[0].Message, s.ByID = gone, none(gone)
			}, want: loadbalancer.Ours, id: lbID,
		},
		"leaving, with an annotation that names another's": {
			search: search(recorded(service(annotation.LoadBalancerID, lbID), 1), lb("lb", "any", mine()), lb(lbID, "theirs", theirs())),
			change: func(s *loadbalancer.Search) { s.Leaving = true }, want: loadbalancer.Ours, id: "lb",
		},
		"leaving, with an annotation that names nothing": {
			search: search(recorded(service(annotation.LoadBalancerID, ".."), 1), lb("lb", "any", mine())),
			change: func(s *loadbalancer.Search) { s.Leaving = true }, want: loadbalancer.Ours, id: "lb",
		},
		"leaving without a record, with an annotation that names another's": {
			search: search(service(annotation.LoadBalancerID, lbID), lb("lb", defName, mine()), lb(lbID, "theirs", theirs())),
			change: func(s *loadbalancer.Search) { s.Leaving = true }, want: loadbalancer.Ours, id: "lb",
		},
		"leaving, and what was never had is allowed": {
			search: search(annotated(), lb("lb", "any", mine())), change: func(s *loadbalancer.Search) {
				s.Leaving = true
				allow("*")(s)
			}, want: loadbalancer.Foreign, says: "no record shows that it was made for this service",
		},
		"leaving, and another Service has it by now": {
			search: search(recorded(service(annotation.LoadBalancerID, ".."), 1), lb("lb", "any", mine())), change: func(s *loadbalancer.Search) {
				s.Leaving = true
				s.Others = append(s.Others, recorded(another("young", -5), 2))
			}, want: loadbalancer.Foreign, says: "it belongs to service default/young, which has precedence",
		},
		"at the first start, by ID and tag": {
			search: search(annotated("hostname", "web.example"), lb("lb", "any", mine(), 1)), change: before, want: loadbalancer.Ours, id: "lb",
		},
		"at the first start, by name and tag": {
			search: search(service("name", "web"), lb("lb", "web", mine(), 1)), change: before, want: loadbalancer.Ours, id: "lb",
		},
		"at the first start, by name, tags are not shown": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: before, want: loadbalancer.Ours, id: "lb",
		},
		"at the first start, by ID, tags are not shown, and other rules": {
			search: search(annotated(), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) {
				before(s)
				s.Rules = s.Rules[:1]
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"at the first start, without the tag": {
			search: search(annotated("name", "web"), lb("lb", "web", []string{}, 1)), change: before, want: loadbalancer.Foreign, says: "does not carry this cluster's tag",
		},
		"at the first start, older than the Service": {
			search: search(annotated("name", "web"), lb("lb", "web", mine(), 1)), change: func(s *loadbalancer.Search) {
				before(s)
				s.Service.CreationTimestamp.Time = born.Add(time.Second)
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"a hostname, and the record is of another one": {
			search: search(recorded(service("name", "any", "hostname", "web.example", annotation.LoadBalancerID, lbID), 1), lb(lbID, "any", mine(), 1)),
			change: func(s *loadbalancer.Search) {
				s.Service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "web.example"}}
				s.ByID = none("lb")
				allow("")(s)
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"released by a Service of another namespace": {
			search: search(annotated(), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, inShop(showing(another("old", 5, annotation.LoadBalancerID, "lb", annotation.Disown, "true"))))
				allow("")(s)
			}, want: loadbalancer.Foreign, says: "it was released by service shop/old, for services of that namespace: it is left alone; an administrator",
		},
		"allowed, and one of another namespace names it too, which is older": {
			search: search(annotated(), lb("lb", "web", theirs())), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, inShop(another("old", 50, annotation.LoadBalancerID, "lb")))
				allow("lb")(s)
			}, want: loadbalancer.Ours, id: "lb", says: "carries the tag of another cluster",
		},
		"attempted, and one of another namespace names it": {
			search: search(service("name", "web"), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Attempted = attempts("web")
				s.Others = append(s.Others, inShop(another("old", 50, annotation.LoadBalancerID, "lb")))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"another Service has attempted one of the name": {
			search: search(service("name", "web"), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, attempting(inShop(another("old", 50)), "web"))
			}, want: loadbalancer.Foreign, says: "it belongs to service shop/old",
		},
		"made by hand long after the attempt": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) {
				s.ClusterID, s.Attempted = "", []loadbalancer.Attempt{{Name: "web", At: born.Add(-2 * time.Hour)}}
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"made by hand before the attempt": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) {
				s.ClusterID, s.Attempted = "", []loadbalancer.Attempt{{Name: "web", At: born.Add(10 * time.Minute)}}
			}, want: loadbalancer.Foreign, says: "no record shows",
		},
		"by ID, held before": {
			search: search(annotated(), lb("lb", "any", nil)), change: func(s *loadbalancer.Search) { s.Holds = "lb" }, want: loadbalancer.Ours, id: "lb",
		},
		"by ID, somebody's, and nobody has asked what the namespace may": {
			search: search(annotated(), lb("lb", "any", []string{})), want: loadbalancer.Unclear, says: "was not queried",
		},
		"by ID, somebody's": {
			search: search(annotated(), lb("lb", "any", []string{}, 1)), change: allow(""), want: loadbalancer.Foreign,
			says: `load balancer "any" (lb) is named by annotation ` + annotation.LoadBalancerID + `, but it does not carry this cluster's tag: it is left alone; ` +
				`an administrator hands it over with kubectl annotate namespace default ` + loadbalancer.TakeOverAnnotation + `=lb`,
		},
		"by ID, another cluster's": {
			search: search(annotated(), lb("lb", "any", theirs(), 1)), change: allow("another, 7"), want: loadbalancer.Foreign, says: "it carries the tag of another cluster (k8s:c2)",
		},
		"by ID, another cluster's, handed over by an administrator": {
			search: search(annotated(), lb("lb", "any", theirs(), 9)), change: allow("another, lb"), want: loadbalancer.Ours, id: "lb",
			says: "carries the tag of another cluster (k8s:c2) and not this one's",
		},
		"by ID, all are handed over": {
			search: search(annotated(), lb("lb", "any", nil, 9)), change: allow("*"), want: loadbalancer.Ours, id: "lb",
		},
		"by ID, of a Service that has another one": {
			search: search(showing(annotated()), lb("lb", "any", mine()), addressed(lb("has", "other", mine()))), want: loadbalancer.Foreign,
			says: `this service has load balancer "other" (has), and does not replace it by another one`,
		},
		"by ID, and a hostname in the status, which any Service may ask for": {
			search: search(annotated("name", "any", "hostname", "web.example"), lb("lb", "any", []string{}, 1)), change: func(s *loadbalancer.Search) {
				s.Service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "web.example"}}
				allow("")(s)
			}, want: loadbalancer.Foreign, says: "it is left alone",
		},
		"by ID, of a Service that has lost the annotation": {
			search: search(annotated(), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(another("young", -5)))
			}, want: loadbalancer.Foreign, says: "service default/young, which has precedence",
		},
		"by name, of a Service that has lost the annotation": {
			search: search(service("name", "web"), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(another("young", -5)))
			}, want: loadbalancer.Foreign, says: "it belongs to service default/young",
		},
		"by name, without the annotation, and another Service names it": {
			search: search(showing(service("name", "web")), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"by name, without the annotation, no cluster ID, other rules": {
			search: search(showing(service("name", "web")), addressed(lb("lb", "web", nil, 1))), change: func(s *loadbalancer.Search) { s.ClusterID, s.Rules = "", s.Rules[:1] },
			want: loadbalancer.Ours, id: "lb",
		},
		"by name, just made under another Service's UID": {
			search: search(service("name", loadbalancer.DefaultName(another("young", -5))), lb("lb", loadbalancer.DefaultName(another("young", -5)), mine())),
			change: func(s *loadbalancer.Search) { s.Others = append(s.Others, another("young", -5)) },
			want:   loadbalancer.Foreign, says: "it belongs to service default/young",
		},
		"an address that another Service's status shows still, of a load balancer that is gone": {
			search: search(showing(annotated()), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(another("old", 5)))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"handed over by an older Service, which wants it back": {
			search: search(recorded(annotated(), 2), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(recorded(another("old", 5, annotation.LoadBalancerID, "lb"), 1)))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"handed over to a younger Service, and wanted back": {
			search: search(showing(recorded(annotated(), 1)), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, recorded(another("young", -5, annotation.LoadBalancerID, "lb"), 2))
			}, want: loadbalancer.Foreign, says: "service default/young, which has precedence",
		},
		"by ID, no cluster ID: somebody's": {
			search: search(annotated(), lb("lb", "any", nil, 1)), change: func(s *loadbalancer.Search) { s.ClusterID, s.TakeOver = "", &loadbalancer.TakeOver{} },
			want: loadbalancer.Foreign, says: "it is left alone",
		},
		"by ID, no cluster ID: who had it lets go": {
			search: search(annotated(), addressed(lb("lb", "any", nil, 1))), change: func(s *loadbalancer.Search) {
				s.ClusterID = ""
				s.Others = append(s.Others, showing(another("old", 5, annotation.LoadBalancerID, "lb", annotation.Disown, "true")))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"by ID, no cluster ID: who lets go never had it": {
			search: search(annotated(), addressed(lb("lb", "any", nil, 1))), change: func(s *loadbalancer.Search) {
				s.ClusterID, s.TakeOver = "", &loadbalancer.TakeOver{}
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb", annotation.Disown, "true"))
			}, want: loadbalancer.Foreign, says: "it is left alone",
		},
		"by ID, asked for": {
			search: search(annotated()), change: func(s *loadbalancer.Search) {
				o := lb("lb", "any", []string{})
				s.ByID = map[string]loadbalancer.Lookup{"lb": {Found: &o}}
				allow("lb")(s)
			}, want: loadbalancer.Ours, id: "lb",
		},
		"by ID, not in the list": {
			search: search(service(annotation.LoadBalancerID, lbID)), want: loadbalancer.Unclear, says: "was not read by ID",
		},
		"by ID, gone": {
			search: search(service(annotation.LoadBalancerID, lbID)), change: func(s *loadbalancer.Search) { s.ByID = none(lbID) }, want: loadbalancer.Absent,
		},
		"by ID, which is none": {
			search: search(annotated()), want: loadbalancer.Foreign,
			says: `annotation ` + annotation.LoadBalancerID + ` is "lb", which no load balancer has as its ID: write the ID of one, or remove the annotation`,
		},
		"by ID, gone, and the list is old": {
			search: search(service(annotation.LoadBalancerID, lbID), lb(lbID, defName, mine())), change: func(s *loadbalancer.Search) { s.ByID = none(lbID) }, want: loadbalancer.Absent,
		},
		"by ID, gone, and made again": {
			search: search(service(annotation.LoadBalancerID, lbID), lb("new", defName, mine())), change: func(s *loadbalancer.Search) { s.ByID = none(lbID) }, want: loadbalancer.Ours, id: "new",
		},
		"a copy of the Service has the better claim: it is older": {
			search: search(annotated(), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Service.CreationTimestamp.Time = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Foreign, says: "but it is named by service default/old, which has precedence",
		},
		"an older Service names what a younger one has": {
			search: search(annotated(), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(another("young", -5, annotation.LoadBalancerID, "lb")))
			}, want: loadbalancer.Foreign, says: "but it belongs to service default/young, which has precedence",
		},
		"a younger Service has what an older one names": {
			search: search(showing(annotated()), addressed(lb("lb", "web", mine()))), change: func(s *loadbalancer.Search) {
				s.Service.CreationTimestamp.Time = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"by name, of a Service that has let it go": {
			search: search(service("name", "web"), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, recorded(another("old", 5, annotation.LoadBalancerID, "lb", annotation.Disown, "true"), 1))
			}, want: loadbalancer.Foreign, says: "it belongs to service default/old",
		},
		"a copy of the Service is younger": {
			search: search(annotated(), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				allow("*")(s)
				s.Others = append(s.Others, another("new", -5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"a copy of the Service is older, but the name is ours": {
			search: search(annotated(), lb("lb", defName, mine())), change: func(s *loadbalancer.Search) {
				s.Service.CreationTimestamp.Time = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"the name is the copy's": {
			search: search(annotated(), lb("lb", loadbalancer.DefaultName(another("new", -5)), mine())), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, another("new", -5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Foreign, says: "default/new",
		},
		"the other has let it go": {
			search: search(annotated(), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Service.CreationTimestamp.Time = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
				s.Others = append(s.Others, recorded(another("old", 5, annotation.LoadBalancerID, "lb", annotation.Disown, "true"), 1))
			}, want: loadbalancer.Ours, id: "lb",
		},
		"none": {search: search(service()), want: loadbalancer.Absent},
		"none, but the list is partial": {
			search: search(service()), change: func(s *loadbalancer.Search) { s.Complete = false }, want: loadbalancer.Unclear, says: "the list of load balancers is not complete",
		},
		"by tag and name": {
			search: search(service("name", "web"), lb("lb", "web", mine(), 1)), want: loadbalancer.Foreign, says: "but no record shows that it was made for this service: it is left alone",
		},
		"attempted": {search: search(service("name", "web"), lb("lb", "web", mine(), 9)), change: attempted, want: loadbalancer.Ours, id: "lb"},
		"attempted, in a partial list": {
			search: search(service("name", "web"), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				attempted(s)
				s.Complete = false
			}, want: loadbalancer.Ours, id: "lb",
		},
		"another cluster's with the same name": {
			search: search(service("name", "web"), lb("lb", "web", theirs(), 1)), want: loadbalancer.Foreign,
			says: `load balancer "web" (lb) has the name of this service's load balancer, but it carries the tag of another cluster (k8s:c2): it is left alone; rename it, choose another name by annotation ` + p + `name, or set annotation ` + annotation.LoadBalancerID + ` to its ID to hand it over`,
		},
		"untagged with the same name": {
			search: search(service("name", "web"), lb("lb", "web", []string{}, 1)), want: loadbalancer.Foreign, says: "it does not carry this cluster's tag k8s:c1",
		},
		"another Service's": {
			search: search(service("name", "web"), lb("lb", "web", mine())), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, another("old", 5, annotation.LoadBalancerID, "lb"))
			}, want: loadbalancer.Foreign, says: "it is named by service default/old",
		},
		"legacy, never annotated nor tagged": {search: search(service(), lb("lb", defName, []string{}, 1, 9)), want: loadbalancer.Ours, id: "lb"},
		"legacy, and a name is asked for":    {search: search(service("name", "web"), lb("lb", defName, nil, 1)), want: loadbalancer.Ours, id: "lb"},
		"legacy without droplets":            {search: search(service(), lb("lb", defName, []string{})), want: loadbalancer.Ours, id: "lb"},
		"legacy of a cluster restored elsewhere": {
			search: search(service(), lb("lb", defName, []string{}, 8, 9)), want: loadbalancer.Foreign, says: "none of its droplets is of this cluster",
		},
		"legacy with another cluster's tag": {search: search(service(), lb("lb", defName, theirs(), 1)), want: loadbalancer.Foreign, says: "k8s:c2"},
		"a foreign one with the legacy name is not in the way of another name": {
			search: search(service("name", "web"), lb("lb", defName, theirs(), 1)), want: loadbalancer.Absent,
		},
		"no cluster ID: just made, before its maker died": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: unnamed, want: loadbalancer.Ours, id: "lb",
		},
		"tags are not shown: just made, before its maker died": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: attempted, want: loadbalancer.Ours, id: "lb",
		},
		"no cluster ID, the same name, rules and machines": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) { s.ClusterID = "" },
			want: loadbalancer.Foreign, says: "no record shows",
		},
		"tags are not shown, the same name, rules and machines": {search: search(service("name", "web"), lb("lb", "web", nil, 1)), want: loadbalancer.Foreign, says: "no record shows"},
		"no cluster ID, other rules": {
			search: search(service("name", "web"), lb("lb", "web", nil, 1)), change: func(s *loadbalancer.Search) {
				unnamed(s)
				s.Rules = s.Rules[:1]
			},
			want: loadbalancer.Foreign, says: "its forwarding rules are others",
		},
		"no cluster ID, other droplets": {
			search: search(service("name", "web"), lb("lb", "web", nil, 9)), change: unnamed,
			want: loadbalancer.Foreign, says: "none of its droplets is of this cluster",
		},
		"no cluster ID, a cluster's tag": {
			search: search(service("name", "web"), lb("lb", "web", theirs(), 1)), change: func(s *loadbalancer.Search) { s.ClusterID = "" },
			want: loadbalancer.Foreign, says: "k8s:c2",
		},
		"two that could be": {
			search: search(service("name", "web"), lb("a", "web", mine()), lb("b", defName, mine())), change: attempted, want: loadbalancer.Foreign,
			says: `load balancer "web" (a) and load balancer "` + defName + `" (b) could both be this service's: set annotation ` + annotation.LoadBalancerID,
		},
		"renamed while it was being made": {
			search: search(service("name", "new"), lb("lb", "old", mine())), change: func(s *loadbalancer.Search) { s.Attempted = attempts("old") }, want: loadbalancer.Ours, id: "lb",
		},
		"another cluster's has the name it was to be made with": {
			search: search(service("name", "new"), lb("lb", "old", theirs())), change: func(s *loadbalancer.Search) { s.Attempted = attempts("old") }, want: loadbalancer.Absent,
		},
		"the old name without an attempt":   {search: search(service("name", "new"), lb("lb", "old", mine())), want: loadbalancer.Absent},
		"one that stands twice in the list": {search: search(service(), lb("lb", defName, mine()), lb("lb", defName, mine())), want: loadbalancer.Ours, id: "lb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.change != nil {
				tt.change(&tt.search)
			}
			got := loadbalancer.Identify(tt.search)
			if got.Ownership != tt.want || (got.LoadBalancer != nil) != (tt.id != "") || tt.id != "" && got.LoadBalancer.ID != tt.id {
				t.Errorf("%+v, want %s %s", got, tt.want, tt.id)
			}
			if !strings.Contains(got.Message+got.Warning, tt.says) || tt.says == "" && got.Message+got.Warning != "" {
				t.Errorf("says\n%s%s, want\n%s", got.Message, got.Warning, tt.says)
			}
			if (got.AskByID != "") != strings.Contains(tt.says, "was not read by ID") || got.AskAllowance != (tt.says == "was not queried") {
				t.Errorf("ask by ID: %v", got.AskByID)
			}
		})
	}
}

func TestMayDelete(t *testing.T) {
	t.Parallel()
	had := func(pairs ...string) *corev1.Service { return recorded(service(pairs...), 1) }
	takenOver := func(s *corev1.Service) *corev1.Service {
		s.Status.Conditions[0].Reason = loadbalancer.RecordTakenOver
		return s
	}
	for name, tt := range map[string]struct {
		search loadbalancer.Search
		lb     loadbalancer.Observed
		change func(*loadbalancer.Search)
		says   string
	}{
		"ours by tag":                        {search: search(had()), lb: lb("lb", "web", mine(), 9)},
		"untagged, serving this cluster":     {search: search(had()), lb: lb("lb", "web", nil, 1, 9)},
		"untagged, serving nobody":           {search: search(had()), lb: lb("lb", "web", nil)},
		"no droplet of the cluster is known": {search: search(had()), lb: lb("lb", "web", nil, 9), change: func(s *loadbalancer.Search) { s.Droplets = nil }},
		"another cluster's by tag":           {search: search(had()), lb: lb("lb", "web", theirs(), 1), says: "carries the tag of another cluster (k8s:c2): to detach the service and keep the load balancer, set annotation"},
		"another cluster's by its droplets":  {search: search(had()), lb: lb("lb", "web", nil, 8, 9), says: "serves droplets of which none is of this cluster"},
		"of a type that no Service has":      {search: search(had()), lb: loadbalancer.Observed{ID: "lb", Name: "web", Type: "GLOBAL", Tags: mine()}, says: "is of type GLOBAL, which no service has made"},
		"never had, by tag, name and ID": {
			search: search(service("name", "web", annotation.LoadBalancerID, "lb")), lb: lb("lb", "web", mine(), 1), says: "no record shows that it was made for the service",
		},
		"taken over, by the record alone": {search: search(takenOver(had())), lb: lb("lb", "web", mine(), 1), says: "was handed over to the service, and is kept"},
		"disowned":                        {search: search(service(annotation.Disown, "true")), lb: lb("lb", "web", mine(), 1), says: "is disowned by annotation"},
		"perhaps disowned":                {search: search(service(annotation.Disown, "maybe")), lb: lb("lb", "web", mine(), 1), says: "it must be true or false"},
		"handed over":                     {search: search(service(loadbalancer.HandedOverAnnotation, "lb")), lb: lb("lb", "web", mine(), 1), says: "was handed over to the service, and is kept"},
		"another one was handed over":     {search: search(had(loadbalancer.HandedOverAnnotation, "other")), lb: lb("lb", "web", mine(), 1)},
		"the original of a copied Service": {
			search: search(showing(service(annotation.LoadBalancerID, "lb"))), lb: addressed(lb("lb", "web", mine(), 1)), change: func(s *loadbalancer.Search) {
				s.Others = append(s.Others, showing(recorded(another("old", 5, annotation.LoadBalancerID, "lb"), 1)))
			}, says: "belongs to service default/old, which has precedence",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.change != nil {
				tt.change(&tt.search)
			}
			may, why := loadbalancer.MayDelete(tt.search, tt.lb)
			if may != (tt.says == "") || !strings.Contains(why, tt.says) {
				t.Errorf("%v, %s", may, why)
			}
		})
	}
}

// What looks as if it was made for the Service under a name that it has no longer is told of; what leads to any Service, or is another's, is not.
func TestLeftover(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		search loadbalancer.Search
		change func(*loadbalancer.Search)
		left   bool
	}{
		"of an old name":                    {search: search(service("name", "new"), lb("lb", "old", mine())), left: true},
		"the Service's own":                 {search: search(service("name", "new"), lb("lb", "new", mine()))},
		"the Service's own by default":      {search: search(service("name", "new"), lb("lb", defName, mine()))},
		"the one that its annotation names": {search: search(service("name", "new", annotation.LoadBalancerID, "lb"), lb("lb", "old", mine()))},
		"another cluster's":                 {search: search(service("name", "new"), lb("lb", "old", theirs()))},
		"without a tag":                     {search: search(service("name", "new"), lb("lb", "old", []string{}))},
		"tags are not shown":                {search: search(service("name", "new"), lb("lb", "old", nil))},
		"a cluster without an ID":           {search: search(service("name", "new"), lb("lb", "old", mine())), change: func(s *loadbalancer.Search) { s.ClusterID = "" }},
		"other rules":                       {search: search(service("name", "new"), lb("lb", "old", mine())), change: func(s *loadbalancer.Search) { s.Rules = s.Rules[:1] }},
		"another Service's by ID": {search: search(service("name", "new"), lb("lb", "old", mine())), change: func(s *loadbalancer.Search) {
			s.Others = append(s.Others, another("it", 5, annotation.LoadBalancerID, "lb"))
		}},
		"another Service's by name": {search: search(service("name", "new"), lb("lb", "old", mine())), change: func(s *loadbalancer.Search) {
			s.Others = append(s.Others, another("it", 5, "name", "old"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.change != nil {
				tt.change(&tt.search)
			}
			if got := loadbalancer.Leftover(tt.search); (got != nil) != tt.left {
				t.Errorf("%v", got)
			}
		})
	}
}
