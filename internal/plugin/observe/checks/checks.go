// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	routereflectors "github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/topology"
)

const controllersLong = `Check which controllers run: upstream projects and others alongside Mooring's components, two installations of one component, Deployments without a ready pod,
Leases of leader election that are not renewed, and versions that differ within one release.

Deployments, DaemonSets, StatefulSets and Leases are read, and those in Mooring's namespaces judged (--mooring-namespace); what looks like a component elsewhere
is noted. A component is recognized by the labels of its manifests and chart, or by the last part of its image's name; upstream projects by the names in
docs/migration. Objects of a component that nothing runs are a problem: EtcdStorages, RouteReflectorTopologies, the volume driver's CSIDriver.`

// Certificates is the doctor that may read Secrets.
const Certificates = "certificates"

// Check is one of the doctors that look at a whole cluster.
type Check struct {
	Name, Short, Long string
	look              func(context.Context, *Examination) []finding.Finding
}

// Parts are those that are commands of their own by this alone.
func Parts() []Check {
	return []Check{
		{"controllers", "Find controllers that conflict, and components that do not work", controllersLong, func(ctx context.Context, x *Examination) []finding.Finding {
			return doctor.Controllers(ControllerEvidence(ctx, x))
		}},
		{"rbac", "Find rights that a component needs and does not have", rightsLong, lookAtRights},
		{"etcdstorages", "Find tenants of etcd storage that are not ready, and a core that is not healthy", storagesLong, lookAtStorages},
		{"volumes", "Find what keeps DigitalOcean's volumes from being attached, mounted or made", volumesLong, lookAtVolumes},
		{estate.CheckEstate, "Find what the cluster pays for at DigitalOcean and nothing refers to", estateLong, lookAtEstate},
		{Certificates, "Find certificates that have expired or expire soon", certificatesLong, lookAtCertificates},
	}
}

// All is every doctor: those, and what components contribute.
func All() []Check {
	return append(Parts(), Check{Name: "routereflectors", look: lookAtRouteReflectors}, Check{Name: "nodesync", look: lookAtNodeSync})
}

// Findings are those of some doctors, the worst first. What they share is read once.
func (x *Examination) Findings(ctx context.Context, parts []Check) []finding.Finding {
	found := make([][]finding.Finding, len(parts))
	for i, part := range parts {
		found[i] = part.look(ctx, x)
	}
	return finding.Merge(found...)
}

// lookAtRouteReflectors is the doctor of that name, as part of all. It leaves half of the time to the one that follows: a datastore may not respond at all.
func lookAtRouteReflectors(ctx context.Context, x *Examination) []finding.Finding {
	if end, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	where, err := observe.Datastore("")
	if err == nil {
		var evidence routereflectors.Evidence
		if evidence, err = ReflectorEvidence(ctx, x.cluster, where); err == nil {
			return finding.Merge(routereflectors.Findings(evidence), x.topologies(ctx, evidence.Topologies))
		}
	}
	f := notLookedAt("routereflectors", "route reflectors", err)
	if errors.Is(err, calico.ErrNoBGPKinds) { // a cluster without such data has nothing for it
		f.Severity, f.Unread, f.Why, f.Do = finding.Note, false, "", ""
	}
	return []finding.Finding{f}
}

// topologies are the findings about RouteReflectorTopologies as they are drawn.
func (x *Examination) topologies(ctx context.Context, all []v1alpha1.RouteReflectorTopology) []finding.Finding {
	nodes, err := x.cluster.Nodes(ctx)
	var maps []topology.Map
	if err == nil {
		maps, err = topology.Maps(all, observe.DrawnNodes(nodes))
	}
	if err != nil {
		return []finding.Finding{notLookedAt("routereflectors", "RouteReflectorTopologies", err)}
	}
	return topology.Findings(maps, x.cluster.ServerTime(x.clock.Now()))
}

// lookAtNodeSync is calico-node-sync's doctor as part of all, where one keeps its state: what the other doctors and agreement look at is theirs. It may read
// much of a datastore, so that it is the last.
func lookAtNodeSync(ctx context.Context, x *Examination) []finding.Finding {
	namespace, err := x.cluster.StateNamespace(ctx)
	switch {
	case err != nil:
		return []finding.Finding{notLookedAt("nodesync", "calico-node-sync's state", err)}
	case namespace == "":
		return nil
	}
	found, err := nodeSyncDoctor(x.cluster).Findings(ctx)
	if err == nil {
		return found
	}
	f := notLookedAt("nodesync", "Calico's datastore", err)
	if errors.Is(err, observe.ErrNoCalico) { // it is elsewhere: a calico-node-sync runs
		f.Do = "name Calico's etcd in the environment as for calicoctl (ETCD_ENDPOINTS and what goes with it), or run `calico-node-sync doctor` in its Pod"
	}
	return append(found, f)
}

// nodeSyncDoctor is calico-node-sync's as part of all. It is not asked for the rights of the person, and does not sweep the whole datastore.
func nodeSyncDoctor(c *observe.Cluster) *commands.Doctor {
	d := commands.NewDoctor(c.NodeSync())
	d.ForPerson, d.Among, d.Settings.Config.SweepPeriod = true, true, 0
	return d
}

// notLookedAt is why a check of Calico's data was not made, or not to its end.
func notLookedAt(check, side string, err error) finding.Finding {
	f := finding.NotLookedAt(side, observe.OneLine(err))
	if errors.Is(err, context.DeadlineExceeded) {
		f = finding.NotLookedAt(side, "time ran out before all of it was read")
		f.Do = "run `kubectl mooring doctor " + check + "`, which has its time for this alone"
	}
	f.Check = check
	return f
}
