// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain is the command of that name: why a Node, a Service, a claim or an EtcdStorage is as it is.
package explain

import (
	"cmp"
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
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/evidence"
)

const long = `Explain the state of a Node, a Service of type LoadBalancer, a PersistentVolumeClaim or an EtcdStorage: the reasons of the components'
plans, and recent Events. Nothing is written.

  node         what the cloud, Kubernetes, Calico and the topologies report of the machine, whether it is out of service and why, what
               calico-node-sync would remove of it or which gate holds that back, and what each topology plans for it
  service      the load balancer that it requests from DigitalOcean, the effect of each annotation, what is refused, and which Nodes are left out
  pvc          its volume at DigitalOcean, where that is attached, and what keeps its Pod waiting
  etcdstorage  its conditions as sentences, usage and quota, the expiry of certificates, and what is pending

With --timeline, of a node: what became of a machine that failed, on all sides, with the time and the seconds since the first moment, as
far as objects, Leases and Events still show it; and what is not known, or no longer. The machine needs no Node.

Plans are computed by the command with the components' rules and default flags. A machine can be explained without a Node.
The environment is that of "kubectl mooring agreement": DO_ACCESS_TOKEN for DigitalOcean, ETCD_ENDPOINTS for Calico's etcdv3.

Exit codes: 0 nothing needs attention, or it is a timeline; 2 a line needs attention (those with an exclamation mark); 1 it could not be
determined.`

const example = `  kubectl mooring explain node worker-1
  kubectl mooring explain node worker-1 --timeline
  kubectl mooring explain service/web -n shop
  kubectl mooring explain pvc data-db-0 -n shop
  kubectl mooring explain ets tenant-a -o json`

// subject is a kind that can be explained.
type subject struct {
	// names are how kubectl calls it, the first one in texts.
	names []string
	// explain reads and explains an object.
	explain func(ctx context.Context, e *explainer, c *observe.Cluster, namespace, name string) (explain.Explanation, error)
	// complete lists names; whatever goes wrong completes to nothing.
	complete func(ctx context.Context, env *observe.Env) []string
}

func subjects() []subject {
	group := "." + v1alpha1.GroupVersion.Group
	type in = context.Context
	return []subject{
		of(func(ctx in, e *explainer, c *observe.Cluster, _, name string) (explain.NodeEvidence, error) {
			return evidence.Node(ctx, c, e.clock, name)
		}, explain.Node, observe.NodeNames, "node", "nodes", "no"),
		of(func(ctx in, e *explainer, c *observe.Cluster, namespace, name string) (explain.ServiceEvidence, error) {
			return evidence.Service(ctx, c, e.clock, namespace, name, e.settings)
		}, explain.Service, evidence.ServiceNames, "service", "services", "svc"),
		of(func(ctx in, e *explainer, c *observe.Cluster, namespace, name string) (explain.ClaimEvidence, error) {
			return evidence.Claim(ctx, c, e.clock, namespace, name)
		}, explain.Claim, evidence.ClaimNames, "pvc", "persistentvolumeclaim", "persistentvolumeclaims"),
		of(func(ctx in, e *explainer, c *observe.Cluster, _, name string) (explain.EtcdStorageEvidence, error) {
			return evidence.EtcdStorage(ctx, c, e.clock, name)
		}, explain.EtcdStorage, evidence.StorageNames,
			"etcdstorage", "etcdstorages", "ets", "etcdstorage"+group, "etcdstorages"+group),
	}
}

// of is a kind whose evidence is read and then judged, unless it could not be read.
func of[E any](
	read func(context.Context, *explainer, *observe.Cluster, string, string) (E, error), judge func(E) explain.Explanation,
	complete func(context.Context, *observe.Env) []string, names ...string,
) subject {
	return subject{names, func(
		ctx context.Context, e *explainer, c *observe.Cluster, namespace, name string,
	) (out explain.Explanation, err error) {
		is, err := read(ctx, e, c, namespace, name)
		if err == nil {
			out = judge(is)
		}
		return out, err
	}, complete}
}

type explainer struct {
	env    *observe.Env
	clock  clock.PassiveClock
	output screen.Format
	// settings are the cloud component's, for Services, and defaultsFile where its defaults for annotations are.
	settings     loadbalancer.Cluster
	defaultsFile string
	// timeline asks for the past of a Node.
	timeline bool
}

