// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"
)

// NamedSide is a side by what people call it.
type NamedSide struct {
	Name string
	Side Side
}

// Sides are those that may not have been read.
func (w World) Sides() []NamedSide {
	return []NamedSide{{"DigitalOcean", w.Cloud.Side}, {"Calico", w.Calico.Side}, {"reflectors", w.Reflectors.Side}}
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
