// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"github.com/mooring-dev/mooring/internal/etcdstorage/predecessor"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

// formatObjects prints the new objects themselves, to be applied.
const formatObjects = "objects"

// Results of one object, as -o json and -o yaml have them. They MUST NOT change: scripts compare them. The help text lists them.
const (
	resultWhole   = "whole"
	resultChanged = "changed"
	resultRefused = "refused"
	resultFailed  = "failed"
)

// migrateReport is what -o json and -o yaml print. Names MUST NOT change; more may be added.
type migrateReport struct {
	// DryRun: nothing was written, though --apply was given.
	DryRun bool `json:"dryRun,omitempty"`
	// Storages are in the order in which they were read.
	Storages []migratedStorage `json:"storages"`
}

type migratedStorage struct {
	// Name may be empty for what is refused.
	Name   string `json:"name"`
	Result string `json:"result"`
	// Written is created, configured or unchanged, with --apply. Error is why it could not be written.
	Written string `json:"written,omitempty"`
	Error   string `json:"error,omitempty"`
	// Refused, Lost and Hints are why it cannot be converted, what could not be carried over, and what works otherwise than before.
	Refused []predecessor.Note `json:"refused,omitempty"`
	Lost    []predecessor.Note `json:"lost,omitempty"`
	Hints   []predecessor.Note `json:"hints,omitempty"`
	// Object is the new EtcdStorage; it is left out if there is none.
	Object map[string]any `json:"object,omitempty"`
}

// migrated is one conversion and, with --apply, what became of it in the cluster.
type migrated struct {
	predecessor.Conversion
	did string
	err error
}

// report makes one report of all.
func report(all []migrated, dryRun bool) migrateReport {
	out := migrateReport{DryRun: dryRun, Storages: []migratedStorage{}}
	for _, m := range all {
		s := migratedStorage{
			Name: m.Name, Result: resultWhole, Written: m.did, Object: m.Object, Refused: m.Refused, Lost: m.Lost, Hints: m.Hints,
		}
		switch {
		case m.Object == nil:
			s.Result = resultRefused
		case m.err != nil:
			s.Result, s.Error = resultFailed, command.OneLine(m.err.Error())
		case len(m.Lost) > 0:
			s.Result = resultChanged
		}
		out.Storages = append(out.Storages, s)
	}
	return out
}
