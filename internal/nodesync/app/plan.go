// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// newPlanCommand returns the command that shows what the controller would do now, and writes nothing.
func newPlanCommand(o *options) *cobra.Command {
	output := screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	plan := &cobra.Command{
		Use:   "plan [NODE...]",
		Short: "Show what the controller would do now, and write nothing",
		Long: "plan reads both sides once and prints what would be removed, what is left alone, and why. Grace periods that a running controller " +
			"has begun are counted if --leader-election-namespace names its namespace; --grace-period=0s shows what would be removed after them.\n\n" +
			namedLong + "\n\n" +
			"Exit codes: 0 nothing would change; 2 something would, or is held back; 1 it could not be determined.",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			o.named = names
			return runPlan(c.Context(), o, &output, c.OutOrStdout())
		},
	}
	o.addPlanFlags(plan.Flags())
	output.AddTo(plan)
	o.acceptControllerFlags(plan.Flags())
	return plan
}

func runPlan(ctx context.Context, o *options, output *screen.Format, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	both, err := openBoth(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = both.store.Close() }()
	plan, err := both.preview(ctx, o)
	if err != nil {
		return err
	}
	if err := unknown(plan, o.config.Named); err != nil {
		return err
	}
	if err := output.Print(out, command.Printable(plan.String()), plan); err != nil {
		return err
	}
	return command.Attention(len(plan.Steps) > 0 || nodesync.Held(plan.Refusals))
}

// unknown refuses names under which there is nothing.
func unknown(plan nodesync.Plan, named []string) error {
	if names := plan.Unknown(named); len(names) > 0 {
		return fmt.Errorf("nothing is held under the name %s in Calico's datastore: a NODE must be the name of a Calico Node, as `calicoctl get nodes` lists it",
			strings.Join(names, ", "))
	}
	return nil
}

// bothSides is a datastore that answers, and its cluster.
type bothSides struct {
	store   datastore
	cluster controller.Cluster
	config  *rest.Config
}

// openBoth connects to what the options and the environment name, for a command that runs once. Close the store.
func openBoth(ctx context.Context, o *options) (bothSides, error) {
	config, err := calico.Resolve(o.datastore, os.LookupEnv)
	if err != nil {
		return bothSides{}, err
	}
	logrus.SetOutput(io.Discard) // libcalico-go's; what matters is in what the command prints
	cluster, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return bothSides{}, err
	}
	live, err := controller.NewLive(cluster)
	if err != nil {
		return bothSides{}, err
	}
	store, err := connect(config, cluster)
	if err != nil {
		return bothSides{}, err
	}
	if err := store.Ping(ctx); err != nil {
		return bothSides{}, errors.Join(err, store.Close())
	}
	return bothSides{store: store, cluster: controller.ReadOnce(live, clock.RealClock{}), config: cluster}, nil
}

// preview plans once, with what a controller keeps if its namespace is known.
func (b bothSides) preview(ctx context.Context, o *options) (nodesync.Plan, error) {
	state, err := newState(b.config, o, logr.Discard())
	if err != nil {
		return nodesync.Plan{}, err
	}
	watched, err := controller.WatchKept(ctx, state, o.config, clock.RealClock{}.Now())
	if err != nil {
		return nodesync.Plan{}, fmt.Errorf("reading what the controller keeps in namespace %s: %w", o.manager.Namespace(), err)
	}
	return newOneShot(o, !watched, b.store, b.cluster, state, clock.RealClock{}).Preview(ctx)
}
