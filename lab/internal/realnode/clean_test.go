// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// The labs that run are known by the command line that the blueprint gives to the process of real machines, and by no other.
func TestRunningLabs(t *testing.T) {
	t.Parallel()
	o := blueprint.Options{Dir: "/a lab", Datastore: blueprint.DatastoreNone, NodeCount: 1, ZoneCount: 1, RealNodes: 1, Bin: "/bin", NodeMonitorGracePeriod: 20e9}
	resolved, err := blueprint.Resolve(o)
	if err != nil {
		t.Fatal(err)
	}
	made, err := blueprint.Make(resolved, blueprint.PlaceholderPorts(resolved))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := made.Process(blueprint.RealNodes)
	if !ok {
		t.Fatal("there is no process of real machines")
	}
	proc := t.TempDir()
	for pid, words := range map[string][]string{
		"1": append([]string{"/bin/lab"}, p.Args...),
		"2": {"/bin/lab", "nodes", "--lab-dir=/b"},
		"3": {"lab"},
		"x": {"/bin/lab", blueprint.RealNodes, "--lab-dir=/c"},
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(strings.Join(words, "\x00")+"\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := running(proc); err != nil || !slices.Equal(got, []string{"/a lab"}) {
		t.Errorf("labs in %q run, %v", got, err)
	}
}
