// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// patience is how long the record of something new may take, and how far lists may lag.
const patience = 10 * time.Minute

// Judge decides what is this cluster's, and what refers to it. Equal worlds give equal reports, in whichever order they
// were read.
func Judge(w World) Report {
	j := &judging{
		World: w, report: Report{Objects: []Object{}, NotRead: slices.Clone(w.NotRead)},
		tag: loadbalancer.ClusterTag(w.Cluster.ID), ours: map[string]bool{},
	}
	slices.SortFunc(j.sorted(), func(a, b *corev1.Service) int { return strings.Compare(keyOf(a), keyOf(b)) })
	j.leads = loadbalancer.IndexLeads(j.Services)
	j.loadBalancers()
	j.certificates()
	j.firewall()
	j.storage()
	j.droplets()
	slices.SortFunc(j.report.Objects, func(a, b Object) int {
		return cmp.Or(a.State.rank()-b.State.rank(), slices.Index(kinds(), a.Kind)-slices.Index(kinds(), b.Kind),
			prose.Natural(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return j.report
}

func kinds() []Kind { return []Kind{LoadBalancer, Certificate, Firewall, Volume, Snapshot} }

// judging is one judgment under way.
type judging struct {
	World

	report Report
	tag    string
	leads  loadbalancer.Leads
	// ours are the IDs of this cluster's load balancers.
	ours map[string]bool
}

// sorted makes the Services a list of its own, and returns it.
func (j *judging) sorted() []*corev1.Service {
	j.Services = slices.Clone(j.Services)
	return j.Services
}

func keyOf(s *corev1.Service) string { return s.Namespace + "/" + s.Name }

func (j *judging) add(o Object) {
	if o.State == Unreferenced {
		o.Next = cmp.Or(o.Next, fmt.Sprintf("kubectl mooring estate remove %s %s --yes", o.Kind.argument(), o.ID))
	}
	j.report.Objects = append(j.report.Objects, o)
}

func (j *judging) unread(side, problem string) {
	j.report.NotRead = append(j.report.NotRead, side+": "+problem)
}

// isNew reports whether something was made so short a time ago that its record may not be there.
func (j *judging) isNew(created time.Time) bool {
	return !created.IsZero() && j.Now.Sub(created) < patience
}

// loadBalancers judges the list of load balancers, or the records if there is none.
func (j *judging) loadBalancers() {
	list := j.LoadBalancers
	if list.Problem != "" {
		j.unread("load balancers", list.Problem)
	}
	listed := map[string]bool{}
	for _, o := range list.Items {
		if listed[o.ID] {
			continue
		}
		listed[o.ID] = true
		object, whose := j.loadBalancer(o)
		switch whose {
		case mine:
			j.ours[o.ID] = true
			j.add(object)
		case another:
			j.report.Others++
		case hidden:
			j.report.Unjudged++
		}
	}
	if n := j.report.Unjudged; n > 0 {
		j.unread("tags", j.hiding(n))
	}
	if !list.Read && list.Problem == "" {
		return
	}
	why := "the status of the Service records it, and the list of load balancers does not have it"
	if !list.Read {
		why = "load balancers could not be read"
	}
	for _, s := range j.Services {
		if id := loadbalancer.Held(s); id != "" && !listed[id] {
			listed[id] = true
			j.add(Object{Kind: LoadBalancer, ID: id, State: Unknown, ReferencedBy: []string{"Service " + keyOf(s)}, Why: why})
		}
	}
}

// hiding says why load balancers that no Service has a proof for are not judged.
func (j *judging) hiding(count int) string {
	if j.tag == "" {
		return "the cluster's ID (DO_CLUSTER_ID) is not known, so that nothing shows whether " +
			prose.Plural(count, "load balancer") + " without a record in a Service of this cluster is left over"
	}
	return "DigitalOcean shows no tags with this token (scope tag:read), so that nothing shows whether " +
		prose.Plural(count, "load balancer") + " without a record in a Service of this cluster is left over"
}

// whose is to whom an object belongs.
type whose int

const (
	another whose = iota
	mine
	hidden
)

// loadBalancer judges one load balancer.
func (j *judging) loadBalancer(o loadbalancer.Observed) (Object, whose) {
	object := Object{Kind: LoadBalancer, Name: o.Name, ID: o.ID, State: Referenced, MonthlyCents: balancerCents(o)}
	lead := j.leads.To(o)
	if lead.Service != nil {
		object.ReferencedBy = []string{"Service " + keyOf(lead.Service)}
	}
	own := j.tag != "" && slices.ContainsFunc(o.Tags, func(t string) bool { return strings.EqualFold(t, j.tag) })
	switch {
	case lead.Proven:
		return object, mine
	case !own && (j.tag == "" || !j.showsTags()):
		return object, hidden
	case !own:
		return object, another
	case lead.Service != nil:
		object.ReferencedBy[0] += " (by an annotation alone)"
		return object, mine
	}
	foreign := len(o.DropletIDs) > 0 && !slices.ContainsFunc(o.DropletIDs, func(id int) bool { return slices.Contains(j.Machines, id) })
	switch {
	case j.isNew(o.CreatedAt):
		object.State, object.Why = Settling, "it has just been made, and no Service has a record of it yet"
	case foreign:
		object.State = Unknown
		object.Why = "no Service refers to it, but it serves droplets of which none is a Node of this cluster: " +
			"another cluster may have the same ID (DO_CLUSTER_ID)"
		object.Next = "see whose droplets they are in DigitalOcean's panel; nothing is removed while that is so"
	default:
		object.State, object.Why = Unreferenced, "it has the tag "+j.tag+", and no Service refers to it"
	}
	return object, mine
}

// showsTags reports whether tags are shown to the token: something in the lists has some, or droplets an empty list.
func (j *judging) showsTags() bool {
	return slices.ContainsFunc(j.LoadBalancers.Items, func(o loadbalancer.Observed) bool { return o.Tags != nil }) ||
		len(j.Droplets.Items) > 0 && j.Droplets.Items[0].Tags != nil
}

// certificates judges certificates that are made for annotations.
func (j *judging) certificates() {
	if j.Certificates.Problem != "" {
		j.unread("certificates", j.Certificates.Problem)
	}
	users := j.users()
	askers := j.askers()
	for _, c := range j.Certificates.Items {
		if !strings.HasPrefix(c.Name, loadbalancer.ManagedPrefix) {
			continue
		}
		object := Object{Kind: Certificate, Name: c.Name, ID: c.ID, State: Referenced, MonthlyCents: new(int)}
		for _, s := range []*corev1.Service{askers[c.Name], askers[c.ID]} {
			if s != nil {
				object.ReferencedBy = append(object.ReferencedBy, "Service "+keyOf(s))
			}
		}
		foreign := len(object.ReferencedBy) == 0 && len(users[c.ID]) > 0
		for _, o := range users[c.ID] {
			object.ReferencedBy = append(object.ReferencedBy, o.String())
			foreign = foreign && !j.ours[o.ID]
		}
		object.ReferencedBy = uniq(object.ReferencedBy)
		switch {
		case foreign:
			j.report.Others++
			continue
		case len(object.ReferencedBy) > 0:
		case !j.LoadBalancers.Read:
			object.State, object.Why = Unknown, "load balancers could not be read, and one of them may use it"
		case c.State == loadbalancer.CertificatePending:
			object.State, object.Why = Settling, "it is being issued, and another cluster of the account may wait for it"
		default:
			object.State = Unreferenced
			object.Why = "no load balancer of the account uses it, and no Service of this cluster asks for it; " +
				"another cluster that needs it makes it again"
		}
		j.add(object)
	}
}

// users are the load balancers that use certificates, by IDs of those.
func (j *judging) users() map[string][]loadbalancer.Observed {
	out := map[string][]loadbalancer.Observed{}
	for _, o := range j.LoadBalancers.Items {
		for _, r := range o.ForwardingRules {
			if r.CertificateID != "" {
				out[r.CertificateID] = append(out[r.CertificateID], o)
			}
		}
	}
	return out
}

// askers are the Services that ask for certificates, by names and IDs of those.
func (j *judging) askers() map[string]*corev1.Service {
	out := map[string]*corev1.Service{}
	for _, s := range j.Services {
		asked := j.Cluster.Effective(s)
		names := []string{asked.Annotations[annotation.CertificateID], asked.Annotations[annotation.CertificateName]}
		if managed, ok := loadbalancer.AssumedCertificate(asked); ok {
			names = append(names, managed.Name)
		}
		for _, name := range names {
			if name != "" {
				out[name] = cmp.Or(out[name], s)
			}
		}
	}
	return out
}

func uniq(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// firewall judges the firewall that the cloud controller manager is configured with. Others are people's.
func (j *judging) firewall() {
	if j.Firewalls.Problem != "" {
		j.unread("firewalls", j.Firewalls.Problem)
	}
	for _, f := range j.Firewalls.Items {
		if ours, _ := firewall.Ours(f, j.Firewall); f.Name == j.Firewall.Name && f.Name != "" && ours {
			j.add(Object{Kind: Firewall, Name: f.Name, ID: f.ID, State: Referenced, ReferencedBy: []string{j.Controller}, MonthlyCents: new(int)})
		}
	}
}

// storage takes volumes and snapshots over.
func (j *judging) storage() {
	for _, s := range j.Storage {
		j.add(Object{
			Kind: s.Kind, Name: s.Name, ID: s.ID, State: s.State, ReferencedBy: s.ReferencedBy, Why: s.Why, Next: s.Next, MonthlyCents: storageCents(s),
		})
	}
}

// droplets counts droplets.
func (j *judging) droplets() {
	if j.Droplets.Problem != "" {
		j.unread("droplets", j.Droplets.Problem)
	}
	count := &j.report.Droplets
	for _, d := range j.Droplets.Items {
		switch {
		case slices.Contains(j.Machines, d.ID):
			count.Nodes++
		case j.tag != "" && slices.ContainsFunc(d.Tags, func(t string) bool { return strings.EqualFold(t, j.tag) }):
			count.Others++
		default:
			continue
		}
		if cents, known := j.Sizes[d.Size]; known {
			count.MonthlyCents += cents
		} else {
			count.Unpriced++
		}
	}
}
