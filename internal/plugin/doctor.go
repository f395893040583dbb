// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	routereflectors "github.com/mooring-dev/mooring/internal/routereflector/doctor"
)

const doctorLong = `Check a cluster for known hazards. Nothing is written. Without a subcommand all checks run, one after the other:
  controllers      two programs that do the same work, components without pods or a leader, versions that differ
  rbac             rights that a component needs and its service account does not have
  certificates     certificates that have expired or expire soon; Secrets are only counted, unless --secrets says otherwise
  etcdstorages     tenants of etcd storage that are not ready, and a core etcd that is not well
  volumes          two volume drivers at once, the automount udev rule, missing topology labels, StorageClasses that differ
  routereflectors  black holes, multiplying paths and other hazards of BGP route reflectors

Each finding says what is wrong, why it matters and what to do, the worst first. What could not be read is a finding, too.

` + screen.FindingExitCodes

const doctorExample = `  kubectl mooring doctor
  kubectl mooring doctor -o json | jq '.findings[] | select(.severity == "problem")'`

const doctorControllersLong = `Check which controllers run: upstream projects and others alongside Mooring's components, two installations of one component, Deployments without a ready pod,
Leases of leader election that are not renewed, and versions that differ within one release.

Deployments, DaemonSets and Leases of all namespaces are read. A component is recognized by the labels of its manifests and chart, or by
the last part of its image's name; upstream projects by the names in docs/migration.`

// partCertificates is the doctor that may read Secrets.
const partCertificates = "certificates"

// doctorPart is one of the doctors that look at a whole cluster.
type doctorPart struct {
	name, short, long string
	look              func(context.Context, *examination) []finding.Finding
}

// doctorParts are those that are commands of their own by this alone.
func doctorParts() []doctorPart {
	return []doctorPart{
		{"controllers", "Find controllers that conflict, and components that do not work", doctorControllersLong, lookAtControllers},
		{"rbac", "Find rights that a component needs and does not have", doctorRBACLong, lookAtRights},
		{"etcdstorages", "Find tenants of etcd storage that are not ready, and a core that is not well", doctorStoragesLong, lookAtStorages},
		{"volumes", "Find what keeps DigitalOcean's volumes from being attached, mounted or made", doctorVolumesLong, lookAtVolumes},
		{partCertificates, "Find certificates that have expired or expire soon", doctorCertificatesLong, lookAtCertificates},
	}
}

// wholeDoctor is every doctor.
func wholeDoctor() []doctorPart {
	return append(doctorParts(), doctorPart{name: "routereflectors", look: lookAtRouteReflectors})
}

// findings are those of some doctors, the worst first. What they share is read once.
func (x *examination) findings(ctx context.Context, parts []doctorPart) []finding.Finding {
	found := make([][]finding.Finding, len(parts))
	for i, part := range parts {
		found[i] = part.look(ctx, x)
	}
	return finding.Merge(found...)
}

// doctorFormat is -o of every doctor.
func doctorFormat() screen.Format {
	return screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
}

// doctorCommand runs some of the doctors.
type doctorCommand struct {
	env    *Env
	parts  []doctorPart
	output screen.Format
	// secrets reports that certificates in Secrets are read.
	secrets bool
}

// newDoctor is the command that runs every doctor, and the group of each. They write nothing.
func newDoctor(env *Env) *cobra.Command {
	cmd := (&doctorCommand{env: env, parts: wholeDoctor()}).command("doctor", "Check for known hazards, without changing anything", doctorLong, doctorExample)
	for _, part := range doctorParts() {
		cmd.AddCommand((&doctorCommand{env: env, parts: []doctorPart{part}}).command(part.name, part.short, part.long, "  kubectl mooring doctor "+part.name))
	}
	cmd.AddCommand(newDoctorRouteReflectors(env))
	return cmd
}

func (d *doctorCommand) command(use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	if slices.ContainsFunc(d.parts, func(p doctorPart) bool { return p.name == partCertificates }) {
		cmd.Flags().BoolVar(&d.secrets, "secrets", false, "Read the certificates (tls.crt) in Secrets of type kubernetes.io/tls, too.")
	}
	d.output = doctorFormat()
	d.output.AddTo(cmd)
	return cmd
}

func (d *doctorCommand) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	c, err := d.env.cluster()
	if err != nil {
		return err
	}
	// One question that everybody may ask tells a cluster that does not respond from sides that may not be read.
	if _, err := c.typed.Discovery().ServerVersion(); err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	x := &examination{env: d.env, cluster: c, clock: clock.RealClock{}, secrets: d.secrets}
	return screen.Findings(x.findings(ctx, d.parts), &d.output, out)
}

// lookAtRouteReflectors is the doctor of that name, as part of all. A cluster without Calico's kinds has nothing for it.
func lookAtRouteReflectors(ctx context.Context, x *examination) []finding.Finding {
	const check, side = "routereflectors", "route reflectors"
	evidence, err := (&doctorRouteReflectors{env: x.env}).fromCluster(ctx)
	if err == nil {
		return routereflectors.Findings(evidence)
	}
	f := doctor.NotLookedAt(side, plain(err))
	if f.Check = check; errors.Is(err, calico.ErrNoBGPKinds) {
		f.Severity, f.Unread, f.Why, f.Do = finding.Note, false, "", ""
	}
	return []finding.Finding{f}
}
