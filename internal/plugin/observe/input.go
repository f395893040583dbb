// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
)

// OpenInput opens a file, or standard input for "-", and says how to call it in errors.
func OpenInput(path string, stdin io.Reader) (where string, r io.ReadCloser, err error) {
	if path == "-" {
		return "standard input", io.NopCloser(stdin), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("opening the input: %w", err)
	}
	return path, file, nil
}

// CheckDefaultType refuses a default that the controller would pass over in silence.
func CheckDefaultType(where, value string) error {
	if slices.Contains([]string{"", annotation.TypeRegional, annotation.TypeRegionalNetwork}, value) {
		return nil
	}
	return fmt.Errorf("%s is %q, it must be %s or %s", where, value, annotation.TypeRegional, annotation.TypeRegionalNetwork)
}

// ReadDefaults reads those of a file, none for no file, and refuses a type by default that is none.
func ReadDefaults(path, defaultType string) (annotation.Defaults, error) {
	if err := CheckDefaultType("--default-type", defaultType); err != nil || path == "" {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading defaults for annotations: %w", err)
	}
	d, _, err := defaults.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--defaults %s: %w", path, err)
	}
	return d, nil
}

// Readable says what is wrong with JSON in words of JSON; the decoder's own are about Go.
func Readable(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("it is a JSON %s", wrong.Value)
		}
		return fmt.Errorf("field %s cannot be a JSON %s", wrong.Field, wrong.Value)
	}
	return err
}

// Documents calls do with each YAML or JSON document of an input that errors call where.
func Documents(where string, r io.Reader, do func(document []byte) error) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", where, err)
		}
		if err := do(document); err != nil {
			return fmt.Errorf("document %d of %s: %w", n, where, err)
		}
	}
}
