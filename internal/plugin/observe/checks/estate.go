// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const estateLong = `Find what this cluster has at DigitalOcean and pays for, and to which nothing in the cluster refers: load balancers, certificates, volumes and snapshots.
"kubectl mooring estate" lists all of it, with prices, and removes what is left over.

DigitalOcean is read with the token in DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE, as by "kubectl mooring estate". Without a token that is a note, in clusters where
digitalocean-cloud-controller-manager runs, and nothing elsewhere.`

// lookAtEstate judges what the cluster has at DigitalOcean.
func lookAtEstate(ctx context.Context, x *Examination) []finding.Finding {
	e, err := observe.ReadEstate(ctx, x.cluster, x.clock)
	ours, _, _ := x.workloads(ctx)
	switch {
	case err == nil && e.World.Controller == "":
		return unjudged(estate.Judge(e.World).Findings())
	case err == nil:
		return estate.Judge(e.World).Findings()
	case !errors.Is(err, observe.ErrNoToken):
		return []finding.Finding{notLookedAt(estate.CheckEstate, "DigitalOcean", err)}
	case doctor.RunsCloud(ours):
		return []finding.Finding{{
			Check: estate.CheckEstate, Severity: finding.Note, What: "what nothing refers to at DigitalOcean is not known: " + observe.OneLine(err),
			Do: "set DO_ACCESS_TOKEN, and run `kubectl mooring estate`",
		}}
	}
	return nil
}

// unjudged puts one note in the place of all that is unknown because no Deployment of the cloud component says which
// objects are the cluster's, as where it runs outside of the cluster: nothing is known to be wrong, or to be well.
func unjudged(found []finding.Finding) []finding.Finding {
	found = slices.DeleteFunc(found, func(f finding.Finding) bool {
		volume := strings.HasPrefix(f.Where, string(estate.Volume)) || strings.HasPrefix(f.Where, string(estate.Snapshot))
		return f.Severity == finding.OK || f.Unread && !volume && (f.Where != "" || strings.Contains(f.What, ": the configuration: "))
	})
	return append(found, finding.Finding{
		Check: estate.CheckEstate, Severity: finding.Note, Unread: true,
		What: "what the cluster pays for at DigitalOcean and nothing refers to was not looked at: no Deployment of " + doctor.Cloud + " says which objects are the cluster's",
		Why:  "what is left over there is not found", Do: "see what is not another's yourself: kubectl mooring estate",
	})
}
