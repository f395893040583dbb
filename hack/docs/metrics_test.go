// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// allMetrics are those of every program.
func allMetrics(t *testing.T) []*metric {
	t.Helper()
	var out []*metric
	for _, p := range programs() {
		all := must.Get(metricsOf(filepath.Join("..", ".."), p)).Or(t)
		if len(all) < 5 {
			t.Errorf("%s has only %d metrics", p.name, len(all))
		}
		out = append(out, all...)
	}
	return out
}

// TestMetricsAreNamedByTheirType: the name tells a counter from a gauge, which the reference also relies on where a series is not there from
// the start.
func TestMetricsAreNamedByTheirType(t *testing.T) {
	t.Parallel()
	for _, m := range allMetrics(t) {
		if got := byName(m.name); m.kind != "histogram" && m.kind != got || m.kind == "histogram" && !strings.HasSuffix(m.name, "_seconds") {
			t.Errorf("%s is a %s", m.name, m.kind)
		}
		if !strings.HasPrefix(m.name, "mooring_") && !strings.HasPrefix(m.name, "firewall_") {
			t.Errorf("%s is not named as ours are, nor as the upstream project's", m.name)
		}
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: the help is not a sentence: %s", m.name, m.help)
		}
	}
}

// TestMetricsKnowTheirLabels: a type, labels and the values that are there from the start, or that a type of the code has.
func TestMetricsKnowTheirLabels(t *testing.T) {
	t.Parallel()
	want := map[string]metric{
		"mooring_digitalocean_snapshot_age_seconds": {kind: "gauge", labels: []label{{"kind", []string{"droplets", "gpu_droplets"}}}},
		"mooring_digitalocean_token_healthy": {kind: "gauge", labels: []label{
			{"reason", []string{"Accepted", "Refused", "AnotherAccount", "ScopeMissing", "NothingVisible"}},
		}},
		"mooring_routereflector_writes_total": {kind: "counter", labels: []label{{"kind", nil}, {"outcome", nil}}},
		"mooring_build_info":                  {kind: "gauge", labels: []label{{"commit", nil}, {"component", nil}, {"go_version", nil}, {"version", nil}}},
		"mooring_digitalocean_admission_requests_total": {kind: "counter", labels: []label{
			{"outcome", []string{"allowed", "refused", "unreadable", "warned"}},
		}},
		"mooring_routereflector_phase": {kind: "gauge", labels: []label{
			{"topology", nil}, {"phase", []string{"Pending", "Progressing", "Ready", "Degraded", "Frozen", "Refused"}},
		}},
		"mooring_etcdstorage_proxy_request_duration_seconds": {kind: "histogram", labels: []label{{"tenant", nil}, {"method", nil}}},
	}
	for _, m := range allMetrics(t) {
		w, ok := want[m.name]
		if !ok {
			continue
		}
		w.name, w.help = m.name, m.help
		if diff := cmp.Diff(w, *m, cmp.AllowUnexported(metric{}, label{})); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
		delete(want, m.name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", slices.Collect(maps.Keys(want)))
	}
}

// TestEveryPlaceThatMakesMetricsIsAsked: a metric that is made elsewhere is in no reference until RegisterMetrics of its program leads there, too.
func TestEveryPlaceThatMakesMetricsIsAsked(t *testing.T) {
	t.Parallel()
	asked := []string{
		"docloud/admissionapp.NewMetrics", "docloud/balancers.NewMetrics", "docloud/cached.RegisterAge", "docloud/clustertag.NewMetrics", "docloud/csi.NewMetrics", "docloud/doapi.NewMetrics", "docloud/firewalls.NewMetrics", "docloud/leftovers.NewMetrics",
		"docloud/machines.newReporter", "docloud/machines.newTokenCollector", "docloud/shutdowns.NewMetrics",
		"etcdstorage/controller.NewMetrics", "etcdstorage/controller.registerCore", "etcdstorage/proxy.counters", "etcdstorage/proxy.exportBudgets", "etcdstorage/proxy.exportWatches", "etcdstorage/proxy.gauges", "etcdstorage/proxy.newMetrics",
		"etcdstorage/proxyapp.newReadiness", "etcdstorage/proxyapp.newReporter", "nodesync/controller.NewMetrics",
		"platform/buildinfo.Collector", "platform/certreload.Collector", "routereflector/controller.NewMetrics",
	}
	makes := regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary|Desc|Untyped)`)
	found := map[string]bool{}
	eachFile(t, func(folder string, file *ast.File) {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && makes.MatchString(s.Sel.Name) {
					if x, ok := s.X.(*ast.Ident); ok && (x.Name == "prometheus" || x.Name == "metrics" || x.Name == "promauto") {
						found[folder+"."+function.Name.Name] = true
					}
				}
				return true
			})
		}
	})
	if diff := cmp.Diff(asked, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("- asked by RegisterMetrics, + making metrics:\n%s", diff)
	}
}

// eachFile hands over every file of the product below internal, parsed, with its folder there.
func eachFile(t *testing.T, do func(folder string, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..", "internal")
	must.Do(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if first, _, _ := strings.Cut(folder, "/"); first == "testkit" || first == "sim" || first == "archtest" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		do(folder, file)
		return nil
	}))
}
