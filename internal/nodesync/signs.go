// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Report is what a machine's Felix last reported of itself in etcd. It does so every 30 s unless it is configured
// otherwise (felix/config, ReportingIntervalSecs), and what it last reported stays in the datastore (felix/daemon,
// handleProcessStatusUpdate).
type Report struct {
	Host string
	// Revision is that of the report, and At the time in it, the zero time if it has none.
	Revision int64
	At       time.Time
}

// CalicoPod is a running calico-node pod ("namespace/name") on a Kubernetes Node. Nodename is the NODENAME that it
// runs with, empty if the API server does not know it.
type CalicoPod struct {
	Node, Pod, Nodename string
}

const (
	// freshSign is for how long a sign of life counts that is older than the absence: four times as long as Felix
	// takes between two reports.
	freshSign = 2 * time.Minute
	// strangerSilence is how long a machine must be silent that nobody saw leave this cluster, and that was alive
	// without a Kubernetes Node.
	strangerSilence = 24 * time.Hour
)

// sign is something that only a machine that runs writes to Calico's datastore. It is proof of life after a revision
// of the store, or after a time. What a machine writes again and again, regular, is one also if it is older than the
// absence, for as long as the next is not overdue.
type sign struct {
	what     string
	revision int64
	at       time.Time
	regular  bool
}

// signsOf lists, for each host, what was read that is a sign of life. What kube-controllers writes about a machine is
// none, nor is a block: anyone who releases an address writes it.
func signsOf(w World) map[string][]sign {
	signs := map[string][]sign{}
	add := func(host string, s sign) { signs[host] = append(signs[host], s) }
	for _, r := range w.Calico.Reports {
		add(r.Host, sign{what: "its Felix reports its status", revision: r.Revision, at: r.At, regular: true})
	}
	for host, revision := range w.Calico.EndpointsWritten {
		add(host, sign{what: "workload endpoints were written", revision: revision})
	}
	for _, h := range w.Calico.Hosts {
		for _, e := range h.Endpoints {
			add(h.Name, sign{what: "workload endpoints were written", revision: e.Revision})
		}
		for _, b := range h.Blocks {
			for _, a := range b.Allocations {
				if a.Host == h.Name {
					add(h.Name, sign{what: "addresses were assigned", at: a.AssignedAt})
				}
			}
		}
		for _, r := range h.Resources {
			if r.Kind == KindCalicoNodeStatus && !r.StatusAt.IsZero() {
				add(h.Name, sign{what: "its CalicoNodeStatus " + r.Name + " was updated", revision: r.Revision, at: r.StatusAt, regular: true})
			}
		}
	}
	return signs
}

// heard returns the absence with the latest sign of life since it began, or shortly before it was first noticed. In
// etcd revisions tell what came later; times are by the clocks of machines, and only the kubernetes datastore has
// nothing else.
func (a Absence) heard(signs []sign, store int64, now time.Time) Absence {
	noticed, moved := a.Since.Equal(now), false
	if a.Store == 0 || a.Store > store {
		a.Store = store // the absence begins now, or the datastore was restored from a backup
	}
	for _, s := range signs {
		written := store > 0 && s.revision > a.Store
		if !written && !a.timed(s, store, now) {
			continue
		}
		moved = moved || written
		a.Lived = a.Lived || !noticed
		if at := a.timeOf(s, noticed, now); at.After(a.SpokeAt) {
			a.Spoke, a.SpokeAt = s.what, at
		}
	}
	if moved {
		a.Store = store
	}
	return a
}

// timed reports whether a sign counts by its time.
func (a Absence) timed(s sign, store int64, now time.Time) bool {
	after, counts := a.Since.Add(freshSign), store == 0
	if a.Since.Equal(now) {
		after, counts = now.Add(-freshSign), s.regular
	}
	return counts && s.at.After(after) && !s.at.After(now)
}

// timeOf is when a sign was given: now, if that is not known, or by a clock that is wrong.
func (a Absence) timeOf(s sign, noticed bool, now time.Time) time.Time {
	if s.at.After(now) || !noticed && !s.at.After(a.Since) {
		return now
	}
	return s.at
}

// silence is how long a machine must have been silent before it counts as gone. A machine that was seen to leave this
// cluster may run for a while without its Kubernetes Node. Of any other it shows that it never was one of this
// cluster, or goes by another name.
func (c candidate) silence(config Config) time.Duration {
	switch {
	case c.named:
		return freshSign
	case !c.absence.Witnessed && c.absence.Lived:
		return strangerSilence
	case config.OneShot:
		return max(config.Grace, freshSign)
	}
	return config.Grace
}

// aliveUntil is until when a machine counts as alive by what it last wrote, the zero time if it does not.
func (c candidate) aliveUntil(now time.Time, config Config) time.Time {
	if until := c.absence.SpokeAt.Add(c.silence(config)); !c.absence.SpokeAt.IsZero() && now.Before(until) && !(c.named && config.IgnoreSigns) {
		return until
	}
	return time.Time{}
}

