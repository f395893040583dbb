// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// SeedVariable sets the seed of a run: a whole number up to 2^63 - 1.
const SeedVariable = "MOORING_SEED"

// FallbackSeed is the seed of a tree without git or without a commit, such as one unpacked from an archive.
const FallbackSeed = 20261125

const (
	settingChange = "change"
	settingNight  = "night"
)

// began is when the process began: in a bubble of testing/synctest, where the seed may be asked for first, it is always the year 2000.
var began = time.Now() //nolint:gochecknoglobals // it is constant

// Start returns the seed of a test run in a folder, and its origin for people: MOORING_SEED if it is set; at night the date in UTC, as in 20261127;
// otherwise the first 32 bits of the hash of the commit HEAD, and without one [FallbackSeed].
func Start(folder string) (seed uint64, origin string, err error) {
	if text := os.Getenv(SeedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return 0, "", fmt.Errorf("%s is %q: it must be a whole number below 2^63", SeedVariable, text)
		}
		return seed, SeedVariable, nil
	}
	if Night() {
		seed, err := strconv.ParseUint(began.UTC().Format("20060102"), 10, 64)
		return seed, "today's date", err
	}
	git := exec.Command("git", "rev-parse", "--verify", "--quiet", "HEAD") //nolint:noctx // it reads two files
	git.Dir = folder
	commit, err := git.Output()
	if err != nil || len(commit) < 8 {
		return FallbackSeed, "no commit", nil //nolint:nilerr // there may be no git
	}
	seed, err = strconv.ParseUint(string(commit[:8]), 16, 32)
	return seed, "commit " + string(commit[:8]), err
}

// Seed returns the seed of a campaign, the same for all campaigns of a commit. If the test fails, it logs the command that replays it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := start(tb)
	if _, known := seeded.LoadOrStore(tb, true); known {
		return seed
	}
	tb.Cleanup(func() {
		seeded.Delete(tb)
		if tb.Failed() {
			tb.Log(replay(tb, seed))
		}
	})
	return seed
}

// seeded are the running tests that log how to replay them, once each.
var seeded sync.Map //nolint:gochecknoglobals // it is of running tests

// Rand returns a source of random numbers that begins at the seed and the test's name.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), named(0, tb.Name()))) //nolint:gosec // a test's
}

// start is Start in the package's folder, once a process.
func start(tb testing.TB) uint64 {
	tb.Helper()
	s := process()
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.seed
}

// process is what the process begins with: the package's folder, which a test may leave, and the seed.
var process = sync.OnceValue(func() (p struct { //nolint:gochecknoglobals // read once a process
	folder string
	seed   uint64
	err    error
}) {
	if p.folder, p.err = os.Getwd(); p.err == nil {
		p.seed, _, p.err = Start(p.folder)
	}
	return p
})

// replay returns the command that runs a test again with the same cases.
func replay(tb testing.TB, seed uint64) string {
	tb.Helper()
	setting := ""
	if value := os.Getenv(Variable); value != "" {
		setting = Variable + "=" + value + " "
	}
	folder, pkg := location(process().folder)
	words := []string{"go", "test"}
	if folder != "." {
		words = append(words, "-C", folder)
	}
	if buildTags != "" {
		words = append(words, "-tags", buildTags)
	}
	words = append(words, "-count=1")
	if testing.Short() {
		words = append(words, "-short")
	}
	words = append(words, "-run", quoted(pattern(tb.Name())), pkg)
	for _, name := range slices.Sorted(maps.Keys(given())) {
		if strings.HasPrefix(name, rapidPrefix) {
			words = append(words, "-"+name+"="+given()[name])
		}
	}
	return fmt.Sprintf("to replay this, in the repository's root: %s%s=%d %s", setting, SeedVariable, seed, strings.Join(words, " "))
}

// pattern returns the value of -test.run that selects one test or subtest.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// quoted returns a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// location returns the folder of a package's module below the repository's root, and the package's path in the module. A module that is not the root's
// lies in its folder.
func location(folder string) (module, pkg string) {
	inner := folder
	for !isModule(inner) {
		if inner == filepath.Dir(inner) {
			return ".", "."
		}
		inner = filepath.Dir(inner)
	}
	pkg = "." + strings.TrimPrefix(folder, inner)
	if isModule(filepath.Dir(inner)) {
		return filepath.Base(inner), pkg
	}
	return ".", pkg
}

func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}
