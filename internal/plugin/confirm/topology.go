// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/plugin/annotate"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/waiting"
)

const topologyLong = `Confirm what a RouteReflectorTopology waits for. WORD is the one that 'kubectl mooring confirm' shows; it is valid once.

  NodesVanished, SelectorMatchesNothing, SelectorMatchesTooFew  the Nodes, or the labels of the Nodes, are meant to be gone: the operator goes on with those that
                                                                are left
  MeshTooLarge                                                  the topology is deleted although the node-to-node mesh that takes over is large
  MeshNotManaged                                                the topology is deleted although no mesh takes over: nodes lose the routes that nothing
                                                                else carries

Only one thing is written: the annotation ` + v1alpha1.ConfirmAnnotation + `, or for a deletion ` + v1alpha1.ForceExitAnnotation + `, on the topology, and only
if the object has not changed since it was read.`

const topologyExample = `  kubectl mooring confirm topology main 5d0c77aa`

func newTopology(env *observe.Env) *cobra.Command {
	return &cobra.Command{
		Use: "topology NAME WORD", Aliases: []string{"rrt"}, Short: "Confirm what a RouteReflectorTopology waits for",
		Long: topologyLong, Example: topologyExample, Args: exactly("NAME", "WORD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return say(cmd, env, func(ctx context.Context, c *observe.Cluster) (string, error) {
				return confirmTopology(ctx, c, args[0], args[1])
			})
		},
		// Names of those that wait. The word is not completed: it shows that anyone who confirms has looked.
		ValidArgsFunction: observe.Only(env, waitingTopologies),
	}
}

// waitingTopologies completes names of those that wait.
func waitingTopologies(ctx context.Context, env *observe.Env) (names []string) {
	for _, t := range observe.ListTopologies(ctx, env) {
		if _, waits := routereflector.Awaits(&t); waits {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// confirmTopology writes the confirmation of what a topology waits for under a word, and returns what that does.
func confirmTopology(ctx context.Context, c *observe.Cluster, name, given string) (text string, err error) {
	resource := c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("routereflectortopologies"))
	err = annotate.Confirming("RouteReflectorTopology "+name, func() error {
		object, err := resource.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("there is no RouteReflectorTopology %q", name)
		}
		if err != nil {
			return fmt.Errorf("reading RouteReflectorTopology %s: %w", name, err)
		}
		var t v1alpha1.RouteReflectorTopology
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &t); err != nil {
			return fmt.Errorf("decoding RouteReflectorTopology %s: %w", name, err)
		}
		a, waits := routereflector.Awaits(&t)
		switch {
		case !waits:
			return fmt.Errorf("RouteReflectorTopology %s waits for no confirmation", name)
		case a.Word != given:
			return fmt.Errorf("%q is not what RouteReflectorTopology %s waits for now, which is %s (%s): 'kubectl mooring confirm' shows the reason", given, name, a.Word, a.Reason)
		}
		if err := annotate.Set(ctx, resource.Patch, &t, "RouteReflectorTopology "+name, a.Annotation, a.Word); err != nil {
			return err
		}
		text = fmt.Sprintf("Confirmed: %s.", waiting.Topology(name, a).Then)
		return nil
	})
	return text, err
}
