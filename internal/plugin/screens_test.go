// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/waiting"
)

// view prints what a command shows of fixed inputs.
type view func(t *testing.T, to io.Writer)

// screens are what people see of each command, when all is well and when it is not.
type screens struct{ health, trouble view }

// allScreens are those of every command, by its words.
func allScreens() map[string]screens {
	return map[string]screens{
		"status":               {screenStatus(wellWorld), screenStatus(illWorld)},
		"agreement":            {screenAgreement(false), screenAgreement(true)},
		"topology":             {screenTopology(false), screenTopology(true)},
		"explain-node":         {screenExplain(explainedNode(false)), screenExplain(explainedNode(true))},
		"explain-service":      {screenExplain(explainedService(false)), screenExplain(explainedService(true))},
		"explain-etcdstorage":  {screenExplain(explainedStorage(false)), screenExplain(explainedStorage(true))},
		"plan-nodes":           {screenPlanNodes(0), screenPlanNodes(9)},
		"plan-routereflectors": {screenPlanReflectors(false), screenPlanReflectors(true)},
		"plan-loadbalancer":    {screenOffline("plan", "loadbalancer", "-f", "service.yaml", "--nodes", "nodes.yaml", "--region", "nyc1"), screenOffline("plan", "loadbalancer", "-f", "bad-service.yaml", "--nodes", "nodes.yaml", "--region", "nyc1")},
		"plan-firewall":        {screenOffline("plan", "firewall", "-f", "service.yaml", "--name", "k8s-public", "--tag", "k8s:worker"), screenOffline("plan", "firewall", "-f", "bad-service.yaml", "--name", "k8s-public", "--tag", "k8s:worker")},
		"confirm":              {screenConfirm(waiting.List{}), screenConfirm(waitingList())},
		"estate":               {screenEstate(false), screenEstate(true)},
		"estate-remove":        {screenEstateRemove(false), screenEstateRemove(true)},
		"doctor":               {screenDoctor(wellFindings()), screenDoctor(illFindings())},
		"migrate-etcdstorage":  {screenOffline("migrate", "etcdstorage", "-f", "old.yaml"), screenOffline("migrate", "etcdstorage", "-f", "old-strange.yaml")},
		"etcd-retained":        {screenRetained(), screenRetained([]string{"team-a", "/team-a/", "1200"}, []string{strings.Repeat("a-long-name-", 5), "/" + strings.Repeat("a-long-name-", 5) + "/", "3"})},
		"etcd-capacity":        {screenCapacity(true, 0), screenCapacity(false, 3)},
		"etcd-purge":           {screenPurge(0), screenPurge(1200)},
		"etcd-defragment":      {screenDefragment(false), screenDefragment(true)},
		"version":              {screenVersion(false), screenVersion(true)},
	}
}

// noScreens are commands without a screen of their own, and why.
func noScreens() map[string]string {
	return map[string]string{
		"ui": "it prints an address, and shows a page", "confirm-nodes": "it prints one sentence", "confirm-machines": "it prints one sentence", "confirm-topology": "it prints one sentence",
		"doctor-controllers": "it prints what doctor prints", "doctor-rbac": "it prints what doctor prints", "doctor-etcdstorages": "it prints what doctor prints", "doctor-volumes": "it prints what doctor prints",
		"doctor-estate": "it prints what doctor prints", "doctor-certificates": "it prints what doctor prints", "doctor-nodesync": "it prints what doctor prints", "doctor-ipam": "it prints what doctor prints", "doctor-routereflectors": "it prints what doctor prints",
		"etcd-export": "it prints data", "etcd-import": "it prints one sentence", "volumes": "its screens are in internal/volumes/testdata",
		"report":         "it prints one sentence, and what it left out",
		"bird-templates": "it prints a ConfigMap, and a table that TestBIRDTemplatesRollOut has", "node-forget": "it prints what the controller answers, whose tests have it", "restore": "it prints what the controller answers, whose tests have it",
	}
}

