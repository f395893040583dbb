// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

const confirmTopologyLong = `Confirm what a RouteReflectorTopology waits for. WORD is the one that 'kubectl mooring confirm' shows; it is valid once.

  NodesVanished, SelectorMatchesNothing, SelectorMatchesTooFew  the Nodes, or the labels of the Nodes, are meant to be gone: the operator goes on with those that
                                                                are left
  MeshTooLarge                                                  the topology is deleted although the node-to-node mesh that takes over is large
  MeshNotManaged                                                the topology is deleted although no mesh takes over: nodes lose the routes that nothing
                                                                else carries

Only one thing is written: the annotation ` + v1alpha1.ConfirmAnnotation + `, or for a deletion ` + v1alpha1.ForceExitAnnotation + `, on the topology, and only
if the object has not changed since it was read.`

const confirmTopologyExample = `  kubectl mooring confirm topology main 5d0c77aa`

func newConfirmTopology(env *Env) *cobra.Command {
	return &cobra.Command{
		Use: "topology NAME WORD", Aliases: []string{"rrt"}, Short: "Confirm what a RouteReflectorTopology waits for",
		Long: confirmTopologyLong, Example: confirmTopologyExample, Args: exactly("NAME", "WORD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.cluster()
			if err != nil {
				return err
			}
			text, err := confirmTopology(cmd.Context(), c, args[0], args[1])
			if err == nil {
				columns, _ := terminal(out(cmd))
				fmt.Fprint(out(cmd), prose.Wrap("", "", text, columns))
			}
			return err
		},
		// Names of those that wait. The word is not completed: it shows that anyone who confirms has looked.
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return waitingTopologies(cmd.Context(), env), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// waitingTopologies completes names; whatever goes wrong completes to nothing.
func waitingTopologies(ctx context.Context, env *Env) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := env.cluster()
	if err != nil {
		return nil
	}
	list, _, _ := c.topologies(ctx)
	var names []string
	for i := range list {
		if _, waits := topologyOf(&list[i]); waits {
			names = append(names, list[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// topologyAwaiting is what one topology waits for.
type topologyAwaiting struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Why    string `json:"why"`
	Word   string `json:"word"`
	// Confirmed reports that it is confirmed and the operator has yet to act on it.
	Confirmed bool   `json:"confirmed,omitempty"`
	Command   string `json:"command"`
}

func topologyOf(t *v1alpha1.RouteReflectorTopology) (topologyAwaiting, bool) {
	a, waits := routereflector.Awaits(t)
	return topologyAwaiting{
		Name: t.Name, Reason: string(a.Reason), Why: a.Why, Word: a.Word, Confirmed: a.Given,
		Command: fmt.Sprintf("kubectl mooring confirm topology %s %s", t.Name, a.Word),
	}, waits
}

// consequence is what the operator does once it is confirmed.
func (t topologyAwaiting) consequence() string {
	switch routereflector.Reason(t.Reason) {
	case routereflector.ReasonMeshNotManaged:
		return "its reflectors are removed although no mesh takes over: nodes lose the routes that nothing else carries"
	case routereflector.ReasonMeshTooLarge:
		return "the node-to-node mesh is turned on although it is large, and then the reflectors are removed"
	default:
		return "calico-route-reflector-operator goes on with the Nodes and labels that there are now"
	}
}

func (t topologyAwaiting) text(columns int) string {
	text := prose.Wrap("", "", fmt.Sprintf("RouteReflectorTopology %s waits: %s", t.Name, t.Reason), columns) + field("why", t.Why, columns)
	if t.Confirmed {
		return text + field("confirmed", "calico-route-reflector-operator has yet to act on it", columns)
	}
	return text + field("to confirm", t.Command, columns) + field("then", t.consequence(), columns)
}

// confirmTopology writes the confirmation of what a topology waits for under a word, and returns what that does.
func confirmTopology(ctx context.Context, c *cluster, name, given string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	resource := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource("routereflectortopologies"))
	err = confirming("RouteReflectorTopology "+name, func() error {
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
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": t.UID, "resourceVersion": t.ResourceVersion, "annotations": map[string]string{a.Annotation: a.Word},
		}})
		if err != nil {
			return err
		}
		_, err = resource.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			return fmt.Errorf("annotating RouteReflectorTopology %s: %w", name, err)
		}
		waiting, _ := topologyOf(&t)
		text = fmt.Sprintf("Confirmed: %s.", waiting.consequence())
		return nil
	})
	return text, err
}
