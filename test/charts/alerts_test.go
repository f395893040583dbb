// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// alerted is a component with alerts.
type alerted struct {
	component, prefix string
	// foreign are metrics of others, which the chart's README asks for.
	foreign []string
}

func (a alerted) file() string  { return chart + "/alerts/" + a.component + ".yaml" }
func (a alerted) tests() string { return "testdata/" + a.component + "-alerts.yaml" }
func (a alerted) page() string  { return "../../docs/components/" + a.component + ".md" }
func (a alerted) url() string {
	return "https://github.com/mooring-dev/mooring/blob/main/docs/components/" + a.component + ".md"
}

// allAlerted are the components with alerts.
func allAlerted() []alerted {
	replicas := []string{"kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready"}
	return []alerted{
		{component, "CalicoNodeSync", replicas},
		{cloudComponent, "DigitalOceanCloud", append(replicas, "kube_node_spec_taint", "apiserver_admission_webhook_fail_open_count")},
		reflectorsAlerted(),
		etcdAlerted(),
		{volumesComponent, "DigitalOceanVolumes", []string{"kube_statefulset_replicas", "kube_statefulset_status_replicas_ready"}},
	}
}

// reflectorsAlerted also names two metrics that every component of ours has: the build, and controller-runtime's of leader election.
func reflectorsAlerted() alerted {
	return alerted{reflectorsComponent, "CalicoRouteReflectors", []string{
		"kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready", "mooring_build_info", "leader_election_master_status",
	}}
}

// TestEveryComponentsAlertsAreTested finds no file of alerts that this package does not know.
func TestEveryComponentsAlertsAreTested(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(chart + "/alerts/*")
	if err != nil || len(files) != len(allAlerted()) {
		t.Errorf("files %v (%v), known are %v", files, err, allAlerted())
	}
}

// rules is a file of Prometheus rules.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (a alerted) alerts(t *testing.T) []rule {
	t.Helper()
	var all []rule
	for _, group := range read[rules](t, a.file()).Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

// TestAlerts runs Prometheus' own tests of the alerts.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, a := range allAlerted() {
		for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", a.file()}, {"test", "rules", a.tests()}} {
			if out, complaint, err := run(t, "promtool", args...); err != nil {
				t.Errorf("promtool %s: %v\n%s%s", strings.Join(args, " "), err, out, complaint)
			}
		}
	}
}

// TestEveryAlertIsTested: the tests of the alerts have a case in which it fires, and one in which it does not.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	for _, a := range allAlerted() {
		a.everyAlertIsTested(t)
	}
}

func (a alerted) everyAlertIsTested(t *testing.T) {
	t.Helper()
	type query struct {
		Expr       string `json:"expr"`
		EvalTime   string `json:"eval_time"`
		ExpSamples []any  `json:"exp_samples"`
	}
	type firing struct {
		EvalTime  string `json:"eval_time"`
		Alertname string `json:"alertname"`
		ExpAlerts []any  `json:"exp_alerts"`
	}
	file := read[struct {
		RuleFiles          []string `json:"rule_files"`
		EvaluationInterval string   `json:"evaluation_interval"`
		Tests              []struct {
			Name           string   `json:"name"`
			Interval       string   `json:"interval"`
			InputSeries    []any    `json:"input_series"`
			AlertRuleTest  []firing `json:"alert_rule_test"`
			PromqlExprTest []query  `json:"promql_expr_test"`
		} `json:"tests"`
	}](t, a.tests())
	for _, alert := range a.alerts(t) {
		fires, rests := false, false
		for _, test := range file.Tests {
			for _, q := range test.PromqlExprTest {
				if strings.Contains(q.Expr, `alertname="`+alert.Alert+`"`) {
					fires = fires || len(q.ExpSamples) > 0
					rests = rests || len(q.ExpSamples) == 0
				}
			}
			for _, f := range test.AlertRuleTest {
				fires = fires || f.Alertname == alert.Alert && len(f.ExpAlerts) > 0
			}
		}
		if !fires || !rests {
			t.Errorf("%s: tested to fire: %v, not to fire: %v", alert.Alert, fires, rests)
		}
	}
}

// TestAlertsHelpWhoIsWoken: each says how bad it is, what is wrong and where to read on, and fills in only labels that its expression keeps.
func TestAlertsHelpWhoIsWoken(t *testing.T) {
	t.Parallel()
	for _, a := range allAlerted() {
		a.helpWhoIsWoken(t)
	}
}

func (a alerted) helpWhoIsWoken(t *testing.T) {
	t.Helper()
	content := must.Get(os.ReadFile(a.page())).Or(t)
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.+)$`).FindAllStringSubmatch(string(content), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(heading[1], "")), " ", "-")] = true
	}
	seen := map[string]bool{}
	for _, alert := range a.alerts(t) {
		if !strings.HasPrefix(alert.Alert, a.prefix) || seen[alert.Alert] {
			t.Errorf("%q needs a name of its own that begins with %s", alert.Alert, a.prefix)
		}
		seen[alert.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, alert.Labels["severity"]) || alert.For == "" {
			t.Errorf("%s needs a severity and a duration", alert.Alert)
		}
		if !strings.HasSuffix(alert.Annotations["summary"], ".") || !strings.HasSuffix(alert.Annotations["description"], ".") {
			t.Errorf("%s needs a summary and a description, in sentences", alert.Alert)
		}
		address, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
		if address != a.url() || !anchors[anchor] {
			t.Errorf("%s: the runbook %s#%s is not there", alert.Alert, address, anchor)
		}
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(alert.Annotations["description"], -1) {
			if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b[^)]*\)`).MatchString(alert.Expr) {
				t.Errorf("%s mentions the label %s, which its expression does not keep", alert.Alert, m[1])
			}
		}
	}
}

