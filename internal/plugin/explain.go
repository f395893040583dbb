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

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

const explainLong = `Explain the state of a Node, a Service of type LoadBalancer, a PersistentVolumeClaim or an EtcdStorage: the reasons of the components'
plans, and recent Events. Nothing is written.

  node         what the cloud, Kubernetes, Calico and the topologies report of the machine, whether it is out of service and why, what
               calico-node-sync would remove of it or which gate holds that back, and what each topology plans for it
  service      the load balancer that it requests from DigitalOcean, the effect of each annotation, what is refused, and which Nodes are left out
  pvc          its volume at DigitalOcean, where that is attached, and what keeps its Pod waiting
  etcdstorage  its conditions as sentences, usage and quota, the expiry of certificates, and what is pending

Plans are computed by the command with the components' rules and default flags. A machine can be explained without a Node.
The environment is that of "kubectl mooring agreement": DO_ACCESS_TOKEN for DigitalOcean, ETCD_ENDPOINTS for Calico's etcdv3.

Exit codes: 0 nothing needs attention; 2 a line needs attention (those with an exclamation mark); 1 it could not be determined.`

const explainExample = `  kubectl mooring explain node worker-1
  kubectl mooring explain service/web -n shop
  kubectl mooring explain pvc data-db-0 -n shop
  kubectl mooring explain ets tenant-a -o json`

// explainedKind is a kind that can be explained.
type explainedKind struct {
	// names are how kubectl calls it, the first one in texts.
	names []string
	// explain reads and explains an object.
	explain func(e *explainCommand, ctx context.Context, name string) (explain.Explanation, error)
	// complete lists names; whatever goes wrong completes to nothing.
	complete func(ctx context.Context, env *Env) []string
}

func explainedKinds() []explainedKind {
	return []explainedKind{
		{[]string{"node", "nodes", "no"}, (*explainCommand).node, nodeNames},
		{[]string{"service", "services", "svc"}, (*explainCommand).service, serviceNames},
		{[]string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"}, (*explainCommand).claim, claimNames},
		{[]string{"etcdstorage", "etcdstorages", "ets", "etcdstorage." + v1alpha1.GroupVersion.Group, "etcdstorages." + v1alpha1.GroupVersion.Group}, (*explainCommand).etcdStorage, storageNames},
	}
}

type explainCommand struct {
	env    *Env
	clock  clock.PassiveClock
	output Output
	// defaultType and defaultsFile are the cloud component's settings, for Services.
	defaultType, defaultsFile string
}

func newExplain(env *Env) *cobra.Command {
	e := &explainCommand{env: env, clock: clock.RealClock{}}
	e.output.known = []string{formatText, string(FormatJSON), string(FormatYAML)}
	cmd := &cobra.Command{
		Use:     "explain KIND NAME",
		Short:   "Explain the state of a Node, a Service, a PersistentVolumeClaim or an EtcdStorage",
		Long:    explainLong,
		Example: explainExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.run(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return completeExplained(cmd.Context(), env, args, begun), cobra.ShellCompDirectiveNoFileComp
		},
	}
	e.output.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&e.defaultType, "default-type", annotation.DefaultType,
		"Of a Service: type of load balancers without the annotation, as in DEFAULT_LB_TYPE: REGIONAL or REGIONAL_NETWORK.")
	flags.StringVar(&e.defaultsFile, "defaults", "", "Of a Service: file with defaults for annotations, as in "+defaults.EnvText+".")
	// The only error is a flag that does not exist or has its completion already.
	_ = cmd.RegisterFlagCompletionFunc("default-type",
		cobra.FixedCompletions([]string{annotation.TypeRegional, annotation.TypeRegionalNetwork}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (e *explainCommand) run(cmd *cobra.Command, args []string) error {
	kind, name, err := explained(args)
	if err != nil {
		return err
	}
	if kind.names[0] != "service" {
		for _, flag := range []string{"default-type", "defaults"} {
			if cmd.Flags().Changed(flag) {
				return fmt.Errorf("--%s is about load balancers: use it with a service only", flag)
			}
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), clusterTime)
	defer cancel()
	explanation, err := kind.explain(e, ctx, name)
	if err != nil {
		return err
	}
	if err := e.print(explanation, cmd.OutOrStdout()); err != nil {
		return err
	}
	if explanation.Attention {
		return command.Exit(exitAttention, nil)
	}
	return nil
}

// explained reads KIND NAME or KIND/NAME.
func explained(args []string) (kind explainedKind, name string, err error) {
	const form = "explain KIND NAME or explain KIND/NAME, such as explain node worker-1"
	var words []string
	if len(args) > 0 {
		words = append(strings.SplitN(args[0], "/", 2), args[1:]...)
	}
	if len(words) == 0 {
		return kind, "", fmt.Errorf("no object is named: use %s; for KIND %s", form, kindsInWords())
	}
	kind, known := kindOf(words[0])
	switch {
	case !known:
		return kind, "", fmt.Errorf("unsupported kind %q: %s", words[0], kindsInWords())
	case len(words) == 1 || words[1] == "":
		return kind, "", fmt.Errorf("explain %s needs a name: use %s", kind.names[0], form)
	case len(words) > 2:
		return kind, "", fmt.Errorf("%q is an extra argument: use %s", words[2], form)
	case strings.Contains(words[1], "/"):
		return kind, "", fmt.Errorf("%q is not a name: the namespace of a Service is given with -n", words[1])
	}
	return kind, words[1], nil
}

func kindOf(word string) (explainedKind, bool) {
	kinds := explainedKinds()
	at := slices.IndexFunc(kinds, func(k explainedKind) bool { return slices.Contains(k.names, strings.ToLower(word)) })
	if at < 0 {
		return explainedKind{}, false
	}
	return kinds[at], true
}

func kindsInWords() string { return "use node (no), service (svc), pvc or etcdstorage (ets)" }

// completeExplained completes kinds, then names.
func completeExplained(ctx context.Context, env *Env, args []string, begun string) []string {
	word, _, slashed := strings.Cut(begun, "/")
	prefix := ""
	switch {
	case len(args) == 0 && !slashed:
		var kinds []string
		for _, k := range explainedKinds() {
			kinds = append(kinds, k.names[0])
		}
		return kinds
	case len(args) == 0:
		prefix = word + "/"
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		word = args[0]
	default:
		return nil
	}
	kind, known := kindOf(word)
	if !known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	names := kind.complete(ctx, env)
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// explanationResult is what JSON and YAML have.
type explanationResult struct{ explain.Explanation }

// Table implements Tabler; the text stands for it.
func (explanationResult) Table() Table { return Table{} }

func (e *explainCommand) print(explanation explain.Explanation, out io.Writer) error {
	if e.output.format != formatText {
		return e.output.Print(out, explanationResult{explanation})
	}
	columns, colors := terminal(out)
	brush := explain.Plain
	if colors {
		brush = paint
	}
	if _, err := io.WriteString(out, explain.Text(explanation, columns, brush)); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// sideOf is what became of a side that could not be read, in one line; a side that was read if nothing went wrong.
func sideOf(err error) explain.Side {
	if err == nil {
		return explain.Side{}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return explain.Side{Problem: "no response in time"}
	}
	return explain.Side{Problem: strings.Join(strings.Fields(err.Error()), " ")}
}
