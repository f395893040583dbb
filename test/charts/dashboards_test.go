// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"sigs.k8s.io/yaml"
)

// board is what these tests read of a Grafana dashboard.
type board struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []boardPanel `json:"panels"`
}

type boardPanel struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Targets     []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func boards(t *testing.T) map[string]board {
	t.Helper()
	all := map[string]board{}
	files, err := filepath.Glob(chart + "/dashboards/*.json")
	if err != nil || len(files) != len(allAlerted()) {
		t.Fatalf("dashboards %v (%v), want one for each of %d components", files, err, len(allAlerted()))
	}
	for _, file := range files {
		content := must.Get(os.ReadFile(file)).Or(t)
		var b board
		if err := json.Unmarshal(content, &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = b
	}
	return all
}

// resolved is an expression as Prometheus gets it from Grafana.
func resolved(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$cluster", ".*", "$namespace", ".*").Replace(expr)
}

// TestDashboardsAreQueries has Prometheus parse all that the dashboards ask it.
func TestDashboardsAreQueries(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	for component, b := range boards(t) {
		var rules []rule
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				rules = append(rules, rule{fmt.Sprintf("panel:%d", len(rules)), resolved(target.Expr)})
				if strings.Contains(resolved(target.Expr), "$") {
					t.Errorf("%s: %q has a variable that Grafana would not know: %s", component, p.Title, target.Expr)
				}
			}
		}
		content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": component, "rules": rules}}})
		must.Do(t, err)
		file := filepath.Join(t.TempDir(), "rules.yaml")
		must.Do(t, os.WriteFile(file, content, 0o600))
		if out, complaint, err := run(t, "promtool", "check", "rules", "--lint=none", file); err != nil {
			t.Errorf("%s: %v\n%s%s", component, err, out, complaint)
		} else if want := fmt.Sprintf("%d rules found", len(rules)); len(rules) < 10 || !strings.Contains(out, want) {
			t.Errorf("%s: promtool says %q, want %q, of at least 10", component, out, want)
		}
	}
}

// labelsOf reads the tables of metrics of a component's page, and of etcd-storage-proxy's: the labels of each metric.
func labelsOf(t *testing.T, component string) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	pages := []string{component}
	if component == etcdComponent {
		pages = append(pages, "etcd-storage-proxy")
	}
	for _, page := range pages {
		content := must.Get(os.ReadFile("../../docs/components/" + page + ".md")).Or(t)
		for _, m := range regexp.MustCompile("`(mooring_\\w+)(?:\\{([^`]*)\\})?`").FindAllStringSubmatch(string(content), -1) {
			for label := range strings.SplitSeq(m[2], ",") {
				label, _, _ = strings.Cut(label, "=")
				known[m[1]] = append(known[m[1]], label)
			}
			if page == "etcd-storage-proxy" {
				known[m[1]] = append(known[m[1]], "tenant") // of all its metrics
			}
		}
	}
	return known
}

// TestDashboardsNameDocumentedMetrics: every metric is on the component's page, with every label that is asked for, and legends name labels that are
// left after the aggregation.
func TestDashboardsNameDocumentedMetrics(t *testing.T) {
	t.Parallel()
	selector := regexp.MustCompile(`(mooring_\w+?)(_bucket)?\{([^}]*)\}`)
	aggregation := regexp.MustCompile(`by \(([^)]*)\)`)
	for component, b := range boards(t) {
		known := labelsOf(t, component)
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				found := selector.FindAllStringSubmatch(target.Expr, -1)
				if len(found) == 0 || len(found) != strings.Count(target.Expr, "mooring_") {
					t.Errorf("%s: %q: a metric is asked for without the variables: %s", component, p.Title, target.Expr)
				}
				by := strings.Split(aggregation.ReplaceAllString(strings.Join(aggregation.FindAllString(target.Expr, -1), ","), "$1"), ",")
				for _, m := range found {
					have, ok := known[m[1]]
					if !ok {
						t.Errorf("%s: %q: %s is on no page", component, p.Title, m[1])
					}
					have = append(have, "cluster", "namespace", "le", "")
					for label := range strings.SplitSeq(m[3], ",") {
						label, _, _ = strings.Cut(label, "=")
						checkLabel(t, component, p.Title, m[1], label, have)
					}
					for _, label := range by {
						checkLabel(t, component, p.Title, m[1], strings.TrimSpace(label), have)
					}
				}
				for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					if !slices.ContainsFunc(by, func(label string) bool { return strings.TrimSpace(label) == m[1] }) {
						t.Errorf("%s: %q: the legend names %s, which is not a label of the answer to %s", component, p.Title, m[1], target.Expr)
					}
				}
			}
		}
	}
}

