// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Names completes names by a list of those of a namespace; an object whose name is "" is passed over, and whatever goes wrong completes to nothing.
func Names[T any](ctx context.Context, env *Env, list func(context.Context, *Cluster, string) ([]T, error), name func(*T) string) []string {
	ctx, cancel := context.WithTimeout(ctx, CompletionTime)
	defer cancel()
	c, namespace, err := env.InNamespace()
	if err != nil {
		return nil
	}
	items, err := list(ctx, c, namespace)
	if err != nil {
		return nil
	}
	var names []string
	for i := range items {
		if n := name(&items[i]); n != "" {
			names = append(names, n)
		}
	}
	return names
}

// NodeNames completes names of Nodes.
func NodeNames(ctx context.Context, env *Env) []string {
	list := func(ctx context.Context, c *Cluster, _ string) ([]corev1.Node, error) { return c.Nodes(ctx) }
	return Names(ctx, env, list, func(n *corev1.Node) string { return n.Name })
}

// TopologyNames completes names of RouteReflectorTopologies.
func TopologyNames(ctx context.Context, env *Env) []string {
	return Names(ctx, env, ListTopologies, func(t *v1alpha1.RouteReflectorTopology) string { return t.Name })
}

// ListTopologies lists them for [Names].
func ListTopologies(ctx context.Context, c *Cluster, _ string) ([]v1alpha1.RouteReflectorTopology, error) {
	list, _, err := c.Topologies(ctx)
	return list, err
}

// Unnamed completes by names what is not among the arguments yet.
func Unnamed(env *Env, names func(context.Context, *Env) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(names(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) }), cobra.ShellCompDirectiveNoFileComp
	}
}
