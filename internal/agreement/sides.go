// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Sides are those that may not have been read.
func (w World) Sides() []finding.Side {
	sides := []finding.Side{w.Cloud.Side, w.Calico.Side, w.Reflectors.Side}
	for i, name := range []string{"DigitalOcean", "Calico", "reflectors"} {
		sides[i].Name = name
	}
	return sides
}

// Only returns the rows of the machines with these names, all without any. It is an error that names a machine that no side knows.
func Only(rows []Row, names []string) ([]Row, error) {
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Machine == name }) {
			return nil, fmt.Errorf("no side knows a machine %q", name)
		}
	}
	if len(names) == 0 {
		return rows, nil
	}
	return slices.DeleteFunc(rows, func(r Row) bool { return !slices.Contains(names, r.Machine) }), nil
}
