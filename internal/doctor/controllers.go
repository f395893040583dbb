// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// ControllerEvidence is what was read of what runs.
type ControllerEvidence struct {
	// Now is by the API server's clock.
	Now       time.Time
	Workloads []Workload
	// Unread are the lists of workloads that could not be read.
	Unread []finding.Side
	// Namespaces are Mooring's: what is elsewhere is not believed.
	Namespaces []string
	// Elsewhere are workloads outside Mooring's namespaces that look like components.
	Elsewhere []Workload
	// Traces are objects that show that a component is meant to run, by the component's name.
	Traces map[string]string
	Leases []Lease
	// LeaseProblem is why there are no Leases; empty if they were read.
	LeaseProblem string
}

// NotRead says which lists could not be read, so that what runs is not known wholly; "" if all were.
func (e ControllerEvidence) NotRead() string {
	var problems []string
	for _, s := range e.Unread {
		problems = append(problems, s.Name+": "+s.Problem)
	}
	if e.LeaseProblem != "" {
		problems = append(problems, "Leases: "+e.LeaseProblem)
	}
	return strings.Join(problems, "; ")
}

// Controllers judges who does whose work: others alongside ours, ours twice, and ours that do not do it. The names of
// the checks stand in JSON and MUST NOT change.
func Controllers(e ControllerEvidence) []finding.Finding {
	e.Workloads = sorted(e.Workloads)
	return finding.Make([]finding.Check[ControllerEvidence]{
		{Name: "fighting", Find: fighting},
		{Name: "installed-twice", Find: twice},
		{Name: "replicas", Find: replicas},
		{Name: "leader", Find: leaders},
		{Name: "versions", Find: versions},
		{Name: "components", Find: present},
	}, e)
}

// present says of which components there is anything to judge, and which lists there are not.
func present(e ControllerEvidence) []finding.Finding {
	out := append(finding.NotRead(e.Unread), e.absent()...)
	if len(e.Elsewhere) > 0 {
		out = append(out, finding.Note.Say("not trusted and not judged, outside Mooring's namespaces: %s", names(e.Elsewhere)).
			Because("anybody who may edit a namespace can make a workload with any name, label and image there"))
	}
	var found []string
	for _, c := range components() {
		if n := len(c.of(e.Workloads)); n > 0 {
			found = append(found, c.name)
		}
	}
	switch {
	case len(found) > 0:
		out = append(out, finding.OK.Say("of Mooring there is %s", strings.Join(found, ", ")))
	case len(out) > 0:
	case len(e.Elected()) > 0:
		out = append(out, finding.Note.Say("of Mooring only Leases were found, no workload: %s", strings.Join(e.Elected(), ", ")).
			Because("these programs run outside of the cluster, or with images and labels of other names: their replicas, versions and rights are not checked"))
	default:
		out = append(out, finding.Note.Say("no component of Mooring runs in this cluster").
			Because("a program outside of the cluster that elects no leader, or an image and labels of other names, is not found"))
	}
	return out
}

// absent finds what is meant to run, and does not as far as is seen; and tokens that are refused.
func (e ControllerEvidence) absent() []finding.Finding {
	var out []finding.Finding
	for _, c := range Components(e) {
		switch {
		case c.Absent:
			out = append(out, finding.Problem.Say("%s: %s", c.Name, c.Problem).At(c.Name).
				Because("nobody does its work").
				Advise("if it runs in another namespace, name that with --mooring-namespace; else install it: docs/components/"+c.Name+".md"))
		case c.Workload == "" && c.Problem != "": // a Lease is left of it
			out = append(out, finding.Problem.Say("%s, of which there is only a Lease in namespace %s: %s", c.Name, c.Namespace, c.Problem).At(c.Name).
				Because("nobody does its work").
				Advise("install it, or start it where it ran: docs/components/"+c.Name+".md; if nobody needs it, delete the Lease"))
		case c.Token:
			out = append(out, finding.Problem.Say("%s: %s", c.Name, c.Problem).At("Lease kube-system/"+accountLease).
				Because("it can change nothing at DigitalOcean").
				Advise("docs/components/"+c.Name+".md"))
		}
	}
	return out
}

// elects reports whether a Lease is the one by which a component elects its leader, in a namespace of Mooring's.
func (e ControllerEvidence) elects(c component, l Lease) bool {
	here := l.Namespace == c.leaseIn || c.leaseIn == "" && slices.Contains(e.Namespaces, l.Namespace)
	return c.lease != "" && l.Name == c.lease && here
}

// Elected are the components whose Lease somebody renews.
func (e ControllerEvidence) Elected() []string {
	var out []string
	for _, c := range components() {
		if slices.ContainsFunc(e.Leases, func(l Lease) bool {
			return e.elects(c, l) && l.Holder != "" && !l.Stale(e.Now)
		}) {
			out = append(out, c.name)
		}
	}
	return out
}

