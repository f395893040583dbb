// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// addPlanFlags adds the flags that the plans of the cloud's objects share, and makes a command run the human form if Services
// are given by -f, else the machine form.
func addPlanFlags(
	cmd *cobra.Command, services, defaultType, defaultsFile *string, format *screen.Format, human, machine func(*cobra.Command) error,
) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *services == "" {
			return machine(cmd)
		}
		return human(cmd)
	}
	*format = screen.NewFormat(screen.Text, screen.FormatYAML, screen.FormatJSON)
	flags := cmd.Flags()
	flags.StringVar(defaultType, "default-type", annotation.DefaultType,
		"Type of load balancers without the annotation, as in DEFAULT_LB_TYPE: REGIONAL or REGIONAL_NETWORK.")
	flags.StringVar(defaultsFile, "defaults", "", "File with defaults for annotations, as in "+defaults.EnvText+".")
	format.AddTo(cmd)
	// The only error is a flag that does not exist or has its completion already.
	_ = cmd.RegisterFlagCompletionFunc("default-type",
		cobra.FixedCompletions([]string{annotation.TypeRegional, annotation.TypeRegionalNetwork}, cobra.ShellCompDirectiveNoFileComp))
}

// mayRead refuses flags of the human form, and to wait for a JSON object that a person would have to type.
func mayRead(cmd *cobra.Command, human ...string) error {
	for _, name := range human {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s needs -f; without -f everything is in the JSON object on standard input", name)
		}
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return errors.New("give -f FILE, or a JSON object on standard input")
	}
	return nil
}

// readObject reads the one JSON object of a machine form. Keys that are not among its fields are passed over, and named on notes.
func readObject[T any](r io.Reader, notes io.Writer) (T, error) {
	var out T
	var known []string
	for field := range reflect.TypeFor[T]().Fields() {
		known = append(known, field.Tag.Get("json"))
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return out, fmt.Errorf("reading standard input: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return out, errors.New("standard input is empty: it must be a JSON object, or give -f FILE")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return out, fmt.Errorf("standard input must be one JSON object: %w", observe.Readable(err))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(known, key) {
			fmt.Fprintf(notes, "note: %q of standard input is not known and has no effect; known are %s\n", key, strings.Join(known, ", "))
		}
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("the JSON object on standard input: %w", observe.Readable(err))
	}
	return out, nil
}
