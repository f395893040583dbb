// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/platform/command"
)

func legacyFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("legacy", pflag.ContinueOnError)
	fs.String("kubeconfig", "", "")
	fs.Bool("dryrun", false, "")
	fs.IntP("verbosity", "v", 0, "")
	fs.BoolP("quiet", "q", false, "")
	fs.StringP("namespace", "n", "", "")
	fs.Int("p", 0, "") // a long name of one letter, without a shorthand
	return fs
}

func TestNormalizeSingleDash(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ in, want string }{
		"long with value":                 {"-kubeconfig x", "--kubeconfig x"},
		"long with inline value":          {"-kubeconfig=x -dryrun=false", "--kubeconfig=x --dryrun=false"},
		"bool takes no value":             {"-dryrun -kubeconfig x", "--dryrun --kubeconfig x"},
		"double dash stays":               {"--kubeconfig x --dryrun", "--kubeconfig x --dryrun"},
		"shorthand stays":                 {"-v 2 -v2 -v=2 -q", "-v 2 -v2 -v=2 -q"},
		"long name wins over shorthand":   {"-namespace x", "--namespace x"},
		"shorthand with value":            {"-n -kubeconfig -dryrun", "-n -kubeconfig --dryrun"},
		"shorthand cluster with value":    {"-qn -dryrun -dryrun", "-qn -dryrun --dryrun"},
		"shorthand cluster, value inside": {"-qnx -dryrun", "-qnx --dryrun"},
		"shorthand with =":                {"-n=x -dryrun", "-n=x --dryrun"},
		"value that looks like a flag":    {"-kubeconfig -dryrun -dryrun", "--kubeconfig -dryrun --dryrun"},
		"value of a double dash flag":     {"--kubeconfig -dryrun", "--kubeconfig -dryrun"},
		"one letter without shorthand":    {"-p 3", "--p 3"},
		"unknown stays":                   {"-foo -dryrunx", "-foo -dryrunx"},
		"after the end of flags":          {"-dryrun -- -dryrun", "--dryrun -- -dryrun"},
		"-- as a value":                   {"-kubeconfig -- -dryrun", "--kubeconfig -- --dryrun"},
		"a single dash":                   {"- -dryrun", "- --dryrun"},
		"positional":                      {"x -dryrun", "x --dryrun"},
		"missing value":                   {"-kubeconfig", "--kubeconfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := strings.Fields(tt.in)
			got := command.NormalizeSingleDash(in, legacyFlags())
			if diff := cmp.Diff(strings.Fields(tt.want), got); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(strings.Fields(tt.in), in); diff != "" {
				t.Errorf("the input was modified (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzNormalizeSingleDash checks, for any command line: nothing is lost and only a dash is added, a
// second pass changes nothing, and what pflag understands already means the same afterwards unless it
// was a shorthand that also reads as a long name.
func FuzzNormalizeSingleDash(f *testing.F) {
	for _, seed := range []string{"-kubeconfig x", "-qn -dryrun", "-v 2 -- -dryrun", "--dryrun=false - x", "-n= -p 3", "-=", "-dryrun -namespace=y", "-kubeconfig --"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		in := strings.Split(line, " ")
		got := command.NormalizeSingleDash(in, legacyFlags())
		if len(got) != len(in) {
			t.Fatalf("%q became %q", in, got)
		}
		for i := range in {
			if got[i] != in[i] && got[i] != "-"+in[i] {
				t.Fatalf("%q became %q", in[i], got[i])
			}
		}
		if again := command.NormalizeSingleDash(got, legacyFlags()); !slices.Equal(again, got) {
			t.Fatalf("%q became %q and then %q", in, got, again)
		}
		if !slices.Equal(got, in) && !readsAsLongName(in) && legacyFlags().Parse(in) == nil {
			t.Fatalf("pflag understood %q, and it became %q", in, got)
		}
	})
}

// readsAsLongName reports whether an argument is both a shorthand cluster and a long name.
func readsAsLongName(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		return name == "namespace"
	})
}