// fighting finds others that do the work of ours alongside them.
func fighting(e ControllerEvidence) []finding.Finding {
	var out []finding.Finding
	for _, c := range components() {
		ours := running(c.of(e.Workloads))
		if len(ours) == 0 {
			continue
		}
		for _, w := range e.Workloads {
			out = append(out, Rivals(c.name, w, names(ours))...)
			if f := KubeControllers(w); c.name == NodeSync && w.Name == KubeControllersName && f.Severity != finding.OK {
				out = append(out, f)
			}
		}
	}
	return out
}

// Rivals are the findings about a workload that does the work of a component, alongside what runs that.
func Rivals(component string, w Workload, ours string) (out []finding.Finding) {
	for _, c := range components() {
		for _, r := range c.rivals {
			if c.name == component && r.name != "" && w.Wanted > 0 && r.is(c, w) {
				out = append(out, r.severity.Say("%s is %s, and runs alongside %s", w, r.name, ours).At(w.String()).
					Because(r.why).
					Advise(r.do))
			}
		}
	}
	return out
}

// KubeControllersName is the name of the Deployment that [KubeControllers] judges.
const KubeControllersName = "calico-kube-controllers"

// KubeControllers judges Calico's own controller that removes Calico Nodes, alongside calico-node-sync. What it does
// follows from its variables (calico kube-controllers/pkg/config): etcd is its default, and all controllers are.
func KubeControllers(w Workload) finding.Finding {
	const list = "ENABLED_CONTROLLERS"
	kind, enabled := w.Env["DATASTORE_TYPE"], w.Env[list]
	well := func(what, why string) finding.Finding {
		return finding.OK.Say("%s %s", w.String(), what).At(w.String()).Because(why)
	}
	switch {
	case w.Wanted == 0:
		return well("is scaled to 0: no other controller removes Calico Nodes", "")
	case kind.Value == "kubernetes":
		return well("runs with the kubernetes datastore, where it removes no Nodes; its garbage collection of addresses and ours agree", "")
	case kind.Elsewhere || enabled.Elsewhere:
		taken := slices.DeleteFunc([]string{"DATASTORE_TYPE", list}, func(v string) bool { return !w.Env[v].Elsewhere })
		return finding.Note.Say("not read: %s takes %s from another object", w, strings.Join(taken, " and ")).At(w.String()).
			Because("with the etcdv3 datastore its node controller removes Calico Nodes itself, without the guards of calico-node-sync").
			Advise("check whether node is among the controllers there")
	case enabled.Value != "" && !slices.Contains(strings.Split(strings.ReplaceAll(enabled.Value, " ", ""), ","), "node"):
		return well("runs without its node controller: no other controller removes Calico Nodes",
			"without it there is no garbage collection of leaked addresses of living machines, no copying of labels and no automatic host endpoint either")
	}
	return finding.Warning.Say("%s runs its node controller with the etcdv3 datastore, and removes Calico Nodes itself", w).At(w.String()).
		Because("it does so at once when a Node is deleted, and at every start: no guard of calico-node-sync can hold that back").
		Advise("accept both, or leave node out of " + list + " and note what else that turns off: docs/migration/calico-node-sync.md")
}

// twice finds a component that is installed more than once.
func twice(e ControllerEvidence) []finding.Finding {
	var out []finding.Finding
	for _, c := range components() {
		ours := running(c.of(e.Workloads))
		if c.twice == "" || len(ours) < 2 {
			continue
		}
		out = append(out, c.twice.Say("%d workloads run %s: %s", len(ours), c.name, names(ours)).At(ours[0].String()).
			Because(c.twiceWhy).
			Advise("keep one, and scale the others to 0"))
	}
	return out
}

// replicas finds what has no pods, or fewer than it is to have.
func replicas(e ControllerEvidence) (out []finding.Finding) {
	for _, c := range components() {
		for _, w := range c.of(e.Workloads) {
			if f := e.pods(c, w); f.What != "" {
				out = append(out, w.of(f))
			}
		}
	}
	return out
}

// of is a finding about a workload that its What does not name.
func (w Workload) of(f finding.Finding) finding.Finding {
	f.What, f.Where = w.String()+": "+f.What, cmp.Or(f.Where, w.String())
	return f
}

// pods is what a workload lacks of its pods; without a text if nothing. One that is scaled to 0 is a note if others of
// the component run in its place.
func (e ControllerEvidence) pods(c component, w Workload) (f finding.Finding) {
	f.Why = c.name + " does nothing"
	f.Do = fmt.Sprintf("see why: kubectl -n %s describe %s, and its pods", w.Namespace, w.reference())
	switch {
	case w.Wanted == 0 && w.Kind == "DaemonSet": // there is no machine for it yet
	case w.Wanted == 0:
		f.Severity, f.What, f.Why, f.Do = finding.Note, "it is scaled to 0", f.Why+" then", ""
		if !slices.ContainsFunc(running(c.of(e.Workloads)), func(o Workload) bool { return o.Kind != "DaemonSet" }) {
			f.Severity = finding.Warning
			f.Do = "set its replicas again where they were set to 0 (the chart's values or the manifest), " +
				"or uninstall it"
		}
	case w.Ready == 0:
		f.Severity, f.What = finding.Problem, "no pod of "+prose.Plural(w.Wanted, "pod")+" is ready"
	case w.Ready < w.Wanted:
		f.Severity, f.What = finding.Warning, fmt.Sprintf("%d of %s ready", w.Ready, prose.Are(w.Wanted, "pod"))
		f.Why = "it works, with fewer replicas left if a machine fails"
		if w.Kind == "DaemonSet" {
			f.Why = "it does nothing on the other machines"
		}
	}
	return f
}

