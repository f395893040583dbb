// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/spf13/cobra"

// newMigrate is the group of commands that carry over what an upstream project's users have.
func newMigrate(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert the objects of an upstream project",
	}
	cmd.AddCommand(newMigrateEtcdStorage(env))
	return cmd
}
