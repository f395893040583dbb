// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writers are the packages that write Events, and how many calls of a recorder each has.
func writers() map[string]int {
	return map[string]int{
		"internal/nodesync/controller": 2, "internal/routereflector/controller": 3, "internal/etcdstorage/controller": 2,
		"internal/docloud/provider": 6, "internal/docloud/firewalls": 2,
	}
}

// TestEveryEventThatCodeWritesIsDocumented follows the reasons of all calls of recorders back to constants: what is written is in the reference of the
// program, and what is in the reference is written.
func TestEveryEventThatCodeWritesIsDocumented(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	of := map[string][]string{
		"calico-node-sync": {"internal/nodesync/controller"}, "calico-route-reflector-operator": {"internal/routereflector/controller"},
		"etcd-storage-operator":                 {"internal/etcdstorage/controller"},
		"digitalocean-cloud-controller-manager": {"internal/docloud/provider", "internal/docloud/firewalls"},
	}
	documented := map[string]map[string]bool{}
	for _, s := range eventSources() {
		all, err := eventsOf(root, eventSource{program: s.program, on: s.on, groups: s.groups})
		if err != nil {
			t.Fatal(err)
		}
		if documented[s.program] == nil {
			documented[s.program] = map[string]bool{}
		}
		for _, e := range all {
			documented[s.program][e.reason] = true
		}
	}
	for program, folders := range of {
		f := newFlow(t, folders...)
		for _, folder := range folders {
			if calls := f.recorded(folder); calls != writers()[folder] {
				t.Errorf("%s has %d calls of recorders, want %d", folder, calls, writers()[folder])
			}
		}
		delete(f.found, "") // for no Event
		if diff := cmp.Diff(slices.Sorted(maps.Keys(documented[program])), slices.Sorted(maps.Keys(f.found))); diff != "" {
			t.Errorf("%s: - in the reference, + written by the code:\n%s", program, diff)
		}
	}
	if len(of) != len(documented) {
		t.Errorf("%d programs write Events, %d are documented", len(of), len(documented))
	}
}

// TestNobodyElseWritesEvents: a package that begins to must be followed above.
func TestNobodyElseWritesEvents(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	eachFile(t, func(folder string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"EventRecorder", "EventRecorderLogger"}, s.Sel.Name) {
				found["internal/"+folder] = true
			}
			return true
		})
	})
	delete(found, "internal/docloud/app") // it hands the framework's on to Kubernetes' leader election
	if diff := cmp.Diff(slices.Sorted(maps.Keys(writers())), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("- followed, + with a recorder:\n%s", diff)
	}
}

// TestEveryReasonOfConditionsIsDocumented follows the reasons of all conditions that the code makes back to constants, as for Events.
func TestEveryReasonOfConditionsIsDocumented(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	folders := map[string][]string{
		"EtcdStorage":            {"internal/etcdstorage/controller"},
		"RouteReflectorTopology": {"internal/routereflector/controller"},
		"Token":                  {"internal/docloud/instance"},
	}
	summary := map[string]bool{"Ready": true, "Pending": true} // package conditions gives them by itself
	for _, k := range kinds() {
		documented := map[string]bool{}
		all, err := conditionsOf(root, k)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			for _, r := range c.reasons {
				documented[r.reason] = true
			}
		}
		f := newFlow(t, folders[k.name]...)
		for _, folder := range folders[k.name] {
			if f.concluded(folder) == 0 {
				t.Errorf("%s makes no condition", folder)
			}
		}
		delete(f.found, "")
		for reason := range summary {
			if documented[reason] {
				f.found[reason] = true
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(f.found))); diff != "" {
			t.Errorf("%s: - in the reference, + given by the code:\n%s", k.name, diff)
		}
	}
}
