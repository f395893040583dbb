// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("COMMAND_TEST_MODE"); mode != "" {
		os.Exit(command.Main(signaled(mode)))
	}
	goleak.VerifyTestMain(m)
}

// signaled is a server that tells its parent where it is, so that the parent need not guess when to
// send a signal.
func signaled(mode string) *cobra.Command {
	return &cobra.Command{Use: "signaled", Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Fprintln(cmd.OutOrStdout(), "started")
		<-cmd.Context().Done()
		fmt.Fprintln(cmd.OutOrStdout(), "stopping")
		switch mode {
		case "orderly":
			return nil
		case "interrupted":
			return fmt.Errorf("working: %w", cmd.Context().Err())
		default: // "hung"
			select {}
		}
	}}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode    string
		signals []syscall.Signal
		want    int
	}{
		"SIGTERM, orderly stop":       {"orderly", []syscall.Signal{syscall.SIGTERM}, 0},
		"SIGINT, orderly stop":        {"orderly", []syscall.Signal{syscall.SIGINT}, 0},
		"SIGINT, interrupted":         {"interrupted", []syscall.Signal{syscall.SIGINT}, 130},
		"SIGTERM twice while hung":    {"hung", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 143},
		"SIGTERM then SIGINT, hung":   {"hung", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, 130},
		"SIGINT twice, interruptible": {"hung", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "COMMAND_TEST_MODE="+tt.mode)
			cmd.Stderr = os.Stderr
			stdout, err := cmd.StdoutPipe()
			must.Do(t, err)
			must.Do(t, cmd.Start())
			lines := bufio.NewReader(stdout)
			for _, s := range tt.signals {
				if _, err := lines.ReadString('\n'); err != nil {
					t.Fatalf("reading the progress: %v", err)
				}
				must.Do(t, cmd.Process.Signal(s))
			}
			must.Get(io.Copy(io.Discard, lines)).Or(t)
			err = cmd.Wait()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}

func TestNotifyContextEndsCleanly(t *testing.T) {
	t.Parallel()
	ctx, stop := command.NotifyContext(t.Context(), func(int) { t.Error("exit called") })
	stop()
	stop() // twice is fine
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("cause is %v", context.Cause(ctx))
	}
}
