// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

// Exit codes of the plan command, beside 0 for nothing to do and 1 for an error. They MUST NOT change: scripts depend on them.
const (
	exitChanges = 2
	exitBlocked = 3
)

// newPlanCommand returns the command that shows what the controller would do now, and writes nothing.
func newPlanCommand(o *options) *cobra.Command {
	output := "text"
	plan := &cobra.Command{
		Use:   "plan",
		Short: "Show what the controller would do now, and write nothing",
		Long: "plan reads both sides once and prints what would be removed, what is left alone, and why. Grace periods that a running controller " +
			"has begun are counted if --leader-election-namespace names its namespace; --grace-period=0s shows what would go after them.\n\n" +
			"Exit codes: 0 nothing to do, 1 an error, 2 changes, 3 something is held back.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q is unknown: it must be text or json", output)
			}
			return runPlan(c.Context(), o, output, c.OutOrStdout())
		},
	}
	o.addPlanFlags(plan.Flags())
	plan.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return plan
}

func runPlan(ctx context.Context, o *options, output string, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	config, err := calico.Resolve(o.datastore, os.LookupEnv)
	if err != nil {
		return err
	}
	logrus.SetOutput(io.Discard) // libcalico-go's; what matters is in the plan
	cluster, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return err
	}
	store, err := connect(config, cluster)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	plan, err := preview(ctx, o, store, cluster)
	if err != nil {
		return err
	}
	if err := printPlan(out, output, plan); err != nil {
		return err
	}
	return command.Exit(planCode(plan), nil)
}

func preview(ctx context.Context, o *options, store datastore, cluster *rest.Config) (nodesync.Plan, error) {
	live, err := client.New(cluster, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nodesync.Plan{}, fmt.Errorf("making a client for Kubernetes: %w", err)
	}
	state, err := newState(cluster, o, logr.Discard())
	if err != nil {
		return nodesync.Plan{}, err
	}
	r := &controller.Reconciler{
		State: state, Datastore: store, Cluster: once{controller.NewKubernetesCluster(live, clock.RealClock{})}, Config: o.config, DryRun: true,
		Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: controller.NewMetrics(prometheus.NewRegistry()),
	}
	return r.Preview(ctx)
}

// once is a cluster that is read once: there is no watch that would have to be filled, the list is a quorum list all the same.
type once struct{ *controller.KubernetesCluster }

// Synced implements controller.Cluster.
func (once) Synced() bool { return true }

func printPlan(out io.Writer, output string, plan nodesync.Plan) error {
	text := plan.String()
	if output == "json" {
		data, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the plan: %w", err)
		}
		text = string(data) + "\n"
	}
	if _, err := io.WriteString(out, text); err != nil {
		return errors.Join(errors.New("the plan could not be printed"), err)
	}
	return nil
}

// planCode is the exit code that a plan stands for. What is not Kubernetes' or is to be kept does not count as held back: it is as it should be.
func planCode(plan nodesync.Plan) int {
	settled := []nodesync.Gate{nodesync.GateNoIdentity, nodesync.GateOtherOrchestrator, nodesync.GateKeep, nodesync.GateUserConfiguration}
	held := slices.ContainsFunc(plan.Refusals, func(r nodesync.Refusal) bool { return !slices.Contains(settled, r.Gate) })
	switch {
	case len(plan.Steps) > 0:
		return exitChanges
	case held:
		return exitBlocked
	default:
		return command.ExitOK
	}
}
