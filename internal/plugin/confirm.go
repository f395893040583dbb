// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

const confirmLong = `Show what Mooring's components hold back until a person confirms it, and how to confirm it. Nothing is written.

  calico-node-sync                       machines whose deletion was not observed, if they are more than the mass guard allows, or most of the datastore;
                                         and leftovers of deleted pods on existing machines, if they are more than a guard allows
  digitalocean-cloud-controller-manager  machines that are off, if they are more than it puts out of service by itself
  calico-route-reflector-operator        a topology whose Nodes or labels disappeared all at once, or whose deletion would remove routes

The controllers have reported it: in the ConfigMap calico-node-sync-state in the namespaces of --mooring-namespace, on the Lease
digitalocean-cloud-controller-manager-out-of-service in kube-system, and in the status of each RouteReflectorTopology. Neither credentials of etcd or DigitalOcean nor
the log of a controller are needed.

Required rights: get on that ConfigMap and that Lease, and list on routereflectortopologies.bgp.mooring.dev; to confirm, get and patch on the ConfigMap, the Lease, or
the topology.

Exit codes: 0 nothing waits; 2 something waits for a confirmation; 1 it could not be read.`

const confirmExample = `  kubectl mooring confirm
  kubectl mooring confirm nodes 3f2a9c01d4be
  kubectl mooring confirm machines 91c04be7a2d3
  kubectl mooring confirm topology main 5d0c77aa`

// mostAttempts is how often a confirmation is written again when the object has changed meanwhile; each time it is judged again.
const mostAttempts = 5

// freshState is how long ago a calico-node-sync that runs has saved what waits at most: twice the default period of its resync, and a little.
const freshState = 12 * time.Minute

// confirmations is what waits. Its JSON form is a contract with programs.
type confirmations struct {
	Nodes      []nodesAwaiting    `json:"nodes"`
	Machines   []machinesAwaiting `json:"machines,omitempty"`
	Topologies []topologyAwaiting `json:"topologies"`
	// Unread says what could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Table implements Tabler; the text is used instead.
func (confirmations) Table() Table { return Table{} }

// pending reports whether something waits that nobody has confirmed.
func (c confirmations) pending() bool {
	return slices.ContainsFunc(c.Nodes, func(n nodesAwaiting) bool { return n.ConfirmedUntil.IsZero() }) ||
		slices.ContainsFunc(c.Machines, func(m machinesAwaiting) bool { return m.ConfirmedUntil.IsZero() }) ||
		slices.ContainsFunc(c.Topologies, func(t topologyAwaiting) bool { return !t.Confirmed })
}

func newConfirm(env *Env) *cobra.Command {
	output := Output{known: []string{formatText, string(FormatJSON), string(FormatYAML)}}
	cmd := &cobra.Command{
		Use: "confirm", Short: "Show what waits for a confirmation, and confirm it", Long: confirmLong, Example: confirmExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.cluster()
			if err != nil {
				return err
			}
			return listConfirmations(cmd.Context(), c, &output, clock.RealClock{}, out(cmd))
		},
	}
	output.AddTo(cmd)
	cmd.AddCommand(newConfirmNodes(env), newConfirmMachines(env), newConfirmTopology(env))
	return cmd
}

// confirmations reads what waits: what the command, status and the page show. Nothing is called settled that was not read.
func (c *cluster) confirmations(ctx context.Context, now clock.PassiveClock) confirmations {
	var is confirmations
	states, unread := c.nodeStates(ctx)
	is.Unread = unread
	for _, s := range states {
		if s.waits.Hash != "" {
			is.Nodes = append(is.Nodes, s.awaiting(now.Now()))
		}
	}
	if off, err := c.machinesOff(ctx); err != nil {
		is.Unread = append(is.Unread, sideOf(err).Problem)
	} else if off.record.Awaiting.Hash != "" {
		is.Machines = append(is.Machines, off.awaiting(now.Now()))
	}
	topologies, _, err := c.topologies(ctx)
	if err != nil {
		is.Unread = append(is.Unread, sideOf(err).Problem)
	}
	for i := range topologies {
		if t, waits := topologyOf(&topologies[i]); waits {
			is.Topologies = append(is.Topologies, t)
		}
	}
	return is
}

// listConfirmations prints what waits.
func listConfirmations(ctx context.Context, c *cluster, output *Output, now clock.PassiveClock, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	is := c.confirmations(ctx, now)
	var err error
	if output.format == formatText {
		columns, _ := terminal(to)
		_, err = io.WriteString(to, is.text(now.Now(), columns))
	} else {
		err = output.Print(to, is)
	}
	switch {
	case err != nil:
		return fmt.Errorf("printing the result: %w", err)
	case is.pending():
		return command.Exit(exitAttention, nil)
	case len(is.Unread) > 0:
		return errors.New(strings.Join(is.Unread, "; ") + ": whether something waits there is unknown (--mooring-namespace says in which namespaces to look)")
	}
	return nil
}

// text is what waits for people, in lines of a width.
func (c confirmations) text(now time.Time, columns int) string {
	if len(c.Nodes)+len(c.Machines)+len(c.Topologies) == 0 && len(c.Unread) == 0 {
		return "nothing waits for a confirmation\n"
	}
	var paragraphs []string
	for _, n := range c.Nodes {
		paragraphs = append(paragraphs, n.text(now, columns))
	}
	for _, m := range c.Machines {
		paragraphs = append(paragraphs, m.text(now, columns))
	}
	for _, t := range c.Topologies {
		paragraphs = append(paragraphs, t.text(columns))
	}
	for _, problem := range c.Unread {
		paragraphs = append(paragraphs, prose.Wrap("note: ", "  ", "not read: "+problem, columns))
	}
	return command.Printable(strings.Join(paragraphs, "\n")) // names in Calico's datastore are anybody's
}

// field is a line of a paragraph, with its name in front.
func field(name, text string, columns int) string {
	return prose.Wrap(fmt.Sprintf("  %-12s", name+":"), strings.Repeat(" ", 14), text, columns)
}

// firstNames are machines by name, and how many more there are.
func firstNames(a nodesync.Awaiting) string {
	names := a.Machines
	if len(a.Items) > 0 {
		names = a.Items
	}
	text := strings.Join(names, ", ")
	if more := a.Count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// confirming writes a confirmation, and judges again when the object has changed since it was read: then something else may wait.
func confirming(what string, attempt func() error) error {
	for range mostAttempts {
		if err := attempt(); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s changes all the time, and nothing was confirmed: try again", what)
}

// exactly takes as many arguments as it has names for.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%s needs %s, as 'kubectl mooring confirm' shows; see '%s --help'",
			cmd.CommandPath(), strings.Join(names, " "), cmd.CommandPath())
	}
}
