// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/command"
)

// server is a command as the component binaries have them: flags, no arguments, no subcommands.
func server(run func(ctx context.Context) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calico-node-sync",
		Short: "Test",
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
	cmd.Flags().IntP("v", "v", 0, "verbosity")
	cmd.Flags().String("metrics-bind-address", "", "")
	cmd.Flags().String("kubeconfig", "", "")
	cmd.Flags().Duration("grace-period", 0, "")
	cmd.Flags().Bool("dry-run", false, "")
	return cmd
}

// group is a command with nested subcommands.
func group() *cobra.Command {
	root := &cobra.Command{Use: "kubectl-mooring", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mooring"}}
	root.PersistentFlags().String("context", "", "")
	plan := &cobra.Command{Use: "plan"}
	plan.AddCommand(&cobra.Command{Use: "nodes", RunE: func(*cobra.Command, []string) error { return command.Exit(command.ExitAttention, nil) }})
	root.AddCommand(plan)
	return root
}

type result struct {
	code           int
	stdout, stderr string
}

func run(ctx context.Context, cmd *cobra.Command, args []string, opts ...command.Option) result {
	var stdout, stderr bytes.Buffer
	code := command.Run(ctx, cmd, args, &stdout, &stderr, opts...)
	return result{code, stdout.String(), stderr.String()}
}

func TestErrorsAreOneSentence(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		err  error
		want result
	}{
		"success":        {nil, nil, result{}},
		"a plain error":  {nil, fmt.Errorf("reading %q: %w", "x", errors.New("boom")), result{1, "", "error: reading \"x\": boom\n"}},
		"joined errors":  {nil, errors.Join(errors.New("one"), errors.New("two")), result{1, "", "error: one; two\n"}},
		"escapes":        {nil, errors.New("tick \x1b[2J\r\n\x1b]0;x\a"), result{1, "", `error: tick \x1b[2J; \x1b]0;x\a` + "\n"}},
		"another code":   {nil, fmt.Errorf("deed: %w", command.Exit(2, errors.New("drift"))), result{2, "", "error: deed: drift\n"}},
		"a silent code":  {nil, command.Exit(2, nil), result{2, "", ""}},
		"canceled alone": {nil, context.Canceled, result{1, "", "error: context canceled\n"}},
		"an unknown flag": {
			[]string{"--no-such"}, nil,
			result{1, "", "error: unknown flag --no-such; see 'calico-node-sync --help'\n"},
		},
		"a mistyped flag before one with a value": {
			[]string{"--dryrunn", "--kubeconfig", "f"}, nil,
			result{1, "", "error: unknown flag --dryrunn (did you mean --dry-run?); see 'calico-node-sync --help'\n"},
		},
		"a mistyped flag": {
			[]string{"--metric-bind_address=x"}, nil,
			result{1, "", "error: unknown flag --metric-bind_address (did you mean --metrics-bind-address?); see 'calico-node-sync --help'\n"},
		},
		"one dash": {
			[]string{"-kubeconfig", "x"}, nil,
			result{1, "", "error: unknown flag -k in -kubeconfig (did you mean --kubeconfig?); see 'calico-node-sync --help'\n"},
		},
		"an unknown shorthand": {[]string{"-x"}, nil, result{1, "", "error: unknown flag -x in -x; see 'calico-node-sync --help'\n"}},
		"a missing value":      {[]string{"--kubeconfig"}, nil, result{1, "", "error: flag --kubeconfig needs a value; see 'calico-node-sync --help'\n"}},
		"a wrong number": {
			[]string{"-v", "x"}, nil,
			result{1, "", "error: invalid value \"x\" for --v (int): invalid syntax; see 'calico-node-sync --help'\n"},
		},
		"a wrong duration": {
			[]string{"--grace-period=5"}, nil,
			result{1, "", "error: invalid value \"5\" for --grace-period (duration): time: missing unit in duration \"5\"; see 'calico-node-sync --help'\n"},
		},
		"a wrong bool": {
			[]string{"--dry-run=ja"}, nil,
			result{1, "", "error: invalid value \"ja\" for --dry-run (bool): invalid syntax; see 'calico-node-sync --help'\n"},
		},
		"bad syntax": {[]string{"--=x"}, nil, result{1, "", "error: cannot read flag \"--=x\"; see 'calico-node-sync --help'\n"}},
		"a stray argument": {
			[]string{"now"}, nil,
			result{1, "", "error: unexpected argument \"now\": calico-node-sync takes flags only; see 'calico-node-sync --help'\n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := run(t.Context(), server(func(context.Context) error { return tt.err }), tt.args); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want result
	}{
		"an unknown command": {[]string{"paln"}, result{1, "", "error: unknown command \"paln\" for \"kubectl mooring\" (did you mean \"plan\"?); see 'kubectl mooring --help'\n"}},
		"an unknown nested command": {
			[]string{"plan", "services"},
			result{1, "", "error: unknown command \"services\" for \"kubectl mooring plan\"; see 'kubectl mooring plan --help'\n"},
		},
		"a mistyped inherited flag": {
			[]string{"plan", "nodes", "--contex=x"},
			result{1, "", "error: unknown flag --contex (did you mean --context?); see 'kubectl mooring plan nodes --help'\n"},
		},
		"attention": {[]string{"plan", "nodes"}, result{2, "", ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := run(t.Context(), group(), tt.args); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	for _, args := range [][]string{nil, {"plan"}, {"help", "plan"}, {"plan", "nodes", "-h"}} {
		if got := run(t.Context(), group(), args); got.code != 0 || !strings.Contains(got.stdout, "Usage:") || got.stderr != "" {
			t.Errorf("%q prints no help: %+v", args, got)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	cmd := server(func(context.Context) error { return errors.New("must not run") })
	command.Prepare(cmd) // twice, with the one in Run
	got := run(t.Context(), cmd, []string{"--version"})
	if got.code != 0 || !strings.HasPrefix(got.stdout, "calico-node-sync ") || strings.Count(got.stdout, "\n") != 1 || got.stderr != "" {
		t.Errorf("--version: %+v", got)
	}
	if got := run(t.Context(), server(func(context.Context) error { return nil }), []string{"-v2"}); got != (result{}) {
		t.Errorf("-v must stay verbosity: %+v", got)
	}
}

func TestInterruptedCommands(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want result
	}{
		"stopped in order":         {nil, result{}},
		"stopped by the context":   {fmt.Errorf("listing nodes: %w", context.Canceled), result{code: 143}},
		"failed for other reasons": {errors.New("boom"), result{1, "", "error: boom\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(command.SignalError{Signal: syscall.SIGTERM})
			if got := run(ctx, server(func(context.Context) error { return tt.err }), nil); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 2: fmt.Errorf("x: %w", command.Exit(2, nil))} {
		if got := command.Code(err); got != want {
			t.Errorf("Code(%v) = %d, want %d", err, got, want)
		}
	}
}

func TestSingleDashEndToEnd(t *testing.T) {
	t.Parallel()
	cmd := server(func(context.Context) error { return nil })
	if got := run(t.Context(), cmd, []string{"-kubeconfig", "-dry-run", "-dry-run", "-v=3"}, command.WithSingleDash()); got != (result{}) {
		t.Fatalf("got %+v", got)
	}
	for name, want := range map[string]string{"kubeconfig": "-dry-run", "dry-run": "true", "v": "3"} {
		if got := cmd.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", name, got, want)
		}
	}
}
