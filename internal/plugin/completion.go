// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// kubectlScript is what kubectl runs, under the name kubectl_complete-mooring, to complete the words
// after "kubectl mooring".
const kubectlScript = `#!/usr/bin/env sh
# Completion for "kubectl mooring": kubectl calls this file, which it looks up in PATH by its name,
# kubectl_complete-mooring, with the words to complete.
exec kubectl-mooring __complete "$@"
`

const completionLong = `Prints a completion script.

For "kubectl mooring" (kubectl 1.26 or newer, with kubectl's own completion loaded), put the script
into any directory of PATH, under this very name:

  kubectl mooring completion kubectl > ~/.local/bin/kubectl_complete-mooring
  chmod +x ~/.local/bin/kubectl_complete-mooring

For "kubectl-mooring" itself, load the script of your shell:

  source <(kubectl-mooring completion bash)        # bash, also in ~/.bashrc
  source <(kubectl-mooring completion zsh)         # zsh, also in ~/.zshrc
  kubectl-mooring completion fish | source         # fish`

func newCompletion(*observe.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion (kubectl|bash|zsh|fish)",
		Short: "Print a completion script",
		Long:  completionLong,
	}
	for _, shell := range []struct {
		name  string
		print func(*cobra.Command, io.Writer) error
	}{
		{"kubectl", func(_ *cobra.Command, w io.Writer) error { _, err := io.WriteString(w, kubectlScript); return err }},
		{"bash", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }},
		{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   shell.name,
			Short: "Print the completion script for " + shell.name,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := shell.print(cmd.Root(), cmd.OutOrStdout()); err != nil {
					return fmt.Errorf("printing the completion script: %w", err)
				}
				return nil
			},
		})
	}
	return cmd
}
