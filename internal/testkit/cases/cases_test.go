// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"pgregory.net/rapid"
)

func TestNumber(t *testing.T) {
	for setting, want := range map[string]int{"": 1, "change": 1, "ci": 2, "night": 3} {
		t.Setenv(Variable, setting)
		if got := Number(t, 1, 2, 3); got != want {
			t.Errorf("%s=%q: %d cases, want %d", Variable, setting, got, want)
		}
	}
}

// A change tries some rows, in their order, and another seed others; CI tries all of them.
func TestSample(t *testing.T) {
	rows := []int{1, 2, 3, 4, 5, 6, 7}
	for setting, want := range map[string]int{"": 3, "ci": 7, "night": 7} {
		t.Setenv(Variable, setting)
		got := Sample(t, 3, rows...)
		if len(got) != want {
			t.Errorf("%s=%q: %v, want %d of them", Variable, setting, got, want)
		}
		for i := range got[1:] {
			if got[i+1] != got[i]%7+1 {
				t.Errorf("%s=%q: %v are not neighbors", Variable, setting, got)
			}
		}
	}
	t.Setenv(Variable, "")
	begins := map[int]bool{}
	for i := range 200 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { begins[Sample(t, 3, rows...)[0]] = true })
	}
	if len(begins) != len(rows) {
		t.Errorf("of 200 tests, samples begin at %v alone", begins)
	}
	if got := Sample(t, 9, rows...); len(got) != len(rows) {
		t.Errorf("nine of seven are %v", got)
	}
}

func TestCheckTriesAsManyCasesAsTheSettingSays(t *testing.T) {
	t.Parallel()
	for _, parallel := range []int{5, 7, 11, 13} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			t.Parallel()
			n := 0
			CheckTimes(t, parallel, parallel, parallel, func(*rapid.T) { n++ })
			if n != parallel {
				t.Errorf("%d cases, want %d", n, parallel)
			}
		})
	}
	n := 0
	Check(t, func(*rapid.T) { n++ })
	if want := Number(t, perChange, perCI, perNight); n != want {
		t.Errorf("%d cases, want %d", n, want)
	}
}

func TestStart(t *testing.T) {
	repository := t.TempDir()
	git := func(arguments ...string) string {
		cmd := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", arguments, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	expect := func(what string, want uint64) {
		t.Helper()
		got, origin, err := Start(repository)
		if err != nil || got != want {
			t.Errorf("%s: %d (%s), %v; want %d", what, got, origin, err, want)
		}
	}
	t.Setenv(SeedVariable, "")
	t.Setenv(Variable, "")
	expect("an archive", FallbackSeed)
	git("init", "-q")
	expect("no commit", FallbackSeed)
	var seeds []uint64
	for _, message := range []string{"one", "two"} {
		git("commit", "-q", "--allow-empty", "-m", message)
		want := must.Get(strconv.ParseUint(git("rev-parse", "HEAD")[:8], 16, 64)).Or(t)
		seeds = append(seeds, want)
		expect("commit "+message, want)
	}
	if seeds[0] == seeds[1] {
		t.Errorf("two commits have the seed %d", seeds[0])
	}
	t.Setenv(Variable, "night")
	date := must.Get(strconv.ParseUint(began.UTC().Format("20060102"), 10, 64)).Or(t)
	expect("a night", date)
	t.Setenv(SeedVariable, "42")
	expect("the variable", 42)
	for _, wrong := range []string{"x", "-1", "9223372036854775808"} {
		t.Setenv(SeedVariable, wrong)
		if seed, _, err := Start(repository); err == nil {
			t.Errorf("%s=%s is taken as %d", SeedVariable, wrong, seed)
		}
	}
}

// failing makes TestFails fail.
const failing = "MOORING_CASES_TEST_FAILS"

// TestFails has a property and a campaign that draw a number; TestAFailureIsReplayed runs it in another process.
func TestFails(t *testing.T) {
	if os.Getenv(failing) == "" {
		t.Skip("TestAFailureIsReplayed runs it")
	}
	t.Run("a property's", func(t *testing.T) {
		CheckTimes(t, 50, 50, 50, func(rt *rapid.T) {
			if n := rapid.Uint64().Draw(rt, "n"); n%8 == 0 {
				rt.Fatal("a property")
			}
		})
	})
	t.Run("campaign", func(t *testing.T) {
		t.Errorf("drew %d", Rand(t).Uint64())
	})
}

// A failure prints a command; the command, run by a shell in the repository's root, fails with the same cases.
func TestAFailureIsReplayed(t *testing.T) {
	t.Parallel()
	folder := must.Get(os.Getwd()).Or(t)
	root := filepath.Join(folder, "..", "..", "..")
	run := func(cmd *exec.Cmd) string {
		cmd.Dir = root
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, SeedVariable+"=") }), failing+"=1", "RAPID_NOFAILFILE=1")
		if cmd.Path == os.Args[0] {
			cmd.Dir = folder
			cmd.Env = append(cmd.Env, SeedVariable+"=987654321")
		}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Fatalf("%s passes:\n%s", cmd, out)
		}
		return string(out)
	}
	cases := regexp.MustCompile(`failed after \d+ tests|drew \d+|-rapid.seed=\d+`)
	commands := regexp.MustCompile(`(?m)repository's root: (.*)$`)
	first := run(exec.Command(os.Args[0], "-test.run=^TestFails$"))
	found := commands.FindAllStringSubmatch(first, -1)
	if len(found) != 2 {
		t.Fatalf("%d commands, want 2:\n%s", len(found), first)
	}
	for _, command := range found {
		if !strings.Contains(command[1], SeedVariable+"=987654321 go test") || !strings.HasSuffix(command[1], " ./internal/testkit/cases") {
			t.Errorf("the command is %s", command[1])
		}
	}
	again := run(exec.Command("sh", "-c", found[0][1])) + run(exec.Command("sh", "-c", found[1][1]))
	want, got := cases.FindAllString(first, -1), cases.FindAllString(again, -1)
	if len(want) < 3 || !slices.Equal(want, got) {
		t.Errorf("replayed %q, want %q", got, want)
	}
}

func TestLocation(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "repository")
	for _, file := range []string{"go.mod", "a/b/b.go", "lab/go.mod", "lab/internal/c/c.go"} {
		path := filepath.Join(root, file)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, nil, 0o600))
	}
	for folder, want := range map[string][2]string{"a/b": {".", "./a/b"}, "lab/internal/c": {"lab", "./internal/c"}, "lab": {"lab", "."}} {
		if module, pkg := location(filepath.Join(root, folder)); module != want[0] || pkg != want[1] {
			t.Errorf("%s: %s, %s; want %q", folder, module, pkg, want)
		}
	}
}