// New is kubectl mooring explain.
func New(env *observe.Env) *cobra.Command {
	e := &explainer{env: env, clock: clock.RealClock{}}
	e.output = screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	cmd := &cobra.Command{
		Use:     "explain KIND NAME",
		Short:   "Explain the state of a Node, a Service, a PersistentVolumeClaim or an EtcdStorage",
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if e.timeline {
				return e.showTimeline(cmd, args)
			}
			return e.run(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd.Context(), env, args, begun), cobra.ShellCompDirectiveNoFileComp
		},
	}
	e.output.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&e.settings.DefaultType, "default-type", annotation.DefaultType,
		"Of a Service: type of load balancers without the annotation, as in DEFAULT_LB_TYPE: REGIONAL or REGIONAL_NETWORK.")
	flags.StringVar(&e.defaultsFile, "defaults", "", "Of a Service: file with defaults for annotations, as in "+defaults.EnvText+".")
	flags.BoolVar(&e.timeline, "timeline", false, "Of a Node: what became of the machine on all sides, with the seconds since the first moment.")
	// The only error is a flag that does not exist or has its completion already.
	_ = cmd.RegisterFlagCompletionFunc("default-type",
		cobra.FixedCompletions([]string{annotation.TypeRegional, annotation.TypeRegionalNetwork}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (e *explainer) run(cmd *cobra.Command, args []string) error {
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
	if e.settings.Defaults, err = observe.ReadDefaults(e.defaultsFile, e.settings.DefaultType); err != nil {
		return err
	}
	c, namespace, err := e.env.InNamespace()
	if err != nil {
		return err
	}
	ctx, cancel := observe.Reading(cmd.Context())
	defer cancel()
	explanation, err := kind.explain(ctx, e, c, namespace, name)
	if err = cmp.Or(observe.Unresponsive(ctx), err); err != nil {
		return err
	}
	return Print(explanation, &e.output, cmd.OutOrStdout())
}

// explained reads KIND NAME or KIND/NAME.
func explained(args []string) (kind subject, name string, err error) {
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
	case strings.Contains(words[1], "/") && slices.Contains([]string{"node", "etcdstorage"}, kind.names[0]):
		return kind, "", fmt.Errorf("%q is not a name: use %s", words[1], form)
	case strings.Contains(words[1], "/"):
		return kind, "", fmt.Errorf("%q is not a name: the namespace of a Service is given with -n", words[1])
	}
	return kind, words[1], nil
}

func kindOf(word string) (subject, bool) {
	kinds := subjects()
	at := slices.IndexFunc(kinds, func(k subject) bool { return slices.Contains(k.names, strings.ToLower(word)) })
	if at < 0 {
		return subject{}, false
	}
	return kinds[at], true
}

func kindsInWords() string { return "use node (no), service (svc), pvc or etcdstorage (ets)" }

// complete completes kinds, then names.
func complete(ctx context.Context, env *observe.Env, args []string, begun string) []string {
	word, _, slashed := strings.Cut(begun, "/")
	prefix := ""
	switch {
	case len(args) == 0 && !slashed:
		var kinds []string
		for _, k := range subjects() {
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
	ctx, cancel := context.WithTimeout(ctx, observe.CompletionTime)
	defer cancel()
	names := kind.complete(ctx, env)
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// showTimeline shows what became of a machine.
func (e *explainer) showTimeline(cmd *cobra.Command, args []string) error {
	kind, name, err := explained(args)
	if err != nil {
		return err
	}
	if kind.names[0] != "node" {
		return errors.New("--timeline is about machines: use it with a node only")
	}
	is, err := observe.Read(cmd.Context(), e.env, func(ctx context.Context, c *observe.Cluster) (explain.TimelineEvidence, error) {
		return evidence.Timeline(ctx, c, e.clock, name), nil
	})
	if err != nil {
		return err
	}
	timeline := explain.TimelineOf(is)
	if is.Node == nil && is.NodeRead.Problem == "" && len(timeline.Moments) == 0 {
		return fmt.Errorf("there is no Node %q, and nothing shows any more that there was one", name)
	}
	return e.output.Show(cmd.OutOrStdout(), timeline, false, func(columns int, _ finding.Paint) string { return timeline.Text(columns) })
}

// Print prints it; whether it needs attention is in the exit code.
func Print(e explain.Explanation, output *screen.Format, out io.Writer) error {
	return output.Show(out, e, e.Attention, func(columns int, paint finding.Paint) string { return explain.Text(e, columns, paint) })
}
