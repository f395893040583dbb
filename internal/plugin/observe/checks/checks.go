// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"slices"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	nodesync "github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	routereflectors "github.com/mooring-dev/mooring/internal/routereflector/doctor"
)

const controllersLong = `Check which controllers run: upstream projects and others alongside Mooring's components, two installations of one component, Deployments without a ready pod,
Leases of leader election that are not renewed, and versions that differ within one release.

Deployments, DaemonSets and Leases of all namespaces are read. A component is recognized by the labels of its manifests and chart, or by
the last part of its image's name; upstream projects by the names in docs/migration.`

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
		{"controllers", "Find controllers that conflict, and components that do not work", controllersLong, lookAtControllers},
		{"rbac", "Find rights that a component needs and does not have", rightsLong, lookAtRights},
		{"etcdstorages", "Find tenants of etcd storage that are not ready, and a core that is not healthy", storagesLong, lookAtStorages},
		{"volumes", "Find what keeps DigitalOcean's volumes from being attached, mounted or made", volumesLong, lookAtVolumes},
		{Certificates, "Find certificates that have expired or expire soon", certificatesLong, lookAtCertificates},
	}
}

// All is every doctor: those, and what components contribute.
func All() []Check {
	return append(Parts(), Check{Name: "nodesync", look: lookAtNodeSync}, Check{Name: "routereflectors", look: lookAtRouteReflectors})
}

// Findings are those of some doctors, the worst first. What they share is read once.
func (x *Examination) Findings(ctx context.Context, parts []Check) []finding.Finding {
	found := make([][]finding.Finding, len(parts))
	for i, part := range parts {
		found[i] = part.look(ctx, x)
	}
	return finding.Merge(found...)
}

// lookAtNodeSync is calico-node-sync's doctor as part of all, where one runs: what the other doctors look at is theirs. It is not asked for the rights of
// the person.
func lookAtNodeSync(ctx context.Context, x *Examination) []finding.Finding {
	source := x.cluster.NodeSync()
	if source.Namespace(ctx) == "" {
		return nil
	}
	examination := commands.NewDoctor(source)
	examination.ForPerson = true
	found, err := examination.Findings(ctx)
	if err != nil {
		return notLookedAt("nodesync", "Calico's datastore", err, observe.ErrNoCalico)
	}
	return slices.DeleteFunc(found, func(f finding.Finding) bool {
		return slices.Contains([]string{nodesync.CheckKubeControllers, nodesync.CheckInstallations, nodesync.CheckPredecessor}, f.Check)
	})
}

// lookAtRouteReflectors is the doctor of that name, as part of all.
func lookAtRouteReflectors(ctx context.Context, x *Examination) []finding.Finding {
	where, err := observe.Datastore("")
	if err == nil {
		var evidence routereflectors.Evidence
		if evidence, err = ReflectorEvidence(ctx, x.cluster, where); err == nil {
			return routereflectors.Findings(evidence)
		}
	}
	return notLookedAt("routereflectors", "route reflectors", err, calico.ErrNoBGPKinds)
}

// notLookedAt is why a check of Calico's data was not made. A cluster without such data has nothing for it.
func notLookedAt(check, side string, err, none error) []finding.Finding {
	f := doctor.NotLookedAt(side, observe.OneLine(err))
	if f.Check = check; errors.Is(err, none) {
		f.Severity, f.Unread, f.Why, f.Do = finding.Note, false, "", ""
	}
	return []finding.Finding{f}
}
