// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor is the command of that name: the checks of package observe/checks, together or one by one.
package doctor

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
)

const long = `Check a cluster for known hazards. Nothing is written. Without a subcommand all checks run, one after the other:
  controllers      two programs that do the same work, components without pods or a leader, versions that differ
  rbac             rights that a component needs and its service account does not have
  certificates     certificates that have expired or expire soon; Secrets are only counted, unless --secrets says otherwise
  etcdstorages     tenants of etcd storage that are not ready, and a core etcd that is not healthy
  volumes          two volume drivers at once, the automount udev rule, missing topology labels, StorageClasses that differ
  estate           what the cluster pays for at DigitalOcean and nothing refers to; DO_ACCESS_TOKEN names the token
  routereflectors  black holes, multiplying paths and other hazards of BGP route reflectors
  nodesync         what prevents calico-node-sync from working: Calico's datastore, ambiguous names, machines that are held back

Only by its name runs:
  ipam             disagreements in the data of Calico's IPAM, all of which it reads

Each finding says what is wrong, why it matters and what to do, the worst first. What could not be read is a finding, too.

` + screen.FindingExitCodes

const example = `  kubectl mooring doctor
  kubectl mooring doctor -o json | jq '.findings[] | select(.severity == "problem")'`

// examiner runs some of the doctors.
type examiner struct {
	env   *observe.Env
	parts []checks.Check
	// secrets reports that certificates in Secrets are read.
	secrets bool
}

// New is the command that runs every doctor, and the group of each. They write nothing.
func New(env *observe.Env) *cobra.Command {
	cmd := (&examiner{env: env, parts: checks.All()}).command("doctor", "Check for known hazards, without changing anything", long, example)
	for _, part := range checks.Parts() {
		cmd.AddCommand((&examiner{env: env, parts: []checks.Check{part}}).command(part.Name, part.Short, part.Long, "  kubectl mooring doctor "+part.Name))
	}
	cmd.AddCommand(newNodeSync(env), newIPAM(env), newRouteReflectors(env))
	return cmd
}

const nodeSyncWhere = `It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl (ETCD_ENDPOINTS and what goes
with it). What is in the way of the controller alone, its own flags and variables, is found by "calico-node-sync doctor" in its Pod; its rights by "kubectl mooring
doctor rbac".`

func newNodeSync(env *observe.Env) *cobra.Command {
	examination := commands.NewDoctor(env.NodeSync())
	examination.ForPerson = true
	cmd := examination.Command(nodeSyncWhere)
	cmd.Use, cmd.Example = "nodesync", "  kubectl mooring doctor nodesync\n  ETCD_ENDPOINTS=https://10.0.0.1:2379 kubectl mooring doctor nodesync -o json"
	return observe.Bounded(cmd)
}

const ipamWhere = `It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl (ETCD_ENDPOINTS and what goes
with it). "kubectl mooring doctor" without a subcommand does not include it, because it reads all endpoints, blocks and handles.`

func newIPAM(env *observe.Env) *cobra.Command {
	cmd := commands.NewIPAM(env.NodeSync()).Command(ipamWhere)
	cmd.Example = "  kubectl mooring doctor ipam\n  ETCD_ENDPOINTS=https://10.0.0.1:2379 kubectl mooring doctor ipam -o json"
	return cmd // each call is bounded; all of them are as many as the datastore is big, and it waits between two readings
}

func (d *examiner) command(use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example}
	if slices.ContainsFunc(d.parts, func(p checks.Check) bool { return p.Name == checks.Certificates }) {
		cmd.Flags().BoolVar(&d.secrets, "secrets", false, "Read the certificates (tls.crt) in Secrets of type kubernetes.io/tls, too.")
	}
	return screen.Finds(cmd, func(cmd *cobra.Command) ([]finding.Finding, error) {
		return observe.Read(observe.Once(cmd.Context()), d.env, d.run)
	})
}

func (d *examiner) run(ctx context.Context, c *observe.Cluster) ([]finding.Finding, error) {
	// One request that everybody may make tells a cluster that does not respond from sides that may not be read.
	if _, err := c.Version(ctx); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	x := checks.New(c, clock.RealClock{})
	x.Secrets = d.secrets
	return x.Findings(ctx, d.parts), nil
}
