// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/spf13/cobra"

// newMigrate is the group of commands that carry over what a predecessor's users have.
func newMigrate(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Carry over the objects of a project that Mooring succeeds",
	}
	cmd.AddCommand(newMigrateEtcdStorage(env))
	return cmd
}
