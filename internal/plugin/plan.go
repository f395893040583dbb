// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// newPlan is the group of commands that say, without touching anything, what a component would do.
func newPlan(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a component would do, without doing it",
	}
	for _, build := range []Builder{newPlanNodes, newPlanRouteReflectors, newPlanLoadBalancer, newPlanFirewall} {
		cmd.AddCommand(build(env))
	}
	return cmd
}

// printPlan writes a plan: its text, folded to the terminal's width, or what programs read.
func (o *Output) printPlan(w io.Writer, text string, result Tabler) error {
	if o.format != FormatTable {
		return o.Print(w, result)
	}
	columns, _ := terminal(w)
	if _, err := io.WriteString(w, fold(text, columns)); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}
