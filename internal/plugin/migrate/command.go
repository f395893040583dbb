// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate is the group of commands that convert objects of upstream projects.
package migrate

import (
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// New is the group of commands that carry over what an upstream project's users have.
func New(env *observe.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert the objects of an upstream project",
	}
	cmd.AddCommand(newEtcdStorage(env))
	return cmd
}
