// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// How long what DigitalOcean said stands. A page is read again many times an hour, and an account has 5,000 requests in one, of which 5,000 droplets
// take 25. It is read sooner for Nodes that were not there then, or whose condition Ready has changed since.
const (
	cloudStands    = 5 * time.Minute
	cloudStandsNew = time.Minute
)

// The doctor makes hundreds of small requests, of which few have another answer a minute later: it runs again after doctorStands, and within
// doctorTime, so that a side that hangs does not hold up the rest: with volumesTime it leaves enough of observe.ReadTime. What it could not read by then is a
// finding.
const (
	doctorStands = 2 * time.Minute
	doctorTime   = observe.ReadTime / 3
)

// Reader reads all that status and the page show.
type Reader struct {
	cluster *observe.Cluster
	clock   clock.PassiveClock
	// journal reports that the reported steps of the components are shown.
	journal bool

	// cloud is what DigitalOcean said, at cloudAt.
	cloud   agreement.Cloud
	cloudAt time.Time

	// listed are the load balancers of digitalOcean by ID at listedAt, nil if they are not known.
	listed       map[string]loadbalancer.Observed
	listedAt     time.Time
	listProblem  error
	digitalOcean *doapi.Client

	// findings are the doctor's, at checkedAt.
	findings  []finding.Finding
	checkedAt time.Time

	// volumes are those of a while ago.
	volumes ui.Volumes
}

// NewReader returns one that has read nothing yet. With journal it reads the reported steps of the components as well.
func NewReader(c *observe.Cluster, now clock.PassiveClock, journal bool) *Reader {
	return &Reader{cluster: c, clock: now, journal: journal}
}

// Read reads everything once. An error is one sentence about what nothing can be shown without; each other part says for itself what is wrong.
func (u *Reader) Read(ctx context.Context) (ui.World, error) {
	ctx, cancel := observe.Reading(observe.Once(ctx))
	defer cancel()
	w, err := u.read(ctx)
	return w, cmp.Or(observe.Unresponsive(ctx), err)
}

func (u *Reader) read(ctx context.Context) (ui.World, error) {
	w := ui.World{Cluster: u.cluster.Name, Zones: map[string]string{}}
	x := checks.New(u.cluster, u.clock)
	// First: what single Leases and workloads are asked for later is among those of all namespaces, and nothing is asked for in a
	// group that is not served.
	_, _, _ = u.cluster.List(ctx, observe.APIServices())
	u.components(ctx, x, &w)
	sides, err := observe.Machines(ctx, u.cluster, u.clock, u.droplets)
	if err != nil {
		return w, err
	}
	nodes, err := u.cluster.Nodes(ctx)
	if err != nil {
		return w, err
	}
	for _, n := range nodes {
		w.Zones[n.Name] = n.Labels[corev1.LabelTopologyZone]
		if reason := loadbalancer.Excluded(n); reason != "" {
			w.Excluded = append(w.Excluded, ui.Excluded{Node: n.Name, Reason: reason})
		}
	}
	w.Candidates = len(nodes)
	w.Machines, w.Notes = agreement.Rows(sides), notesOf(sides)
	u.topologies(ctx, &w, nodes)
	waits := u.cluster.Waiting(ctx, sides.Now)
	w.Waits, w.WaitProblem = waits.Waits, strings.Join(waits.Unread, "; ")
	events := readServiceEvents(ctx, u.cluster)
	w.Balancers, err = u.balancers(ctx, nodes, events)
	w.BalancerProblem = observe.OneLine(err)
	u.readVolumes(ctx, &w)
	u.tenants(ctx, &w)
	u.doctor(ctx, x, &w)
	hazards(&w)
	if u.journal {
		w.Entries, w.JournalProblems = entries(ctx, u.cluster, events)
	}
	if err := ctx.Err(); err != nil {
		return w, fmt.Errorf("reading the cluster: %w", context.Cause(ctx))
	}
	w.ReadAt = u.clock.Now()
	w.Now = u.cluster.ServerTime(w.ReadAt)
	return w, nil
}

// notesOf returns which sides nobody asked.
func notesOf(w agreement.World) []string {
	var out []string
	for _, s := range w.Sides() {
		if s.NotAsked != "" {
			out = append(out, s.Name+" not queried: "+s.NotAsked)
		}
		if s.Problem != "" {
			out = append(out, s.Name+" could not be read: "+s.Problem)
		}
	}
	return out
}

