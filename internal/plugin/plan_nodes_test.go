// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// plannedNodes is the document of calico-node-sync's plan.
type plannedNodes struct {
	Steps []struct {
		Kind string `json:"kind"`
	} `json:"steps"`
	Refusals []nodesync.Refusal `json:"refusals"`
}

func TestPlanNodesRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a grace period below 0": {[]string{"--grace-period=-1s"}, "error: the grace period is -1s: it must not be negative; 5m is the default"},
		"no grace period":        {[]string{"--grace-period=soon"}, `invalid value "soon" for --grace-period`},
		"no kubeconfig":          {[]string{"--kubeconfig", "/no/such/file"}, "reading the kubeconfig, pass --kubeconfig or --context to choose another"},
		"an unknown format":      {[]string{"-o", "wide"}, "use one of text, json, yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"plan", "nodes"}, test.args...))
			if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// planMachines plans the clean-up after the machine old, whose addresses Calico still holds, in the kubernetes datastore; then that of a machine of etcd's.
func planMachines(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	ask := func(args ...string) []string {
		return append([]string{"plan", "nodes", "--kubeconfig", kubeconfig}, args...)
	}
	now := time.Now().UTC()
	remember := func(saved time.Time) {
		t.Helper()
		memory := fmt.Sprintf(`{"savedAt":"%s","absences":[{"calicoNode":"old","kubernetesNode":"old","since":"%s","witnessed":true}]}`, saved.Format(time.RFC3339), now.Add(-time.Hour).Format(time.RFC3339))
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"memory.json": memory}})
		if err != nil {
			t.Fatal(err)
		}
		mustKubectl(t, cluster, "", "patch", "-n", "kube-system", "configmap", "calico-node-sync-state", "--type=merge", "-p", string(patch))
	}
	remember(now.Add(-24 * time.Hour))
	expect(t, 2, "", ask("old"), "note: no state of a running controller (none, or an old one): absences start now\n")
	remember(now)

	const gone = "old: Kubernetes Node old is gone: deletion watched, absent for 1h0m"
	for _, args := range [][]string{nil, {"old"}, {"c1", "old"}} {
		code, out, errs := run(t, ask(args...))
		if code != 2 || !strings.HasPrefix(out, gone) || !strings.Contains(out, "\n  1. ") || errs != "" {
			t.Errorf("%q: exit code %d, %s, %s", args, code, out, errs)
		}
	}
	for _, machine := range []string{"c1", "no-calico"} {
		if code, out, errs := run(t, ask(machine)); code != 0 || out != "nothing to do\n" || errs != "" {
			t.Errorf("%s: exit code %d, %s, %s", machine, code, out, errs)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		var got plannedNodes
		code, out, _ := run(t, ask("-o", format))
		if err := yaml.UnmarshalStrict([]byte(out), &struct {
			Steps, Refusals any
		}{}); err != nil || yaml.Unmarshal([]byte(out), &got) != nil || code != 2 || len(got.Steps) == 0 || got.Steps[len(got.Steps)-1].Kind != "RemoveAffinity" {
			t.Errorf("%s: exit code %d, %v: %s", format, code, err, out)
		}
	}
	var held plannedNodes
	if code, out, _ := run(t, ask("old", "--grace-period=2h", "-o", "json")); json.Unmarshal([]byte(out), &held) != nil || code != 2 || len(held.Steps) > 0 ||
		len(held.Refusals) != 1 || held.Refusals[0].Gate != nodesync.GateGrace || held.Refusals[0].Of.Host != "old" {
		t.Errorf("held back: exit code %d, %s", code, out)
	}
	expect(t, 1, "", ask("nope"), `error: neither Kubernetes nor Calico knows a machine "nope"`)
	if _, out, _ := run(t, append([]string{"__complete"}, ask("c1", "")...)); !strings.HasPrefix(out, "c2\nd1\n") {
		t.Errorf("completes %q", out)
	}
	// The same doctor by itself and as part of all.
	for _, words := range [][]string{{"doctor", "nodesync"}, {"doctor"}} {
		if _, out, errs := run(t, append(words, "--kubeconfig", kubeconfig)); !strings.Contains(out, "ok       datastore: Calico's datastore is the Kubernetes API, which responds\n") || errs != "" {
			t.Errorf("%q: %s, %s", words, out, errs)
		}
	}
	planMachinesInEtcd(t, ask)
}

// planMachinesInEtcd: a machine may have another name there, and the store stays as it is.
func planMachinesInEtcd(t *testing.T, ask func(...string) []string) {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	const prefix = "/calico/resources/v3/projectcalico.org/"
	for key, value := range map[string]string{
		"nodes/c1.example":            `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"c1.example"},"spec":{"orchRefs":[{"nodeName":"c1","orchestrator":"k8s"}]}}`,
		"nodes/c2":                    `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"c2"},"spec":{"orchRefs":[{"nodeName":"c2","orchestrator":"k8s"}]}}`,
		"nodes/old.example":           `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"old.example"},"spec":{"orchRefs":[{"nodeName":"old","orchestrator":"k8s"}]}}`,
		"clusterinformations/default": `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`,
	} {
		if _, err := etcd.Client.Put(t.Context(), prefix+key, value); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint)
	before := etcd.Revision(t)
	for _, machine := range []string{"old", "old.example"} {
		expect(t, 2, "", ask(machine), "old.example: ")
	}
	expect(t, 0, "", ask("c1"), "nothing to do\n")
	if after := etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
	planRepairs(t, etcd, ask)
	foreign := `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","annotations":{"` + nodesync.BindingAnnotation + `":"another"}},"spec":{"datastoreReady":true}}`
	if _, err := etcd.Client.Put(t.Context(), prefix+"clusterinformations/default", foreign); err != nil {
		t.Fatal(err)
	}
	expect(t, 2, "", ask(), "left alone: everything: ", "(cluster-binding)\n")
	expect(t, 2, "", ask("c1"), "left alone: everything: ", "(cluster-binding)\n")
	clearEnvironment(t)
}

// planRepairs: an affinity to a block that does not exist is found, and the repair is planned, without a write.
func planRepairs(t *testing.T, etcd *testkit.Etcd, ask func(...string) []string) {
	t.Helper()
	const key = "/calico/ipam/v2/host/c2/ipv4/block/10.0.0.0-26"
	if _, err := etcd.Client.Put(t.Context(), key, `{"state":"confirmed"}`); err != nil {
		t.Fatal(err)
	}
	before := etcd.Revision(t)
	const detail = "host c2 has an affinity (confirmed) to block 10.0.0.0/26, which does not exist\n"
	doctor := slices.Concat([]string{"doctor", "ipam", "--wait=1ms"}, ask()[2:])
	expect(t, 2, "", doctor, "warning  affinity-without-block: 1 × affinity without a block: "+detail)
	expect(t, 2, "", ask("--repair", "--grace-period=1ms"), "affinity-without-block: delete the affinity\n  "+detail+"1 repair, 0 left alone\n")
	var plan struct {
		Repairs []struct{ Kind, What, Do string }
	}
	if _, out, errs := run(t, ask("--repair", "--grace-period=1ms", "-o", "json")); json.Unmarshal([]byte(out), &plan) != nil || len(plan.Repairs) != 1 || plan.Repairs[0].Kind != "affinity-without-block" {
		t.Errorf("as JSON: %s, %s", out, errs)
	}
	if after := etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
	if _, err := etcd.Client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	expect(t, 0, "", doctor, "ok       ipam: 0 addresses of 0 blocks agree with 0 handles")
	expect(t, 0, "", ask("--repair"), "0 repairs, 0 left alone\n")
}