// Every command's output when all is well and in trouble, at two widths of a terminal. No line is wider than the terminal, but for an error, which is one line
// wherever it is printed.
func TestScreens(t *testing.T) {
	t.Parallel()
	for name, s := range allScreens() {
		for state, show := range map[string]view{"health": s.health, "trouble": s.trouble} {
			for _, columns := range []int{80, 120} {
				file := screenFile(name, state, columns)
				t.Run(file, func(t *testing.T) {
					t.Parallel()
					var out bytes.Buffer
					show(t, &screen.Sized{Writer: &out, Columns: columns})
					compareScreen(t, file, out.String())
					for line := range strings.Lines(out.String()) {
						line = strings.TrimSuffix(line, "\n")
						if utf8.RuneCountInString(line) > columns && !strings.HasPrefix(line, "error: ") {
							t.Errorf("a line of %d columns at %d: %s", utf8.RuneCountInString(line), columns, line)
						}
					}
				})
			}
		}
	}
}

func screenFile(name, state string, columns int) string {
	return fmt.Sprintf("%s-%s-%d.txt", name, state, columns)
}

func compareScreen(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", "screens", file)
	if flag.Lookup("update").Value.String() == "true" { // it is the flag of this package's other tests
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
	}
}

// leafNames are the commands that do something, their words joined by dashes.
func leafNames(c *cobra.Command, name string) []string {
	if c.Name() == "completion" || c.Name() == "help" {
		return nil
	}
	var out []string
	for _, sub := range c.Commands() {
		out = append(out, leafNames(sub, strings.TrimPrefix(name+"-"+sub.Name(), "-"))...)
	}
	if c.Runnable() && c.HasParent() {
		out = append(out, name)
	}
	return out
}

// shows reports whether a screen is a command's: it has the command's name, or that and the kind of its argument.
func shows(screen, leaf string) bool { return screen == leaf || strings.HasPrefix(screen, leaf+"-") }

// No command is without its screens, nor a screen without its command.
func TestEveryCommandHasScreens(t *testing.T) {
	t.Parallel()
	root := NewCommand(Builtin()...)
	command.Prepare(root)
	leaves, reasons := leafNames(root, ""), noScreens()
	screens := slices.Sorted(maps.Keys(allScreens()))
	for _, leaf := range leaves {
		has := slices.ContainsFunc(screens, func(name string) bool { return name == leaf || shows(name, leaf) && !slices.Contains(leaves, name) })
		if !has && reasons[leaf] == "" && !groupOnly(root, leaf) {
			t.Errorf("%q has no screens: give it what it prints of fixed inputs, in health and in trouble (allScreens), or say why it has none (noScreens)", leaf)
		}
	}
	for _, name := range screens {
		if !slices.ContainsFunc(leaves, func(leaf string) bool { return shows(name, leaf) }) {
			t.Errorf("there is no command of the screens %q", name)
		}
	}
	for name := range reasons {
		if !slices.Contains(leaves, name) {
			t.Errorf("there is no command %q", name)
		}
	}
}

// No golden file is left of a screen that is gone.
func TestEveryScreenFileIsShown(t *testing.T) {
	t.Parallel()
	var files []string
	for name := range allScreens() {
		for _, state := range []string{"health", "trouble"} {
			files = append(files, screenFile(name, state, 80), screenFile(name, state, 120))
		}
	}
	entries, err := os.ReadDir(filepath.Join("testdata", "screens"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(files, e.Name()) {
			t.Errorf("testdata/screens/%s belongs to no command", e.Name())
		}
	}
}

// groupOnly reports whether a command is run only to say which subcommands it has.
func groupOnly(root *cobra.Command, leaf string) bool {
	c, _, err := root.Find(strings.Split(leaf, "-"))
	return err == nil && c.HasSubCommands() && slices.Contains([]string{"plan", "migrate", "etcd", "node"}, leaf)
}
