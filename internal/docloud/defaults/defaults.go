// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package defaults reads a cluster's defaults for annotations of Services, for all programs that decide by them.
package defaults

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Variables and the flag. They are Mooring's own, the same for all its programs, and MUST NOT change.
const (
	EnvText = "DO_LOAD_BALANCER_DEFAULTS"
	EnvFile = "DO_LOAD_BALANCER_DEFAULTS_FILE"
	Flag    = "load-balancer-defaults-file"
)

// AddFlag binds the flag.
func AddFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, Flag, "", "File with defaults for annotations of Services, NAME: VALUE as on a Service, read once. Also "+EnvFile+
		"; or the same text in "+EnvText+".")
}

// Load reads what the variables or the flag's file say; nothing if they say nothing. The flag goes before its variable. An error is one sentence that
// names the entry; the warnings are worth a line in the log.
func Load(getenv func(string) string, file string) (annotation.Defaults, []annotation.Warning, error) {
	text, where := getenv(EnvText), EnvText
	if file == "" {
		file = getenv(EnvFile)
	}
	if file != "" {
		if strings.TrimSpace(text) != "" {
			return nil, nil, fmt.Errorf("there are two lists of defaults, %s and the file %s: give one of them", EnvText, file)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("reading defaults for annotations: %w", err)
		}
		text, where = string(content), "file "+file
	}
	d, warnings, err := Parse([]byte(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}
	return d, warnings, nil
}

// Parse reads defaults as YAML or JSON: an object of texts. See [annotation.NewDefaults] for what is refused.
func Parse(text []byte) (annotation.Defaults, []annotation.Warning, error) {
	var entries map[string]any
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		return nil, nil, errors.New("it must be one line for each annotation, NAME: VALUE, each name once: " +
			strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")), " "))
	}
	values := make(map[string]string, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		value, ok := entries[name].(string)
		if !ok {
			return nil, nil, fmt.Errorf("annotation %s is %v, which is not text: put it between quotation marks", name, entries[name])
		}
		values[name] = value
	}
	return annotation.NewDefaults(values)
}
