// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"regexp"
	"strings"
	"testing"
)

// sections are those of a component's page below a heading of the second order, by anchor.
func (a alerted) sections(t *testing.T, heading string) map[string]string {
	t.Helper()
	content := must.Get(os.ReadFile(a.page())).Or(t)
	_, after, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %s", heading)
	}
	part, _, _ := strings.Cut(after, "\n## ")
	out := map[string]string{"": part}
	for _, section := range strings.Split(part, "\n### ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		out[strings.ReplaceAll(strings.ToLower(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(title, "")), " ", "-")] = strings.TrimSpace(text)
	}
	return out
}

// TestCloudRunbookSaysWhatToDo: each alert leads to a section of the runbook, and each section is where an alert or another section leads.
func TestCloudRunbookSaysWhatToDo(t *testing.T) {
	t.Parallel()
	runbookSaysWhatToDo(t, allAlerted()[1])
}

func runbookSaysWhatToDo(t *testing.T, a alerted) {
	t.Helper()
	sections, led := a.sections(t, "Runbook"), map[string]bool{"": true}
	for _, alert := range a.alerts(t) {
		_, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
		led[anchor] = true
		if sections[anchor] == "" || anchor == "" {
			t.Errorf("%s leads to #%s, which is not a section of the runbook", alert.Alert, anchor)
		}
	}
	for anchor := range sections {
		if !led[anchor] && !strings.Contains(sections[""], "(#"+anchor+")") {
			t.Errorf("no alert and no other section leads to #%s", anchor)
		}
	}
}
