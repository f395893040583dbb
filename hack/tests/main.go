// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command tests selects and runs the tests of both modules, and records what each package costs:
//
//	tests unit [-race]                         all tests without build tags, by `make test`
//	tests e2e [-changed] [-short] [-within DURATION] [FOLDER...]
//	                                           tests with the tag e2e, by `make e2e`
//	tests count unit|e2e                       how many of the last run passed and failed, and which passed only when they ran again
//
// With CI=true a test that fails runs again when all others are done. TEST_FLAGS adds flags of go test. bin/test receives the event streams
// (unit-*.json, e2e-*.json) and the costs (unit.tsv, e2e.tsv): folder, wall seconds and CPU seconds of each package, the most expensive first.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/lending"
)

func main() {
	// After Ctrl-C the control planes are stopped before this program ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		stop()
		os.Exit(1)
	}
}

// errFailed reports that tests failed; gotestsum has printed which.
var errFailed = errors.New("some tests failed; they are named above")

// runner runs tests of one checkout.
type runner struct {
	kind string // "unit" or "e2e"; of count, whose
	root string // the folder of the root module
	// seed is that of all properties and campaigns. go test knows the variable, so that results in its cache are those of the same seed.
	seed  uint64
	flags []string
	out   io.Writer
	// planes is the socket at which tests borrow control planes; "" if they start their own.
	planes string
	// before is when the last package may begin; the zero time is not a limit.
	before time.Time
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("name what to do: unit, e2e or count")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	seed, origin, err := cases.Start(root)
	if err != nil {
		return err
	}
	r := runner{kind: args[0], root: root, seed: seed, flags: strings.Fields(os.Getenv("TEST_FLAGS")), out: out}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "unit":
		race := set.Bool("race", false, "use the race detector where it can find something")
		if err := set.Parse(args[1:]); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s=%d (%s)\n", cases.SeedVariable, seed, origin)
		return r.unit(ctx, *race)
	case "e2e":
		changed := set.Bool("changed", false, "only packages that a change since MOORING_BASE, or of the last day, can break")
		short := set.Bool("short", false, "leave out what takes minutes")
		within := set.Duration("within", 0, "begin no package after this time; what is left out is named (0: no limit)")
		if err := set.Parse(args[1:]); err != nil {
			return err
		}
		if *within > 0 {
			r.before = time.Now().Add(*within)
		}
		fmt.Fprintf(out, "%s=%d (%s)\n", cases.SeedVariable, seed, origin)
		return r.e2e(ctx, *changed, *short, set.Args())
	case "count":
		if len(args) != 2 {
			return errors.New("name whose tests to count: unit or e2e")
		}
		r.kind = args[1]
		return r.count()
	default:
		return fmt.Errorf("%q is unknown: use unit, e2e or count", args[0])
	}
}

// modules are the folders of the modules that have tests.
func modules() []string { return []string{".", "lab"} }

// unit runs the tests without build tags. With the race detector, campaigns (except at night), packages that link Kubernetes' or etcd's server and those
// that archtest calls pure run without it: the servers are other people's code and make up most of the build, and pure code has no goroutines.
// All groups run side by side, since the longest package of each would otherwise have the machine to itself. For a
// change comparisons are left out.
func (r runner) unit(ctx context.Context, race bool) error {
	last := r.last()
	if err := errors.Join(collectRarely(), r.clean()); err != nil {
		return err
	}
	if race && !linksC(ctx) {
		return errors.New("the race detector needs a C compiler that links: install one (Debian: apt-get install gcc libc6-dev), or run without RACE=1")
	}
	var groups []group
	for _, module := range modules() {
		all, err := r.list(ctx, module, "")
		if err != nil {
			return err
		}
		if cases.Change() {
			all = slices.DeleteFunc(all, func(p testPackage) bool { return slices.Contains(comparisons(), p.folder) })
		}
		slowestFirst(all, last)
		if race {
			groups = append(groups, split(module, all)...)
		} else {
			groups = append(groups, group{name: "plain", module: module, packages: all})
		}
	}
	return r.all(ctx, groups, len(groups))
}

// linksC reports whether there is a C compiler with a C library.
func linksC(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, "sh", "-c", `printf 'int main(void){return 0;}' | "$(go env CC)" -x c -o /dev/null -`)
	return cmd.Run() == nil
}

// e2e runs tests with the tag, all of them or those that a change can break, or those of the folders that are named.
func (r runner) e2e(ctx context.Context, changed, short bool, folders []string) error {
	last := r.last()
	if err := r.clean(); err != nil {
		return err
	}
	selected, err := r.tagged(ctx, folders)
	if err != nil {
		return err
	}
	if changed {
		if selected, err = r.affected(ctx, selected); err != nil {
			return err
		}
	}
	slowestFirst(selected, last)
	var groups []group
	for _, module := range modules() {
		g := group{name: "e2e", module: module, flags: []string{"-tags", "e2e", "-count=1"}}
		if short {
			g.flags = append(g.flags, "-short")
		}
		for _, p := range selected {
			if p.module == module {
				g.packages = append(g.packages, p)
			}
		}
		groups = append(groups, g)
	}
	atOnce := 1
	if short { // the lab's wait for BIRD for most of their time; the long ones count packets and measure
		atOnce = len(groups)
	}
	return r.all(ctx, groups, atOnce)
}

