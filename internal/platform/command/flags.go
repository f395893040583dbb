// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// NormalizeSingleDash rewrites long flags that are written with a single dash (-kubeconfig x,
// -dryrun, -dryrun=false) to the double dash that pflag wants, so that manifests written for Go's
// flag package keep working. Only names that flags knows are rewritten; the value of a flag, all that
// follows "--", and real shorthands are left as they are. Where "-name" could also be read as the
// shorthand -n with the value "ame", the known long name wins. args is not modified.
func NormalizeSingleDash(args []string, flags *pflag.FlagSet) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if isSingleDashLong(arg, flags) {
			arg = "-" + arg
		}
		out = append(out, arg)
		if takesNextArg(arg, flags) && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// isSingleDashLong reports whether arg is -name or -name=value with a known long name.
func isSingleDashLong(arg string, flags *pflag.FlagSet) bool {
	if len(arg) < 2 || arg[0] != '-' || arg[1] == '-' {
		return false
	}
	name, _, _ := strings.Cut(arg[1:], "=")
	if name == "" || flags.Lookup(name) == nil {
		return false
	}
	// A one-letter name is a shorthand first.
	return len(name) > 1 || flags.ShorthandLookup(name) == nil
}

// takesNextArg reports whether pflag will read the next argument as the value of a flag in arg.
func takesNextArg(arg string, flags *pflag.FlagSet) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	if arg[1] == '-' {
		name, _, hasValue := strings.Cut(arg[2:], "=")
		f := flags.Lookup(name)
		return !hasValue && f != nil && f.NoOptDefVal == ""
	}
	// A cluster of shorthands: the first one that needs a value takes the rest, or the next argument.
	for rest := arg[1:]; rest != ""; rest = rest[1:] {
		f := flags.ShorthandLookup(rest[:1])
		if f == nil || strings.HasPrefix(rest[1:], "=") {
			return false
		}
		if f.NoOptDefVal == "" {
			return len(rest) == 1
		}
	}
	return false
}

// allFlags is every flag that cmd itself parses.
func allFlags(cmd *cobra.Command) *pflag.FlagSet {
	all := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.InitDefaultHelpFlag()
	all.AddFlagSet(cmd.Flags())
	all.AddFlagSet(cmd.PersistentFlags())
	return all
}

// mistypedFlag is the error about a flag that cobra has taken for one with a value, and the value of the next flag for a command: "--dryrunn --kubeconfig f".
// It is nil if that is not what err is about.
func mistypedFlag(cmd *cobra.Command, args []string, err error) error {
	_, rest, found := strings.Cut(err.Error(), `unknown command "`)
	word, _, _ := strings.Cut(rest, `"`)
	if !found {
		return nil
	}
	at := slices.Index(args, word)
	unknown, isFlag := errors.AsType[*pflag.NotExistError](cmd.ParseFlags(args[:max(at, 0)]))
	if !isFlag {
		return nil
	}
	return flagError(cmd, unknown)
}

// flagError turns pflag's parse errors into one sentence with the next step in it.
func flagError(cmd *cobra.Command, err error) error {
	see := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		if group := unknown.GetSpecifiedShortnames(); group != "" {
			return fmt.Errorf("unknown flag -%s in -%s%s; %s", unknown.GetSpecifiedName(), group, singleDashHint(cmd, group), see)
		}
		return fmt.Errorf("unknown flag --%s%s; %s", unknown.GetSpecifiedName(), didYouMean(cmd, unknown.GetSpecifiedName()), see)
	case errors.As(err, &missing):
		return fmt.Errorf("flag --%s needs a value; %s", missing.GetFlag().Name, see)
	case errors.As(err, &invalid):
		return fmt.Errorf("invalid value %q for --%s (%s): %w; %s", invalid.GetValue(), invalid.GetFlag().Name,
			invalid.GetFlag().Value.Type(), rootCause(invalid), see)
	case errors.As(err, &syntax):
		return fmt.Errorf("cannot read flag %q; %s", syntax.GetSpecifiedFlag(), see)
	}
	return fmt.Errorf("%w; %s", err, see)
}

// rootCause drops the names of parsing functions, which tell an operator nothing.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func singleDashHint(cmd *cobra.Command, group string) string {
	name, _, _ := strings.Cut(group, "=")
	if allFlags(cmd).Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil {
		return fmt.Sprintf(" (did you mean --%s?)", name)
	}
	return ""
}

func didYouMean(cmd *cobra.Command, name string) string {
	var names []string
	collect := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	allFlags(cmd).VisitAll(collect)
	cmd.InheritedFlags().VisitAll(collect)
	if best := closest(name, names); best != "" {
		return fmt.Sprintf(" (did you mean --%s?)", best)
	}
	return ""
}

// closest is the one of the names that was probably meant, or "" when more than two letters differ. '_' is as good as '-'.
func closest(word string, names []string) string {
	return prose.Nearest(strings.ReplaceAll(word, "_", "-"), names, 2)
}
