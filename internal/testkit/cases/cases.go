// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cases gives tests that try many inputs the number of them: few for a change, more in CI, most at night.
//
// MOORING_CASES selects one of the three; unset means change. Flags of rapid on the command line win over it.
package cases

import (
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Variable selects the setting: "change", "ci" or "night".
const Variable = "MOORING_CASES"

// The cases of a property that [Check] tries.
const (
	perChange = 30
	perCI     = 100
	perNight  = 1000
)

// Number returns the number for the current setting, and fails the test when the setting is unknown.
func Number(tb testing.TB, change, ci, night int) int {
	tb.Helper()
	switch setting := os.Getenv(Variable); setting {
	case "", "change":
		return change
	case "ci":
		return ci
	case "night":
		return night
	default:
		tb.Fatalf("%s is %q: use change, ci or night", Variable, setting)
		return 0
	}
}

// seed is where rapid begins for a change and in CI, so that a result is the change's and not the draw's. At night it begins anywhere.
const seed = 20261125

// Check runs a property with 30, 100 or 1,000 cases, or as many as -rapid.checks says: the same cases each time, but at night. The number is the process's: a
// package whose properties need more to mean anything, and cost little, uses rapid.Check in all its tests.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	setFlags(t)
	rapid.Check(t, property)
}

// setFlags sets rapid's own flags, the only way to tell it, once: properties that run in parallel share them. What the command line gives is kept.
func setFlags(t *testing.T) {
	t.Helper()
	once.Do(func() {
		given := map[string]bool{}
		flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]int{
			"rapid.checks": Number(t, perChange, perCI, perNight), "rapid.seed": Number(t, seed, seed, 0),
		} {
			if given[name] {
				continue
			}
			if err := flag.Set(name, strconv.Itoa(value)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

var once sync.Once //nolint:gochecknoglobals // rapid's flag is the process's

// FromEnv returns the number that an environment variable holds, such as the seed that replays a campaign, or otherwise if it is unset. A value that is
// not a number fails the test.
func FromEnv[N int | uint64](tb testing.TB, variable string, otherwise N) N {
	tb.Helper()
	text, set := os.LookupEnv(variable)
	if !set || text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		tb.Fatalf("%s is %q: it must be a whole number", variable, text)
	}
	return N(n)
}