// all runs groups with control planes that they borrow, so many at a time.
func (r runner) all(ctx context.Context, groups []group, atOnce int) error {
	r, giveBack := r.lend()
	failures := make([]error, len(groups))
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i, g := range groups {
		running.Go(func() error {
			failures[i] = r.test(ctx, g)
			return nil
		})
	}
	_ = running.Wait()
	return errors.Join(errors.Join(failures...), giveBack(), r.report())
}

// group is what one call of go test runs.
type group struct {
	name     string
	module   string // its folder
	flags    []string
	race     bool
	beside   bool // of another group of the same module
	packages []testPackage
}

// split divides packages into those that run with the race detector and those that run without.
func split(module string, all []testPackage) []group {
	with := group{name: "race", module: module, flags: []string{"-race", "-shuffle=on"}, race: true}
	without := group{name: "plain", module: module, flags: []string{"-shuffle=on"}, beside: true}
	for _, p := range all {
		if p.pure || p.servers || p.campaign && !cases.Night() {
			without.packages = append(without.packages, p)
		} else {
			with.packages = append(with.packages, p)
		}
	}
	return []group{with, without}
}

// parallel is how many packages of a group run at a time; in a package it is four tests. Most unit tests wait for
// processes: of two processors three packages used two thirds, and five nine tenths. Many more than six do not help: each
// has an API server and an etcd that cost as long as they run, and on a slow machine that was half of all. Those of the lab
// run one at a time: networks of machines, whose packets are counted, need the processors, and test binaries that link
// Kubernetes' servers a gigabyte of memory each.
func (g group) parallel() int {
	processors := max(2, runtime.NumCPU())
	switch {
	case g.module == "lab":
		return 1
	case g.name == "plain" && g.beside:
		return processors / 2
	case g.name == "plain":
		return 3 * processors
	default:
		return processors
	}
}

// test runs one group.
func (r runner) test(ctx context.Context, g group) error {
	if len(g.packages) == 0 {
		return nil
	}
	name := r.kind
	if g.module != "." {
		name += "-" + g.module
	}
	if g.name != r.kind {
		name += "-" + g.name
	}
	fmt.Fprintf(r.out, "== %s: %d packages %s\n", name, len(g.packages), strings.Join(g.flags, " "))
	args := []string{"--format", "pkgname-and-test-fails", "--format-hide-empty-pkg", "--jsonfile", filepath.Join(r.folder(), name+".json")}
	again := os.Getenv("CI") == "true"
	if again {
		args = append(args, g.again()...)
	}
	args = append(args, "--")
	// make lint runs vet on all packages.
	args = append(args, "-p", strconv.Itoa(g.parallel()), "-parallel", "4", "-timeout", "60m", "-vet=off", "-exec", r.exec())
	if !again { // a clone that is used once links once
		args = append(args, "-toolexec", r.toolexec())
	}
	args = append(append(args, g.flags...), r.flags...)
	for _, p := range g.packages {
		if !again { // gotestsum has them already
			args = append(args, p.path)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.root, "bin", "gotestsum"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(r.root, g.module), r.out, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", cases.SeedVariable, r.seed))
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 30*time.Second
	if r.planes != "" {
		cmd.Env = append(cmd.Env, lending.Variable+"="+r.planes)
	}
	if !r.before.IsZero() {
		cmd.Env = append(cmd.Env, fmt.Sprintf("TESTEXEC_BEFORE=%d", r.before.Unix()))
	}
	if g.race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "GORACE=suppressions="+filepath.Join(r.root, "hack", "race-suppressions.txt"))
	}
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return errFailed
	}
	return err
}

// collectRarely makes what runs for unit tests alone collect garbage rarely: the compiler, the linker, test binaries and control planes. That takes an
// eighth off a link and a third off some tests. Programs of the product that a test starts do not get it ([testkit.Start]); those of e2e tests are
// measured, also where a lab starts them.
func collectRarely() error {
	if _, set := os.LookupEnv(testkit.GarbageVariable); set {
		return nil
	}
	return os.Setenv(testkit.GarbageVariable, "400")
}

func (r runner) folder() string { return filepath.Join(r.root, "bin", "test") }

func (r runner) costs() string { return filepath.Join(r.folder(), r.kind+".tsv") }

// exec is what go test runs test binaries with. It splits the words by itself.
func (r runner) exec() string {
	return strconv.Quote(filepath.Join(r.root, "bin", "testexec")) + " " + strconv.Quote(r.costs())
}

// toolexec is what go test runs the compiler and the linker with.
func (r runner) toolexec() string {
	bin := filepath.Join(r.root, "bin")
	return strconv.Quote(filepath.Join(bin, "linkcache")) + " " + strconv.Quote(filepath.Join(bin, "links"))
}

// clean removes what the last run recorded. Packages whose result go test has cached are not run and cost nothing.
func (r runner) clean() error {
	old, err := filepath.Glob(filepath.Join(r.folder(), r.kind+"-*.json"))
	for _, path := range append(old, filepath.Join(r.folder(), r.kind+".json"), r.costs()) {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return errors.Join(err, os.MkdirAll(r.folder(), 0o755))
}

// output runs a command in a folder of the checkout and returns what it prints.
func (r runner) output(ctx context.Context, folder, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(r.root, folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w: %s", program, strings.Join(args, " "), cmd.Dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
