// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Completing is the cluster and the namespace whose names a shell completes, nil if they are not known. done ends the
// reading.
func Completing(ctx context.Context, env *Env) (bounded context.Context, c *Cluster, namespace string, done func()) {
	bounded, done = context.WithTimeout(ctx, CompletionTime)
	c, namespace, err := env.InNamespace()
	if err != nil {
		c = nil
	}
	return bounded, c, namespace, done
}

// named is a pointer to an object.
type named[T any] interface {
	*T
	GetName() string
}

// NamesOf are the names of objects.
func NamesOf[T any, P named[T]](objects []T) (names []string) {
	for i := range objects {
		names = append(names, P(&objects[i]).GetName())
	}
	return names
}

// NodeNames completes names of Nodes; whatever goes wrong completes to nothing, here as in the others.
func NodeNames(ctx context.Context, env *Env) []string {
	ctx, c, _, done := Completing(ctx, env)
	defer done()
	if c == nil {
		return nil
	}
	nodes, _ := c.Nodes(ctx)
	return NamesOf(nodes)
}

// TopologyNames completes names of RouteReflectorTopologies.
func TopologyNames(ctx context.Context, env *Env) []string { return NamesOf(ListTopologies(ctx, env)) }

// ListTopologies lists them for a shell that completes names.
func ListTopologies(ctx context.Context, env *Env) []v1alpha1.RouteReflectorTopology {
	ctx, c, _, done := Completing(ctx, env)
	defer done()
	if c == nil {
		return nil
	}
	list, _, _ := c.Topologies(ctx)
	return list
}

// Unnamed completes by names what is not among the arguments yet.
func Unnamed(env *Env, names func(context.Context, *Env) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(names(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) }), cobra.ShellCompDirectiveNoFileComp
	}
}