// election is where a workload elects its leader; no name if it elects nobody.
func (c component) election(w Workload) (namespace, name string) {
	elect := c.electing
	if value, set := w.flag("leader-elect"); set {
		says, err := strconv.ParseBool(value)
		elect = says || err != nil // a word behind it is another container's
	}
	if c.lease == "" || !elect {
		return "", ""
	}
	return w.valueOf(c.leaseInFlag, cmp.Or(c.leaseIn, w.Namespace)), w.valueOf(c.leaseFlag, c.lease)
}

// leaders finds components of which nobody leads. Without a ready pod there is another finding.
func leaders(e ControllerEvidence) (out []finding.Finding) {
	if e.LeaseProblem != "" {
		return []finding.Finding{finding.NotLookedAt("Leases", e.LeaseProblem)}
	}
	for _, c := range components() {
		for _, w := range running(c.of(e.Workloads)) {
			if f := e.leads(c, w); f.What != "" && w.Ready > 0 {
				out = append(out, w.of(f))
			}
		}
	}
	return out
}

// leads is who leads a workload; without a text if it needs no leader.
func (e ControllerEvidence) leads(c component, w Workload) (f finding.Finding) {
	namespace, name := c.election(w)
	l, lease := e.lease(namespace, name)
	f = finding.Finding{
		Severity: finding.Problem, Where: "Lease " + namespace + "/" + name,
		Why: fmt.Sprintf("%s has ready pods, and none of them works", w),
		Do:  fmt.Sprintf("read the log: kubectl -n %s logs %s", w.Namespace, w.reference()),
	}
	switch {
	case name == "" && c.lease != "" && w.Wanted > 1:
		return finding.Problem.Say("it has %d replicas and elects no leader", w.Wanted).
			Because("all of them do the same work at the same time").
			Advise("set --leader-elect, or scale it to 1")
	case name == "":
		return finding.Finding{}
	case !lease:
		f.What = fmt.Sprintf("there is no %s, with which it elects its leader", f.Where)
	case l.Stale(e.Now):
		f.What = l.problem(e.Now)
		f.Why += fmt.Sprintf("; it was last renewed %s ago, by %s",
			prose.Span(e.Now.Sub(l.Renewed)), cmp.Or(l.Holder, "nobody"))
	case l.Holder == "":
		f.Severity, f.What = finding.Note, "its leader has just released "+f.Where
		f.Why, f.Do = "another replica should acquire it within seconds", ""
	default:
		return finding.OK.Say("%s leads it", l.Holder).At(f.Where)
	}
	return f
}

// lease is the Lease of that name, and whether there is one.
func (e ControllerEvidence) lease(namespace, name string) (l Lease, found bool) {
	at := slices.IndexFunc(e.Leases, func(l Lease) bool { return l.Namespace == namespace && l.Name == name })
	if at >= 0 {
		l = e.Leases[at]
	}
	return l, at >= 0
}

// versions finds images of one release that are of different versions.
func versions(e ControllerEvidence) []finding.Finding {
	type image struct{ of, tag string }
	releases := map[string][]image{}
	for _, c := range components() {
		if c.name == storageProxy {
			continue // those follow their operator, one after the other
		}
		for _, w := range c.of(e.Workloads) {
			release := w.Labels["app.kubernetes.io/instance"] + " in namespace " + w.Namespace
			for _, i := range w.Images {
				if (Workload{Images: []string{i}}).runs(c.name) {
					releases[release] = append(releases[release], image{w.String(), tag(i)})
				}
			}
			if i, set := w.flag("etcd-proxy-image"); set && c.name == Storage {
				releases[release] = append(releases[release], image{w.String() + " (--etcd-proxy-image)", tag(i)})
			}
		}
	}
	var out []finding.Finding
	for release, images := range releases {
		images = slices.DeleteFunc(images, func(i image) bool { return i.tag == "" }) // a digest is of no version
		tags := map[string]bool{}
		var parts []string
		for _, i := range images {
			tags[i.tag] = true
			parts = append(parts, i.of+" has "+i.tag)
		}
		if len(tags) < 2 {
			continue
		}
		slices.Sort(parts)
		out = append(out, finding.Warning.Say("images of one release differ in version: %s", strings.Join(parts, ", ")).At(strings.TrimSpace("release "+release)).
			Because("components are tested together only in one version").
			Advise("upgrade the older ones, or keep the difference if it is intended"))
	}
	return out
}
