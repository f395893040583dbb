// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func options(change func(*blueprint.Options)) blueprint.Options {
	o := blueprint.Options{
		Dir: "/lab", Datastore: blueprint.DatastoreEtcd, NodeCount: 3, ZoneCount: 1, PodsPerNode: 2,
		NodeMonitorGracePeriod: 20 * time.Second, CalicoNodeSyncGrace: 10 * time.Second,
		CalicoNodeSyncProgram: "/bin/calico-node-sync", CalicoNodeSyncManifests: "/config/calico-node-sync",
	}
	change(&o)
	return o
}

func cases() map[string]blueprint.Options {
	return map[string]blueprint.Options{
		"etcdv3":     options(func(*blueprint.Options) {}),
		"kubernetes": options(func(o *blueprint.Options) { o.Datastore = blueprint.DatastoreKubernetes }),
		"none":       options(func(o *blueprint.Options) { o.Datastore = blueprint.DatastoreNone }),
		"demo":       options(func(o *blueprint.Options) { o.With = []string{blueprint.CalicoNodeSync} }),
		"small": options(func(o *blueprint.Options) {
			o.Components, o.APIServerPort = []string{blueprint.APIServer, blueprint.Etcd}, 6443
		}),
		"etcd-only": options(func(o *blueprint.Options) { o.Components = []string{blueprint.Etcd} }),
	}
}

func design(t *testing.T, o blueprint.Options) blueprint.Blueprint {
	t.Helper()
	resolved, err := blueprint.Resolve(o)
	if err != nil {
		t.Fatal(err)
	}
	made, err := blueprint.Make(resolved, blueprint.PlaceholderPorts(resolved))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := design(t, o).YAML()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run `go test ./internal/blueprint -update` if this is meant:\n%s", diff)
			}
		})
	}
}

// What must hold for every lab, whatever its options.
func TestLaws(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		made := design(t, o)
		if again := design(t, o); !cmp.Equal(made, again) {
			t.Errorf("%s: the same options give another blueprint", name)
		}
		var before []string
		for _, p := range made.Processes {
			for _, dependency := range p.DependsOn {
				if !slices.Contains(before, dependency) {
					t.Errorf("%s: %s depends on %s, which does not start before it", name, p.Name, dependency)
				}
			}
			before = append(before, p.Name)
			for _, word := range slices.Concat(p.Args, p.Env) {
				if strings.Contains(word, "0.0.0.0") || strings.Contains(word, "//:") || strings.Contains(word, "[::]") {
					t.Errorf("%s: %s listens or talks beyond loopback: %s", name, p.Name, word)
				}
				checkPath(t, name, p.Name, word)
			}
			if p.Ready.URL != "" && p.Ready.CAFile == "" {
				t.Errorf("%s: %s could be impersonated: its readiness is not proved by a certificate", name, p.Name)
			}
		}
		for _, certificate := range made.PKI.Certificates {
			if !slices.Contains(made.PKI.Authorities, certificate.Authority) {
				t.Errorf("%s: certificate %s has no authority", name, certificate.Name)
			}
		}
	}
}

// checkPath makes sure that every path is below the lab's folder, apart from programs and manifests.
func checkPath(t *testing.T, name, process, word string) {
	t.Helper()
	_, value, _ := strings.Cut(word, "=")
	if filepath.IsAbs(value) && !strings.HasPrefix(value, "/lab/") && !strings.HasPrefix(value, "/config/") {
		t.Errorf("%s: %s uses a path outside of the lab's folder: %s", name, process, word)
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*blueprint.Options)
		want   string
	}{
		"negative nodes":     {func(o *blueprint.Options) { o.NodeCount = -1 }, "--nodes -1 is negative; use 0 or more"},
		"too many nodes":     {func(o *blueprint.Options) { o.NodeCount = 1e6 }, "use at most"},
		"no zones":           {func(o *blueprint.Options) { o.ZoneCount = 0 }, "use 1 to 26"},
		"negative pods":      {func(o *blueprint.Options) { o.PodsPerNode = -1 }, "use 0 to 100"},
		"no grace":           {func(o *blueprint.Options) { o.NodeMonitorGracePeriod = 0 }, "use 5s or more"},
		"no such port":       {func(o *blueprint.Options) { o.APIServerPort = 70000 }, "use 1 to 65535"},
		"relative folder":    {func(o *blueprint.Options) { o.Dir = "lab" }, "not absolute"},
		"unknown datastore":  {func(o *blueprint.Options) { o.Datastore = "etcdv2" }, "use etcdv3, kubernetes or none"},
		"unknown component":  {func(o *blueprint.Options) { o.Components = []string{"kube-proxy"} }, "use a subset of etcd,"},
		"component twice":    {func(o *blueprint.Options) { o.Components = []string{"etcd", "etcd"} }, "name it once"},
		"API without etcd":   {func(o *blueprint.Options) { o.Components = []string{"kube-apiserver"} }, "add etcd to --components"},
		"nodes without etcd": {func(o *blueprint.Options) { o.Components = []string{"etcd", "kube-apiserver", "nodes"} }, "add calico-etcd to --components or choose"},
		"unneeded etcd": {func(o *blueprint.Options) {
			o.Datastore, o.Components = blueprint.DatastoreNone, []string{"calico-etcd"}
		}, "leave calico-etcd out"},
		"unknown companion": {func(o *blueprint.Options) { o.With = []string{"x"} }, "the only choice so far"},
		"companion without Calico": {func(o *blueprint.Options) {
			o.Datastore, o.With = blueprint.DatastoreNone, []string{blueprint.CalicoNodeSync}
		}, "use --calico-datastore etcdv3 or kubernetes"},
		"companion without API": {func(o *blueprint.Options) {
			o.Components, o.With = []string{"etcd", "calico-etcd"}, []string{blueprint.CalicoNodeSync}
		}, "cannot run without kube-apiserver"},
	} {
		_, err := blueprint.Resolve(options(c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is more than one sentence: %v", name, err)
		}
	}
}

func TestMakeRefusesToGuessPorts(t *testing.T) {
	t.Parallel()
	resolved, err := blueprint.Resolve(options(func(*blueprint.Options) {}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blueprint.Make(resolved, blueprint.Ports{}); err == nil {
		t.Error("a lab without ports was described")
	}
}
