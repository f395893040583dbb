// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Exit codes. They MUST not be changed: scripts and liveness tooling depend on them.
const (
	// ExitOK means that the command did what it was asked, and found nothing to report.
	ExitOK = 0
	// ExitError means that it could not: wrong usage, bad configuration, or a failure on the way.
	ExitError = 1
	// ExitAttention means that the command itself worked and that its answer needs a person's or a
	// script's attention: a plan that would change something, a check that found a problem.
	ExitAttention = 2
)

// exitError carries an exit code other than [ExitError] through cobra.
type exitError struct {
	code int
	err  error // nil: say nothing
}

// Exit returns an error that makes [Main] return code. A nil err exits silently, for commands that
// have already printed all there is to say.
func Exit(code int, err error) error { return &exitError{code: code, err: err} }

// Attention is the silent [ExitAttention] if the answer needs attention, else nil.
func Attention(needed bool) error {
	if needed {
		return Exit(ExitAttention, nil)
	}
	return nil
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Code is the exit code that err stands for: 0 for nil, the code given to [Exit], 1 for all others.
func Code(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return ExitError
}

// Option changes how [Main] and [Run] treat a command.
type Option func(*settings)

type settings struct {
	singleDash bool
}

// WithSingleDash accepts long flags with one dash (-kubeconfig x), as binaries built with Go's flag
// package do. It is for the drop-in successors of such binaries; see [NormalizeSingleDash].
func WithSingleDash() Option { return func(s *settings) { s.singleDash = true } }

// Main runs cmd with the process's arguments, streams and signals, and returns the exit code. It is
// the whole body of a main function but for os.Exit.
func Main(cmd *cobra.Command, opts ...Option) int {
	ctx, stop := NotifyContext(context.Background(), os.Exit) //nolint:forbidigo // Main stands for main; only a second signal gets there
	defer stop()
	return Run(ctx, cmd, os.Args[1:], os.Stdout, os.Stderr, opts...)
}

// Run prepares cmd ([Prepare]), executes it with args and returns the exit code. An error is printed
// on stderr as "error: " and one line. When ctx was ended by a signal ([NotifyContext]) and that is
// all that the command's error says, nothing is printed and the code is 128 plus the signal.
func Run(ctx context.Context, cmd *cobra.Command, args []string, stdout, stderr io.Writer, opts ...Option) int {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	Prepare(cmd)
	if s.singleDash {
		args = NormalizeSingleDash(args, allFlags(cmd))
	}
	if args == nil {
		args = []string{} // cobra takes nil for "read os.Args"
	}
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if unknown := mistypedFlag(cmd, args, err); unknown != nil {
		err = unknown
	}
	if signaled, ok := errors.AsType[SignalError](context.Cause(ctx)); ok && (errors.Is(err, context.Canceled) || errors.Is(err, signaled)) {
		return 128 + signaled.number()
	}
	if e, ok := errors.AsType[*exitError](err); ok && e.err == nil {
		return e.code
	}
	fmt.Fprintln(stderr, "error: "+prose.Printable(OneLine(err.Error())))
	return Code(err)
}

// Prepare gives cmd and its subcommands the behavior that all Mooring binaries share: no usage text
// and no cobra message on errors, flag errors with a hint, no stray arguments where a command does
// not ask for any, and --version on the root. It may be called more than once.
func Prepare(cmd *cobra.Command) {
	if cmd.Version == "" {
		cmd.Version = buildinfo.Get().String()
	}
	if cmd.Flags().Lookup("version") == nil {
		// Defined here because cobra would take the shorthand -v, which is verbosity in Kubernetes.
		cmd.Flags().Bool("version", false, "Print the version and exit.")
	}
	cmd.SetVersionTemplate("{{.DisplayName}} {{.Version}}\n")
	cmd.SetFlagErrorFunc(flagError)
	prepareTree(cmd)
}

func prepareTree(cmd *cobra.Command) {
	cmd.SilenceUsage = true
	cmd.SilenceErrors = true
	switch {
	case cmd.HasSubCommands() && !cmd.Runnable():
		// Cobra answers an unknown word below a nested group with the help text and success, and below
		// the root with several lines.
		cmd.RunE, cmd.Args, cmd.DisableFlagsInUseLine = runGroup, cobra.ArbitraryArgs, true
	case cmd.Args == nil && cmd.HasSubCommands(): // a group that does something by itself
		cmd.Args = subcommandOnly
	case cmd.Args == nil && !cmd.HasSubCommands() && cmd.Name() != "help": // cobra's help takes a command's name
		cmd.Args = noArgs
	}
	for _, c := range cmd.Commands() {
		prepareTree(c)
	}
}

func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return subcommandOnly(cmd, args)
}

// subcommandOnly refuses a word that is none of the subcommands.
func subcommandOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := ""
	if like := closest(args[0], names); like != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", like)
	}
	return fmt.Errorf("unknown command %q for %q%s; see '%s --help'", args[0], cmd.CommandPath(), hint, cmd.CommandPath())
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: %s takes flags only; see '%s --help'", args[0], cmd.CommandPath(), cmd.CommandPath())
}

// OneLine puts a message of several lines (joined errors, cobra's suggestions) on one, so that log
// readers and people see one error as one thing.
func OneLine(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		switch {
		case out.Len() == 0:
		case strings.HasSuffix(out.String(), ":"), strings.HasSuffix(out.String(), "?"):
			out.WriteByte(' ')
		default:
			out.WriteString("; ")
		}
		out.WriteString(line)
	}
	return out.String()
}

// SignalError is the cause with which [NotifyContext] ends its context.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e SignalError) Error() string { return "received signal: " + e.Signal.String() }

func (e SignalError) number() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return int(s)
	}
	return int(syscall.SIGTERM)
}
