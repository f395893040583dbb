// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command walks counts how far a reader walks who follows a journey through the code, such as from a deleted Node to a clean datastore. It counts in the
// call graph of the code alone (golang.org/x/tools/go/callgraph, VTA), so that anybody who counts again gets the same:
//
//	graph   the functions and methods of this module without its tests. A function leads to what it may call, and to what it names without calling it: that
//	        is handed on, to a queue or a watch, and called later. A call of an interface leads to the methods that values reach it with. A function literal
//	        is part of the function that contains it; a method promoted by embedding leads to the method that was declared.
//	walk    from the journey's entrance into each function when it is first called, in the order of the source, and never behind the journey's exits: what
//	        reads, decides and writes there. What all components share (internal/platform, api) is known to a reader, as the standard library is, and is
//	        not entered; nor are simulators and test kits, which no program of the product links.
//	stop    a function of the walk that leads to an exit, or is one.
//	room    a file with a stop.
//	turn    a stop in a room that the walk had left before.
//	all     the functions of the whole walk, whether they lead to an exit or not, but for those that call no other: these are read where they are called.
//	methods the largest method set of a struct in the packages of the whole walk, methods promoted by embedding included.
//
// Usage: go run ./hack/walks   (by make walks) prints the figures and fails if one is above what walks.txt allows; -write lowers walks.txt to the
// figures of today, and -show NAME prints the stops of a journey.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

func main() {
	write := flag.Bool("write", false, "write lower figures into hack/walks/walks.txt")
	show := flag.String("show", "", "print the stops of this journey")
	flag.Parse()
	if err := run(".", *write, *show, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "walks:", err)
		os.Exit(1)
	}
}

// run counts all journeys of the module in a folder, and compares with what is allowed.
func run(root string, write bool, show string, out io.Writer) error {
	g, err := load(root, "./internal/...", "./cmd/...", "./api/...")
	if err != nil {
		return err
	}
	path := filepath.Join(root, "hack", "walks", "walks.txt")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	allowed, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	counted := map[string]figures{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "journey\t"+strings.Join(names(), "\t")+"\tof\twhat happens")
	for _, j := range journeys() {
		reached, err := g.reached(j)
		if err != nil {
			return err
		}
		f, widest := g.count(j, reached)
		counted[j.name] = f
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", j.name, f, widest, j.about)
		if j.name == show {
			for i, s := range stops(j, reached) {
				fmt.Fprintf(out, "%4d  %s  %s\n", i+1, s.file, s.name)
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if write {
		return os.WriteFile(path, []byte(format(lower(counted, allowed))), 0o644)
	}
	return errors.Join(compare(counted, allowed)...)
}

const head = "# What make walks allows: these figures may only fall (make walks says what each is; go run ./hack/walks -write lowers them).\n"

// columns are the figures of a line of walks.txt, in its order.
func (f *figures) columns() []*int { return []*int{&f.stops, &f.rooms, &f.turns, &f.all, &f.methods} }

// names are what the columns are called.
func names() []string { return []string{"stops", "rooms", "turns", "all", "methods"} }

// String is the columns, with tabs between them.
func (f figures) String() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d", f.stops, f.rooms, f.turns, f.all, f.methods)
}

// parse reads walks.txt.
func parse(text string) (map[string]figures, error) {
	out := map[string]figures{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var f figures
		if _, err := fmt.Sscan(line, &name, &f.stops, &f.rooms, &f.turns, &f.all, &f.methods); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		out[name] = f
	}
	return out, nil
}

// format is what parse reads.
func format(all map[string]figures) string {
	var out strings.Builder
	out.WriteString(head)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "# journey\t"+strings.Join(names(), "\t"))
	for _, j := range journeys() {
		fmt.Fprintf(table, "%s\t%s\n", j.name, all[j.name])
	}
	_ = table.Flush() // a Builder never fails
	return out.String()
}

// compare names each figure that is above what is allowed, and each journey that is in one of the two alone.
func compare(counted, allowed map[string]figures) []error {
	var problems []error
	for _, j := range journeys() {
		have, want := counted[j.name], allowed[j.name]
		if _, known := allowed[j.name]; !known {
			problems = append(problems, fmt.Errorf("%s is not in walks.txt: go run ./hack/walks -write adds it", j.name))
			continue
		}
		for i, name := range names() {
			if most, n := *want.columns()[i], *have.columns()[i]; n > most {
				problems = append(problems, fmt.Errorf("%s has %d %s, %d more than the %d that it had: go run ./hack/walks -show %s prints the walk",
					j.name, n, name, n-most, most, j.name))
			}
		}
	}
	return problems
}

// lower returns the smaller of each two figures.
func lower(counted, allowed map[string]figures) map[string]figures {
	out := map[string]figures{}
	for name, f := range counted {
		if before, known := allowed[name]; known {
			for i, n := range f.columns() {
				*n = min(*n, *before.columns()[i])
			}
		}
		out[name] = f
	}
	return out
}