// signsGate says that a machine speaks, what that may mean, and how a person says otherwise. It names no time that
// changes with every report.
func signsGate(cand candidate, config Config) string {
	if cand.second != nil {
		return fmt.Sprintf("%s: the calico-node of Kubernetes Node %s used this Calico Node until lately; it can be removed after a silence of %s; "+
			"if it is stale, %s", cand.absence.Spoke, quote(cand.subject.KubernetesNode), cand.silence(config), ignoringSigns(cand.subject.Host, config))
	}
	speaks := fmt.Sprintf("%s, and Kubernetes Node %s does not exist", cand.absence.Spoke, quote(cand.subject.KubernetesNode))
	ownCluster := cand.node.Implied && len(cand.node.OrchRefs) > 0
	if cand.absence.Witnessed || ownCluster {
		return fmt.Sprintf("%s: the machine still runs; it is removed after a silence of %s; if it is gone, %s",
			speaks, cand.silence(config), ignoringSigns(cand.subject.Host, config))
	}
	return fmt.Sprintf("%s: a machine of another cluster on this datastore, or one whose calico-node runs with another NODENAME? "+
		"It is removed after a silence of %s; annotation %s keeps it; if it is gone, %s",
		speaks, cand.silence(config), KeepAnnotation, ignoringSigns(cand.subject.Host, config))
}

// ignoringSigns is how a person says that a machine is gone although something speaks for it.
func ignoringSigns(host string, config Config) string {
	if config.OneShot {
		return "run apply " + host + " --ignore-signs-of-life"
	}
	return "run `kubectl mooring node forget " + host + " --ignore-signs-of-life`"
}

// stranger returns why nothing is to be removed that only the list of this cluster's Nodes speaks against, or "": a
// machine lives that is not in the list and was not seen to leave. Then its silent neighbors may live as well, and
// the pods that are not listed too. One that is annotated to be kept is known to be another's.
func (s *census) stranger(w World) string {
	if w.Calico.Binding.Implied {
		return "" // the datastore is part of the cluster
	}
	var alive []string
	for _, cand := range s.candidates {
		a := cand.absence
		if !a.Witnessed && cand.second == nil && !cand.node.Keep && a.Lived && w.Now.Before(a.SpokeAt.Add(strangerSilence)) {
			alive = append(alive, cand.subject.Host)
		}
	}
	if len(alive) == 0 {
		return ""
	}
	return fmt.Sprintf("%s alive by Calico's datastore and unknown to Kubernetes, such as %s: is there another cluster on this datastore? "+
		"Annotate its Calico Nodes with %s", prose.Are(len(alive), "machine"), quote(alive[0]), KeepAnnotation)
}

// askSecond refuses a Calico Node of a Kubernetes Node that has several, unless another one is shown to be the one
// that its calico-node uses: by the NODENAME of a running pod, or by a report of Felix. The evidence is what shows
// it.
func (l live) askSecond(cand candidate, now time.Time, c Config) (evidence, refused string) {
	node := cand.subject.KubernetesNode
	for _, pod := range l.calicoPods[node] {
		switch {
		case pod.Nodename == cand.subject.Host:
			refused = fmt.Sprintf("calico-node pod %s on Kubernetes Node %s runs with NODENAME %s: this is the Calico Node that the machine uses",
				pod.Pod, quote(node), quote(pod.Nodename))
		case slices.Contains(cand.second, pod.Nodename):
			evidence = fmt.Sprintf("calico-node pod %s there runs with NODENAME %s", pod.Pod, quote(pod.Nodename))
		}
	}
	for _, other := range cand.second {
		if report := l.reports[other]; evidence == "" && !report.At.After(now) && now.Sub(report.At) < freshSign {
			evidence = fmt.Sprintf("Felix there reports as %s", quote(other))
		}
	}
	switch {
	case c.IgnoreSigns && refused+evidence == "":
		return "a person says so", ""
	case c.IgnoreSigns && refused != "":
		return "a person says so, although " + refused, ""
	case refused == "" && evidence == "":
		refused = fmt.Sprintf("Kubernetes Node %s exists and has Calico Nodes %s, and nothing shows which of them its calico-node uses: no running "+
			"calico-node pod there has a known NODENAME, and no Felix has reported as another one lately; which NODENAME does it run with",
			quote(node), quoteAll(append(slices.Clone(cand.second), cand.subject.Host)))
	}
	if refused != "" {
		refused += "; if this one is stale, " + ignoringSigns(cand.subject.Host, c)
	}
	return evidence, refused
}

// reportsWanted lists the hosts of which a plan needs the Report: those that are due, those that were not seen to
// leave, and the other Calico Nodes of a Kubernetes Node that has several of which one is named.
func (j *judgement) reportsWanted(census census) []string {
	var hosts []string
	for _, cand := range census.candidates {
		if !cand.absence.Witnessed || cand.named {
			hosts = append(append(hosts, cand.subject.Host), cand.second...)
		}
	}
	for _, cand := range j.due {
		hosts = append(hosts, cand.subject.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
