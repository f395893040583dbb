// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/spf13/cobra"

// newDoctor is the group of commands that look for what is dangerous in a cluster, whoever made it so. They write nothing.
func newDoctor(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for known hazards, without changing anything",
	}
	for _, build := range []Builder{newDoctorRouteReflectors} {
		cmd.AddCommand(build(env))
	}
	return cmd
}