func checkLabel(t *testing.T, component, title, metric, label string, have []string) {
	t.Helper()
	if !slices.Contains(have, label) {
		t.Errorf("%s: %q: %s has no label %s by its page, only %v", component, title, metric, label, have)
	}
}

// TestDashboardsSpeak: every panel says in a sentence what it shows, no two are called the same, and each dashboard begins with what wants action.
func TestDashboardsSpeak(t *testing.T) {
	t.Parallel()
	for component, b := range boards(t) {
		if b.UID != "mooring-"+component || b.Panels[0].Title != "Must anybody act?" {
			t.Errorf("%s: UID %s, the first row is %q", component, b.UID, b.Panels[0].Title)
		}
		titles := map[string]bool{}
		for _, p := range b.Panels {
			if titles[p.Title] {
				t.Errorf("%s: two panels are called %q", component, p.Title)
			}
			titles[p.Title] = true
			if p.Type != "row" && (!strings.HasSuffix(p.Description, ".") || len(p.Targets) == 0) {
				t.Errorf("%s: %q has no sentence, or no query", component, p.Title)
			}
		}
	}
}

// TestDashboardsOfWhatIsEnabled: the chart brings those of the components that are on, whole, where Grafana's sidecar finds them.
func TestDashboardsOfWhatIsEnabled(t *testing.T) {
	t.Parallel()
	const sync, etcd = "calicoNodeSync: {enabled: true, datastore: kubernetes}\n", "etcdStorageOperator: {enabled: true, core: {urls: [\"https://192.0.2.10:2379\"]}}\n"
	const reflectors, on = "calicoRouteReflectorOperator: {enabled: true, datastore: kubernetes}\n", "dashboards: {enabled: true, annotations: {grafana_folder: Mooring}}\n"
	for name, tc := range map[string]struct {
		namespace, values string
		want              []string
	}{
		"off":      {namespace, sync, nil},
		"one":      {namespace, sync + on, []string{component}},
		"several":  {namespace, sync + reflectors + on, []string{component, reflectorsComponent}},
		"etcd":     {etcdNamespace, etcd + on, []string{etcdComponent}},
		"cloud":    {"kube-system", "digitaloceanCloudControllerManager: {enabled: true}\n" + on, []string{cloudComponent}},
		"volumes":  {"kube-system", "digitaloceanCSIDriver: {enabled: true}\n" + on, []string{volumesComponent}},
		"no other": {namespace, on, nil},
	} {
		var got []string
		for _, u := range render(t, tc.namespace, tc.values) {
			data, _ := u.Object["data"].(map[string]any)
			for key, content := range data {
				if u.GetLabels()["grafana_dashboard"] != "1" {
					continue
				}
				file, err := os.ReadFile(chart + "/dashboards/" + strings.TrimPrefix(key, "mooring-"))
				if err != nil || strings.TrimSpace(string(file)) != content || u.GetNamespace() != tc.namespace || u.GetAnnotations()["grafana_folder"] != "Mooring" {
					t.Errorf("%s: %s of %s in %s is not the file (%v), or not found by Grafana", name, key, u.GetName(), u.GetNamespace(), err)
				}
				got = append(got, strings.TrimSuffix(u.GetName(), "-dashboard"))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: dashboards of %v, want %v", name, got, tc.want)
		}
	}
}
