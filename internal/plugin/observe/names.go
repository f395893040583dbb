// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Completing lists objects of a cluster, or of the namespace of the person, whose names a shell completes. Whatever goes wrong
// completes to nothing.
func Completing[T any](
	ctx context.Context, env *Env, list func(ctx context.Context, c *Cluster, namespace string) (T, error),
) (all T) {
	ctx, cancel := context.WithTimeout(ctx, CompletionTime)
	defer cancel()
	if c, namespace, err := env.InNamespace(); err == nil {
		all, _ = list(ctx, c, namespace)
	}
	return all
}

// NamesOf are the names of objects.
func NamesOf[T metav1.Object](objects []T) (names []string) {
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names
}

// NodeNames completes names of Nodes.
func NodeNames(ctx context.Context, env *Env) []string {
	return NamesOf(Completing(ctx, env, func(ctx context.Context, c *Cluster, _ string) ([]*corev1.Node, error) {
		return c.Nodes(ctx)
	}))
}

// TopologyNames completes names of RouteReflectorTopologies.
func TopologyNames(ctx context.Context, env *Env) (names []string) {
	for _, t := range ListTopologies(ctx, env) {
		names = append(names, t.Name)
	}
	return names
}

// ListTopologies lists them for a shell that completes names.
func ListTopologies(ctx context.Context, env *Env) []v1alpha1.RouteReflectorTopology {
	return Completing(ctx, env, func(ctx context.Context, c *Cluster, _ string) (list []v1alpha1.RouteReflectorTopology, err error) {
		list, _, err = c.Topologies(ctx)
		return list, err
	})
}

// Unnamed completes by names what is not among the arguments yet.
func Unnamed(env *Env, names func(context.Context, *Env) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(names(cmd.Context(), env), func(s string) bool { return slices.Contains(args, s) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// Only completes the first argument, and none after it.
func Only(env *Env, names func(context.Context, *Env) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (all []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			all = names(cmd.Context(), env)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}