// droplets asks DigitalOcean, or takes what it said before.
func (u *Reader) droplets(ctx context.Context, nodes []*corev1.Node) (agreement.Cloud, error) {
	age, now := cloudStands, u.clock.Now()
	known, off := map[string]bool{}, map[string]bool{}
	for _, d := range u.cloud.Droplets {
		known[d.Node], off[d.Node] = true, d.Off
	}
	// A Node that has since become Ready, or is no longer, may have a droplet in another state than was read.
	changed := func(n *corev1.Node) bool {
		return !known[n.Name] || observe.AgreementNode(n).ReadySince.After(u.cloudAt)
	}
	if slices.ContainsFunc(nodes, changed) || u.cloud.Problem != "" || u.cloud.Volumes.Problem != "" {
		age = cloudStandsNew
	}
	// One that was switched off and whose Node has become Ready since is on again.
	if slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		is := observe.AgreementNode(n)
		return off[n.Name] && is.Ready == string(corev1.ConditionTrue) && is.ReadySince.After(u.cloudAt)
	}) {
		age = 0
	}
	if !u.cloudAt.IsZero() && now.Sub(u.cloudAt) < age {
		return u.cloud, nil
	}
	cloud, err := observe.Droplets(ctx, u.cluster, nodes, u.clock)
	if err == nil {
		u.cloud, u.cloudAt = cloud, now
	}
	return cloud, err
}

// doctor fills in the doctor's findings: new ones, or those of a while ago with their age.
func (u *Reader) doctor(ctx context.Context, x *checks.Examination, w *ui.World) {
	if now := u.clock.Now(); u.checkedAt.IsZero() || now.Sub(u.checkedAt) >= doctorStands {
		ctx, cancel := context.WithTimeout(ctx, doctorTime)
		defer cancel()
		u.findings, u.checkedAt = x.Findings(ctx, checks.All()), now
	}
	w.Findings, w.CheckedAt = u.findings, u.checkedAt
}

// hazards adds to topologies what the doctor has found about them that their status does not have.
func hazards(w *ui.World) {
	for i := range w.Topologies {
		t := &w.Topologies[i]
		for _, f := range w.Findings {
			if f.Where == topology.Where(t.Name) && f.Check != topology.CheckTopologies && f.Severity == finding.Problem {
				t.Troubles = append(t.Troubles, f.What)
			}
		}
	}
}

// components fills in Mooring's own programs.
func (u *Reader) components(ctx context.Context, x *checks.Examination, w *ui.World) {
	e := checks.ControllerEvidence(ctx, x)
	w.ComponentProblem = e.NotRead()
	w.Components = doctor.Components(e)
}

// topologies fills in what is drawn.
func (u *Reader) topologies(ctx context.Context, w *ui.World, nodes []*corev1.Node) {
	seen, served, problem := u.cluster.Topologies(ctx)
	w.TopologiesAbsent = !served && problem == nil
	if problem == nil {
		w.Topologies, problem = topology.Maps(seen, observe.DrawnNodes(nodes))
	}
	if problem != nil {
		w.TopologyProblem = problem.Error()
	}
}

// volumesStand is how long volumes stand: all Pods are listed for them, and DigitalOcean is queried a few times. It takes volumesTime at most.
const (
	volumesStand = 2 * time.Minute
	volumesTime  = observe.ReadTime / 4
)

// readVolumes fills in the volumes as kubectl mooring volumes has them: new ones, or those of a while ago with their age. What could not be read is tried again
// each time. It has a part of the time, so that a side that hangs does not hold up the rest.
func (u *Reader) readVolumes(ctx context.Context, w *ui.World) {
	if now := u.clock.Now(); u.volumes.At.IsZero() || u.volumes.Problem != "" || now.Sub(u.volumes.At) >= volumesStand {
		bounded, cancel := context.WithTimeout(ctx, volumesTime)
		defer cancel()
		u.volumes = ui.Volumes{At: now}
		if seen, err := observe.Volumes(bounded, u.cluster, u.clock); err != nil {
			u.volumes.Problem = observe.OneLine(err)
		} else {
			u.volumes.Report = volumes.Compare(seen)
		}
	}
	w.Volumes = u.volumes
}
