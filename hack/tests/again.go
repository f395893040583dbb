// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// race stands among the results of a test in which the race detector found something, which no second run makes good.
const race = "race"

// mostAgain is how many failures of one group may run again: more are not an accident.
const mostAgain = 10

// again are gotestsum's flags by which what failed runs again, after all others and so on a quieter machine. A test that fails twice fails; one that
// passes then is named by count. A failure that rapid has found stays one, since its file is replayed.
func (g group) again() []string {
	paths := make([]string, len(g.packages))
	for i, p := range g.packages {
		paths[i] = p.path
	}
	return []string{"--rerun-fails=1", fmt.Sprintf("--rerun-fails-max-failures=%d", mostAgain), "--packages=" + strings.Join(paths, " ")}
}

// count prints how many tests of the last run passed and failed in the end, as "PASSED FAILED", and on the lines after it those that passed only when
// they ran again.
func (r runner) count() error {
	streams, err := filepath.Glob(filepath.Join(r.folder(), r.kind+"*.json"))
	if err != nil {
		return err
	}
	slices.Sort(streams)
	passed, failed := 0, 0
	var second []string
	for _, path := range streams {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for test, actions := range results(content) {
			switch last := actions[len(actions)-1]; {
			case last == "fail", slices.Contains(actions, race):
				failed++
			case last == "pass" && slices.Contains(actions, "fail"):
				second = append(second, test)
				passed++
			case last == "pass":
				passed++
			}
		}
	}
	slices.Sort(second)
	fmt.Fprintln(r.out, passed, failed)
	for _, test := range second {
		fmt.Fprintln(r.out, test)
	}
	return nil
}

// results returns how each test of an event stream of go test ended, by package and name, in the order of its runs: pass, fail or skip, and
// race before the result of a run in which the race detector found something. Lines that are not events are what a program printed.
func results(stream []byte) map[string][]string {
	out := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(stream))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" {
			continue
		}
		name := event.Package + " " + event.Test
		switch {
		case strings.Contains(event.Output, "WARNING: DATA RACE"):
			out[name] = append(out[name], race)
		case slices.Contains([]string{"pass", "fail", "skip"}, event.Action):
			out[name] = append(out[name], event.Action)
		}
	}
	return out
}
