// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package command is the part of the lab's command line that is about its BGP network: `lab probe` and `lab scenario`.
package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// Folder is the folder of the BGP network of the lab in dir.
func Folder(dir string) string { return blueprint.Layout{Dir: dir}.BGPNetwork() }

// Commands returns the commands. They take the lab's folder from the root command's --dir, or from the environment variable.
func Commands(dirVariable, defaultDir string) []*cobra.Command {
	c := commands{dirVariable, defaultDir}
	return []*cobra.Command{c.probe(), c.scenario()}
}

type commands struct{ dirVariable, defaultDir string }

func (c commands) layout(command *cobra.Command) (blueprint.Layout, error) {
	dir := os.Getenv(c.dirVariable)
	if flag := command.Flag("dir"); flag != nil && flag.Value.String() != "" {
		dir = flag.Value.String()
	}
	if dir == "" {
		dir = c.defaultDir
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return blueprint.Layout{}, fmt.Errorf("finding the folder %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(Folder(absolute), network.SocketName)); err != nil {
		return blueprint.Layout{}, fmt.Errorf("no BGP network runs in %s; start one with `lab up --network bgp --dir %s`", absolute, absolute)
	}
	return blueprint.Layout{Dir: absolute}, nil
}

func (c commands) probe() *cobra.Command {
	var length, interval time.Duration
	var changed []string
	var output string
	command := &cobra.Command{
		Use:   "probe",
		Short: "Send packets between all pairs of pods and say what is lost",
		Long: `Send UDP packets between the pods of all pairs of nodes and say what is lost: in total, by pair, and as collateral, which is what pairs lose
of which no node was named with --changed.

An outage is two or more packets of one pair lost in a row.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := c.layout(command)
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			client := network.Connect(Folder(layout.Dir))
			id, err := client.StartProbe(ctx, interval)
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done(): // the report is of what was sent until then
			case <-time.After(length):
			}
			report, err := client.StopProbe(context.WithoutCancel(ctx), id, changed)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(command, report)
			}
			return report.WriteText(command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.DurationVar(&length, "for", 10*time.Second, "how long to probe; an interrupt ends it earlier")
	flags.DurationVar(&interval, "interval", probe.DefaultInterval, "time between two packets of a pair")
	flags.StringSliceVar(&changed, "changed", nil, "nodes whose role as a reflector changes meanwhile")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return command
}

// operatorName is the operator's program, and its name as a process of the lab.
const operatorName = "calico-route-reflector-operator"

func (c commands) scenario() *cobra.Command {
	var o scenario.Options
	var output string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "scenario NAME",
		Short: "Have the operator change the route reflectors under a probe and say what that costs",
		Long: `Write a RouteReflectorTopology, have ` + operatorName + ` do what it asks for while packets are sent between all pairs of pods, and say
what was lost. The scenarios, in an order in which each finds what it needs: ` + strings.Join(scenario.Names(), ", ") + `.

The operator is started for the length of the scenario, unless it runs in the lab already. With --burst there is none, and all steps of the plan are
applied at once, which shows what waiting is good for.`,
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(scenario.Names(), args[0]) {
				return fmt.Errorf("give one of the scenarios %s", strings.Join(scenario.Names(), ", "))
			}
			if err := errors.Join(checkOutput(output), checkKill(o)); err != nil {
				return err
			}
			layout, err := c.layout(command)
			if err != nil {
				return err
			}
			if err := checkDatastore(layout); err != nil {
				return err
			}
			if o, err = complete(o, layout); err != nil {
				return err
			}
			logrus.SetLevel(logrus.WarnLevel) // libcalico-go logs every call otherwise
			ctx, cancel := untilSignal(command)
			defer cancel()
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
			o.Progress = func(at time.Duration, line string) {
				fmt.Fprintf(command.ErrOrStderr(), "%6.1fs  %s\n", at.Seconds(), line)
			}
			result, err := scenario.Run(ctx, args[0], o)
			return errors.Join(err, printResult(command, result, output))
		},
	}
	flags := command.Flags()
	flags.BoolVar(&o.Burst, "burst", false, "apply all steps at once, without the operator, as a control")
	flags.StringVar(&o.Operator, "operator", "", "program of the operator (default "+operatorName+" alongside the lab's own)")
	flags.StringVar(&o.CRDs, "crds", "", "folder of the CRDs (default config/crd/bases of the repository that the lab's program is in)")
	flags.IntVar(&o.KillAt, "kill-at", 0, "kill the operator once it has done that many steps, and start it again (0: do not)")
	flags.DurationVar(&o.KillDelay, "kill-delay", 0, "with --kill-at: time from the step to the kill")
	flags.DurationVar(&o.Interval, "interval", probe.DefaultInterval, "time between two packets of a pair")
	flags.DurationVar(&timeout, "timeout", 10*time.Minute, "time after which the scenario is given up")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return command
}

func checkKill(o scenario.Options) error {
	if o.KillAt < 0 || o.KillDelay < 0 {
		return errors.New("--kill-at and --kill-delay: must not be negative")
	}
	if o.Burst && o.KillAt > 0 {
		return errors.New("--kill-at: with --burst there is no operator to kill")
	}
	return nil
}

// checkDatastore refuses a lab whose Calico keeps its data in etcd: scenarios read and write them in the Kubernetes API.
func checkDatastore(layout blueprint.Layout) error {
	var lab folder.Lab
	if err := folder.ReadJSON(layout.LabFile(), &lab); err == nil && lab.CalicoDatastore == blueprint.DatastoreEtcd {
		return errors.New("scenarios are for Calico's kubernetes datastore, and this lab has etcdv3; make a lab with `lab up --network bgp` alone")
	}
	return nil // the scenario will say what is wrong with a lab that cannot be read
}

// complete fills in what the user has not said: where everything is. An operator that the lab runs is not started a second time.
func complete(o scenario.Options, layout blueprint.Layout) (scenario.Options, error) {
	o.Kubeconfig, o.Network = layout.Kubeconfig(), Folder(layout.Dir)
	executable, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	bin := filepath.Dir(executable)
	if o.CRDs == "" {
		o.CRDs = filepath.Join(filepath.Dir(bin), "config", "crd", "bases")
	}
	running := runsOperator(layout)
	switch {
	case running && (o.Operator != "" || o.KillAt > 0):
		return o, fmt.Errorf("--operator and --kill-at: %s runs in the lab already; start the lab without it", operatorName)
	case !running && o.Operator == "":
		o.Operator = filepath.Join(bin, operatorName)
	}
	return o, nil
}

// runsOperator reports whether the operator is one of the lab's own processes.
func runsOperator(layout blueprint.Layout) bool {
	var state folder.State
	if err := folder.ReadJSON(layout.StateFile(), &state); err != nil {
		return false // the scenario will say what is wrong with the lab
	}
	return slices.ContainsFunc(state.Processes, func(p folder.Process) bool { return p.Name == operatorName })
}

func printResult(command *cobra.Command, result scenario.Result, output string) error {
	if result.Report.Pairs == 0 {
		return nil // it did not get as far as to probe
	}
	if output == "json" {
		return printJSON(command, result)
	}
	out := command.OutOrStdout()
	fmt.Fprintf(out, "%s: %d steps in %v; reflectors: %s\n", result.Scenario, len(result.Changes), result.Took, cmp.Or(strings.Join(result.Reflectors, ", "), "none"))
	if result.Scenario == scenario.Steady {
		fmt.Fprintf(out, "writes while there was no reason for any: %s\n", cmp.Or(strings.Join(result.Writes, ", "), "none"))
	}
	return result.Report.WriteText(out)
}

func printJSON(command *cobra.Command, value any) error {
	encoder := json.NewEncoder(command.OutOrStdout())
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output %q is unknown; use text or json", output)
	}
	return nil
}

func untilSignal(command *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := command.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