// TestAlertsNameDocumentedMetrics: ours are on the component's page; others are kube-state-metrics', which the chart's README asks for.
func TestAlertsNameDocumentedMetrics(t *testing.T) {
	t.Parallel()
	for _, a := range allAlerted() {
		a.nameDocumentedMetrics(t)
	}
}

// documentedMetrics reads the table of metrics of a component's page.
func (a alerted) documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	content := must.Get(os.ReadFile(a.page())).Or(t)
	row := regexp.MustCompile("(?m)^\\| `(mooring_\\w+)(?:\\{[\\w,]+\\})?` \\|")
	documented := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		documented[m[1]] = true
	}
	return documented
}

func (a alerted) nameDocumentedMetrics(t *testing.T) {
	t.Helper()
	documented := a.documentedMetrics(t)
	for _, alert := range a.alerts(t) {
		// Names of functions are followed by a parenthesis.
		var metrics []string
		for _, m := range regexp.MustCompile(`\b([a-z]+(?:_[a-z]+){2,})\b(\(?)`).FindAllStringSubmatch(alert.Expr, -1) {
			if m[2] == "" {
				metrics = append(metrics, m[1])
			}
		}
		if len(metrics) == 0 {
			t.Errorf("%s: no metric found in %s", alert.Alert, alert.Expr)
		}
		for _, metric := range metrics {
			if !documented[metric] && !slices.Contains(a.foreign, metric) {
				t.Errorf("%s: %s is not in the table of metrics of %s", alert.Alert, metric, a.page())
			}
		}
	}
}

// TestEveryGateIsAlertedOnOrNot: a new gate needs a decision whether anybody is told when it holds for long.
func TestEveryGateIsAlertedOnOrNot(t *testing.T) {
	t.Parallel()
	decided := map[string]string{}
	for _, gate := range []nodesync.Gate{
		// What is not ours, what somebody asked for, and what passes by itself.
		nodesync.GateNoIdentity, nodesync.GateOtherOrchestrator, nodesync.GateKeep, nodesync.GateUserConfiguration,
		nodesync.GateGrace, nodesync.GatePace, nodesync.GateCooldown,
		// What costs nothing but its space, and goes only if somebody asks for it.
		nodesync.GateOrphanedHandle, nodesync.GateOrphanedConfiguration, nodesync.GatePodLeftovers,
		// CalicoNodeSyncStepsFailing tells of these, by the steps themselves.
		nodesync.GateStepFailed,
	} {
		decided[string(gate)] = "nobody"
	}
	for _, alert := range allAlerted()[0].alerts(t) {
		for _, m := range regexp.MustCompile(`gate=~?"([^"]+)"`).FindAllStringSubmatch(alert.Expr, -1) {
			for gate := range strings.SplitSeq(m[1], "|") {
				if other := decided[gate]; other != "" {
					t.Errorf("the gate %s is for %s and for %s", gate, other, alert.Alert)
				}
				decided[gate] = alert.Alert
			}
		}
	}
	for _, gate := range nodesync.Gates() {
		if decided[string(gate)] == "" {
			t.Errorf("no alert names the gate %s, and this test does not say that none should", gate)
		}
		delete(decided, string(gate))
	}
	for gate, alert := range decided {
		t.Errorf("%s names the gate %s, which does not exist", alert, gate)
	}
}

// TestPrometheusRuleIsTheAlertsFile compares the two: templates in the annotations are Prometheus', not Helm's.
func TestPrometheusRuleIsTheAlertsFile(t *testing.T) {
	t.Parallel()
	rendered := map[string]*unstructured.Unstructured{
		component:           byName(render(t, namespace, scenarios()["everything"]))["PrometheusRule "+namespace+"/"+component],
		cloudComponent:      byName(render(t, cloudNamespace, cloudScenarios()["everything"]))["PrometheusRule "+cloudNamespace+"/"+cloudComponent],
		reflectorsComponent: byName(render(t, namespace, reflectorsScenarios()["everything"]))["PrometheusRule "+namespace+"/"+reflectorsComponent],
		etcdComponent:       byName(render(t, etcdNamespace, etcdScenarios()["everything"]))["PrometheusRule "+etcdNamespace+"/"+etcdComponent],
		volumesComponent:    byName(render(t, cloudNamespace, volumesScenarios()["everything"]))["PrometheusRule "+cloudNamespace+"/"+volumesComponent],
	}
	for _, a := range allAlerted() {
		want, found := read[map[string]any](t, a.file())["groups"], rendered[a.component]
		if found == nil {
			t.Fatalf("there is no PrometheusRule of %s", a.component)
		}
		have, _, err := unstructured.NestedFieldNoCopy(found.Object, "spec", "groups")
		must.Do(t, err)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("- alerts file, + PrometheusRule:\n%s", diff)
		}
	}
}
