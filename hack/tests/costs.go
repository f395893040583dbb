// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cost is what the tests of one package took, in seconds.
type cost struct {
	folder    string
	wall, cpu float64
	late      bool // it did not run
}

// last returns the wall seconds of the packages that the last run of this kind recorded, by folder.
func (r runner) last() map[string]float64 {
	out := map[string]float64{}
	content, err := os.ReadFile(r.costs())
	if err != nil {
		return out // there was none
	}
	all, err := parseCosts(r.root, string(content))
	if err != nil {
		return out // an order alone: a file that cannot be read does no harm
	}
	for _, c := range all {
		out[c.folder] = c.wall
	}
	return out
}

// slowestFirst puts the packages that took longest before the others, so that none of them runs alone at the end. Of those that never ran, what starts
// servers comes first, by the number of its test files.
func slowestFirst(all []testPackage, last map[string]float64) {
	slices.SortStableFunc(all, func(a, b testPackage) int {
		return cmp.Or(cmp.Compare(last[b.folder], last[a.folder]), cmp.Compare(b.likely(), a.likely()))
	})
}

// likely grows with the time that a package probably takes.
func (p testPackage) likely() int {
	if slices.Contains(p.deps, "internal/testkit") {
		return len(p.files)
	}
	return 0
}

// appendCost adds a line to the file of costs, as testexec does.
func (r runner) appendCost(folder string, wall, cpu time.Duration) error {
	f, err := os.OpenFile(r.costs(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%.2f\t%.2f\n", folder, wall.Seconds(), cpu.Seconds())
	return errors.Join(err, f.Close())
}

// report sorts the file of costs and prints the ten packages that took the most CPU seconds.
func (r runner) report() error {
	content, err := os.ReadFile(r.costs())
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(r.out, "No package ran: none was selected, or go test has the results in its cache.")
		return nil
	}
	if err != nil {
		return err
	}
	all, err := parseCosts(r.root, string(content))
	if err != nil {
		return err
	}
	all = r.reportLate(all)
	var b strings.Builder
	total := cost{}
	fmt.Fprintf(r.out, "\nThe most expensive of %d packages that ran (all are in bin/test/%s.tsv):\n%8s %8s\n", len(all), r.kind, "CPU s", "wall s")
	for i, c := range all {
		fmt.Fprintf(&b, "%s\t%.2f\t%.2f\n", c.folder, c.wall, c.cpu)
		total.cpu += c.cpu
		if i < 10 {
			fmt.Fprintf(r.out, "%8.1f %8.1f  %s\n", c.cpu, c.wall, c.folder)
		}
	}
	fmt.Fprintf(r.out, "%8.1f %8s  all together\n", total.cpu, "")
	return os.WriteFile(r.costs(), []byte(b.String()), 0o600)
}

// reportLate names the packages that did not run because the time was over, and returns the others.
func (r runner) reportLate(all []cost) []cost {
	var folders []string
	for _, c := range all {
		if c.late {
			folders = append(folders, c.folder)
		}
	}
	if len(folders) > 0 {
		fmt.Fprintf(r.out, "\nNOT RUN, since the time of -within was over: %s. They run in make nightly, or by themselves: make %s E2E_FLAGS='FOLDER'\n",
			strings.Join(folders, " "), r.kind)
	}
	return slices.DeleteFunc(all, func(c cost) bool { return c.late })
}

// parseCosts reads the lines that testexec or report write, by falling CPU seconds, with folders relative to root.
func parseCosts(root, content string) ([]cost, error) {
	var all []cost
	for line := range strings.Lines(content) {
		var c cost
		folder, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if c.late = rest == "-\t-"; c.late {
			rest = "0\t0"
		}
		if _, err := fmt.Sscanf(rest, "%f\t%f", &c.wall, &c.cpu); err != nil {
			return nil, fmt.Errorf("%q is not folder, wall and CPU seconds: %w", line, err)
		}
		var err error
		if c.folder = folder; filepath.IsAbs(folder) {
			if c.folder, err = filepath.Rel(root, folder); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b cost) int { return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(a.folder, b.folder)) })
	return all, nil
}
