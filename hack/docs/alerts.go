// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// alertRules is one of the chart's files of alerts, as far as the index is concerned.
type alertRules struct {
	Groups []struct {
		Rules []alertRule `json:"rules"`
	} `json:"groups"`
}

type alertRule struct {
	Alert       string            `json:"alert"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// runbookAt is where runbooks are for people who are not in a checkout.
const runbookAt = "https://github.com/mooring-dev/mooring/blob/main/docs/"

// alertsPage lists all alerts by name with the page of each, from the files that the chart ships. An alert without a runbook is an error.
func alertsPage(root string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(root, "charts", "mooring", "alerts", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("finding the alerts of the chart: %d files, %w", len(files), err)
	}
	var all []alertRule
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var rules alertRules
		if err := yaml.Unmarshal(content, &rules); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, g := range rules.Groups {
			all = append(all, g.Rules...)
		}
	}
	slices.SortFunc(all, func(a, b alertRule) int { return cmp.Compare(a.Alert, b.Alert) })
	var b strings.Builder
	b.WriteString(header + "# Alerts\n\nEvery alert that the chart ships, by name, with the page that explains what to do. " +
		"Severity critical means that a person has to act now; warning can wait for working hours.\n\n" +
		"| alert | severity | after | it means |\n|---|---|---|---|\n")
	for _, r := range all {
		page, found := strings.CutPrefix(r.Annotations["runbook_url"], runbookAt)
		if !found {
			return nil, fmt.Errorf("alert %s: runbook_url is %q and must begin with %s", r.Alert, r.Annotations["runbook_url"], runbookAt)
		}
		fmt.Fprintf(&b, "| [%s](../%s) | %s | %s | %s |\n", r.Alert, page, r.Labels["severity"], cmp.Or(r.For, "at once"), cell(r.Annotations["summary"]))
	}
	return []byte(b.String()), nil
}
