// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// watchEvery is how often -w reads again: a little less often than kubelets report, and the page does the same.
const watchEvery = 10 * time.Second

// Watched lets a command run show once, or with the flag -w/--watch until the context ends; then it prints only what
// differs from the last reading, each time in full. An error ends it at the first reading only: later ones are printed, and
// it tries again. While it watches, what needs attention is not an exit code.
func Watched(cmd *cobra.Command, show func(ctx context.Context, args []string, out, notes io.Writer) error) {
	watch := false
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, fmt.Sprintf("Read again every %s and print what has changed, until Ctrl-C.", watchEvery))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return show(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}
		return repeat(cmd, func(out io.Writer) error { return show(cmd.Context(), args, out, cmd.ErrOrStderr()) })
	}
}

// repeat shows again and again what has changed.
func repeat(cmd *cobra.Command, show func(io.Writer) error) error {
	out := cmd.OutOrStdout()
	columns, _ := Terminal(out)
	var last []byte
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for first := true; ; first = false {
		var now bytes.Buffer
		err := show(&Sized{Writer: &now, Columns: columns})
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err == nil || command.Code(err) == command.ExitAttention:
		case first:
			return err
		default:
			fmt.Fprintln(&now, "error: "+prose.Printable(command.OneLine(err.Error())))
		}
		if !bytes.Equal(last, now.Bytes()) {
			if !first {
				now = *bytes.NewBuffer(append([]byte("\n"), now.Bytes()...))
			}
			if _, err := out.Write(now.Bytes()); err != nil {
				return fmt.Errorf("printing the result: %w", err)
			}
			last = bytes.TrimPrefix(now.Bytes(), []byte("\n"))
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}
