// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cases gives tests that try many inputs their number and their seed.
//
// MOORING_CASES selects the number: few for a change, more in CI, most at night; unset means change. The seed follows the commit, so that each commit
// tries other inputs and a failure can be replayed ([Seed]). A test that fails logs the command that replays it. Flags of rapid on the command line win.
package cases

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
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

// Night reports whether the setting is that of the night.
func Night() bool { return os.Getenv(Variable) == settingNight }

// Change reports whether the setting is that of a change.
func Change() bool {
	setting := os.Getenv(Variable)
	return setting == "" || setting == settingChange
}

// Number returns the number for the current setting, and fails the test when the setting is unknown.
func Number(tb testing.TB, change, ci, night int) int {
	tb.Helper()
	switch setting := os.Getenv(Variable); setting {
	case "", settingChange:
		return change
	case "ci":
		return ci
	case settingNight:
		return night
	default:
		tb.Fatalf("%s is %q: use change, ci or night", Variable, setting)
		return 0
	}
}

// Check runs a property with 30, 100 or 1,000 cases, or as many as -rapid.checks says.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	CheckTimes(t, perChange, perCI, perNight, property)
}

// CheckTimes is Check with other numbers, for a property that means something only with more cases, or costs little.
func CheckTimes(t *testing.T, change, ci, night int, property func(*rapid.T)) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(replay(t, start(t)))
		}
	}()
	number, seed := Number(t, change, ci, night), start(t)
	begun := setFlags(t, number, named(seed, t.Name()))
	defer begun()
	rapid.Check(t, func(t *rapid.T) {
		begun()
		property(t)
	})
}

// Sample returns so many elements of a list for a change, neighbors that begin where the seed says, around the end if need be.
// In CI and at night it returns all of them. It is for tables whose rows take seconds each, of which the next commit tries others.
func Sample[T any](tb testing.TB, change int, list ...T) []T {
	tb.Helper()
	if count := Number(tb, min(change, len(list)), len(list), len(list)); count < len(list) {
		begin := int(named(Seed(tb), tb.Name())>>1) % len(list)
		list = slices.Concat(list[begin:], list[:begin])[:count]
	}
	return list
}

// named returns the seed of one property: properties of a package that generate the same things try different ones. It is not 0, which rapid takes for
// a random seed.
func named(seed uint64, name string) uint64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%d %s", seed, name) // it never fails
	return hash.Sum64() | 1
}

// setFlags sets rapid's flags, which are the process's: rapid has no other setting. It reads them before the first case, so that the next property may
// set them when the returned function has been called.
func setFlags(t *testing.T, checks int, seed uint64) (begun func()) {
	t.Helper()
	flags.Lock()
	begun = sync.OnceFunc(flags.Unlock)
	for name, value := range map[string]string{"checks": strconv.Itoa(checks), "seed": strconv.FormatUint(seed, 10)} {
		if fixed(rapidPrefix+name, "RAPID_"+strings.ToUpper(name)) {
			continue
		}
		if err := flag.Set(rapidPrefix+name, value); err != nil {
			begun()
			t.Fatal(err)
		}
	}
	return begun
}

const rapidPrefix = "rapid."

// flags guards rapid's flags.
var flags sync.Mutex //nolint:gochecknoglobals // rapid's flags are the process's

// fixed reports whether a person has set a flag of rapid, on the command line or by its variable.
func fixed(name, variable string) bool {
	_, byVariable := os.LookupEnv(variable)
	_, byFlag := given()[name]
	return byVariable || byFlag
}

// given are the flags of the command line.
var given = sync.OnceValue(func() map[string]string { //nolint:gochecknoglobals // read before the first flag is set here
	all := map[string]string{}
	flag.Visit(func(f *flag.Flag) { all[f.Name] = f.Value.String() })
	return all
})

// FromEnv returns the number that an environment variable holds, such as the length of a campaign, or otherwise if it is unset. A value that is not a
// number fails the test.
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
