// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// suite is a set of packages whose tests stand on a real API server.
type suite struct {
	id, component, what string
	packages            []string
	run                 string
}

// suites are what is exercised, what is soon done first.
func suites() []suite {
	return []suite{
		{id: "kinds", component: "kinds", what: "defaults and every validation rule, CEL included, in both directions", packages: []string{"./test/crd"}},
		{id: "chart", component: "chart", what: "dry run of all objects of each value set; install and uninstall by Helm", packages: []string{"./test/charts"}, run: "Server|Release"},
		{
			id: "cloud-policy", component: "admission policies", what: "what ValidatingAdmissionPolicies accept and refuse, alongside the program's own judgment",
			packages: []string{"./internal/docloud/admission/policy"},
		},
		{
			id: "tenant", component: "etcd-storage-proxy", what: "two kube-apiservers of this version as tenants of one core, while a proxy is killed again and again",
			packages: []string{"./test/contract/etcdstorage/fidelity"}, run: "TestTwoAPIServersLiveOnOneCore",
		},
		{
			id: "driver", component: "digitalocean-csi-driver",
			what:     "a volume from its claim to its deletion, with the sidecars, rights and objects of the manifest",
			packages: []string{"./test/e2e/driver"},
		},
		{id: "plugin", component: "kubectl-mooring", what: "commands that read a cluster", packages: []string{"./internal/plugin"}},
		{
			id: "manifests", component: "manifests", what: "every object of `dist/`, `releases/` and the examples; the shipped rights, each used and none missing; admission policies",
			packages: []string{"./test/manifests"},
		},
		{
			id: "routereflector", component: "calico-route-reflector-operator", what: "enabling, replacing, hierarchies, taking over and the way back, deaths at any write; the whole program",
			packages: []string{"./internal/routereflector/controller", "./internal/routereflector/app"},
		},
		{
			id: "etcdstorage", component: "etcd-storage-operator", what: "tenants from creation to deletion, rotation, deaths at any write; the whole program",
			packages: []string{"./internal/etcdstorage/controller", "./internal/etcdstorage/operatorapp"},
		},
		{
			id: "nodesync", component: "calico-node-sync", what: "clean-ups on both datastores, deaths at any write, the whole program",
			packages: []string{"./internal/calico", "./internal/nodesync/controller", "./internal/nodesync/app"},
		},
		{
			id: "cloud", component: "digitalocean-cloud-controller-manager", what: "load balancers, firewall, tags and events; the whole program and its admission server",
			packages: []string{
				"./internal/docloud/machines", "./internal/docloud/provider/balancertest", "./internal/docloud/firewalls", "./internal/docloud/clustertag", "./internal/docloud/shutdowns", "./internal/docloud/app",
				"./internal/docloud/admissionapp",
			},
		},
	}
}

// selectSuites returns those with these IDs, or all.
func selectSuites(ids []string) ([]suite, error) {
	all := suites()
	var known []string
	for _, s := range all {
		known = append(known, s.id)
	}
	for _, id := range ids {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("there is no suite %q: there are %v", id, known)
		}
	}
	return slices.DeleteFunc(all, func(s suite) bool { return len(ids) > 0 && !slices.Contains(ids, s.id) }), nil
}

// Result is what was seen of one version.
type Result struct {
	Minor   string             `json:"minor"`
	Version string             `json:"version"`
	Commit  string             `json:"commit"`
	Date    string             `json:"date"`
	Suites  map[string]Outcome `json:"suites"`
}

// Outcome counts the tests of a suite that ran on the server, and names those that failed. It has a commit and a date
// if the suite was run alone, at another commit than its version's Result.
type Outcome struct {
	Passed  int      `json:"passed"`
	Failed  []string `json:"failed,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
	Commit  string   `json:"commit,omitempty"`
	Date    string   `json:"date,omitempty"`
}

// revision is the commit that was exercised, and the day.
type revision struct{ commit, date string }

// begin returns the Result that a run adds to: an empty one, or, if the run is not of all suites, that of the version's
// last run.
func begin(results []Result, s server, now revision, all bool) Result {
	last := slices.IndexFunc(results, func(r Result) bool { return r.Version == s.version })
	if all || last < 0 {
		return Result{
			Minor: s.minor, Version: s.version, Commit: now.commit, Date: now.date, Suites: map[string]Outcome{},
		}
	}
	return results[last]
}

// add puts in the outcome of a suite that has just run.
func (r Result) add(id string, outcome Outcome, now revision) {
	if now.commit != r.Commit {
		outcome.Commit, outcome.Date = now.commit, now.date
	}
	r.Suites[id] = outcome
}

// failures names the tests of these suites that failed.
func (r Result) failures(of []suite) []string {
	var out []string
	for _, s := range of {
		for _, test := range r.Suites[s.id].Failed {
			out = append(out, r.Minor+" "+test)
		}
	}
	return out
}

// marker begins the line that a test logs if it runs on the server that MOORING_KUBE_APISERVER names: OnAPIServer of internal/testkit, with
// which a test compares it. The version stands behind it.
const marker = "on the kube-apiserver that was named: "

// event is a line of `go test -json`.
type event struct{ Action, Package, Test, Output string }

// read counts the tests in a stream of events that say that they ran on this version, and any that failed, wherever they ran. Subtests
// belong to their test.
func read(stream []byte, version string) (Outcome, error) {
	on, ended := map[string]bool{}, map[string]string{}
	scanner := bufio.NewScanner(bytes.NewReader(stream))
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			return Outcome{}, fmt.Errorf("an event of go test: %w: %s", err, scanner.Text())
		}
		test, _, sub := strings.Cut(e.Test, "/")
		name := e.Package[strings.LastIndex(e.Package, "/")+1:] + "." + test
		switch {
		case test == "":
		case e.Action == "output" && strings.Contains(e.Output, marker+"v"+version+"\n"):
			on[name] = true
		case !sub && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			ended[name] = e.Action
		}
	}
	return count(on, ended), scanner.Err()
}

// count sorts tests by how they ended.
func count(on map[string]bool, ended map[string]string) Outcome {
	var out Outcome
	for name, how := range ended {
		switch {
		case how == "fail":
			out.Failed = append(out.Failed, name)
		case how == "skip" && on[name]:
			out.Skipped = append(out.Skipped, name)
		case how == "pass" && on[name]:
			out.Passed++
		}
	}
	slices.Sort(out.Failed)
	slices.Sort(out.Skipped)
	return out
}
