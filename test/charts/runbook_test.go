// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// sections are those of a component's page below a heading of the second order, by anchor.
func (a alerted) sections(t *testing.T, heading string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(a.page())
	if err != nil {
		t.Fatal(err)
	}
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

// TestCloudRunbookSaysWhatToDo: each alert leads to a section of the runbook, which says what to do and not just that something is wrong: there is a
// command, a name of something to look at, or a link to it. Each section is where an alert leads, or another section does.
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
		text, found := sections[anchor]
		if !found || anchor == "" {
			t.Errorf("%s leads to #%s, which is no section of the runbook", alert.Alert, anchor)
			continue
		}
		if len(strings.Fields(text)) < 20 || !regexp.MustCompile("`[^`]+`|\\]\\(").MatchString(text) {
			t.Errorf("%s leads to #%s, which says too little: %q", alert.Alert, anchor, text)
		}
	}
	for anchor := range sections {
		if !led[anchor] && !strings.Contains(sections[""], "(#"+anchor+")") {
			t.Errorf("no alert and no other section leads to #%s", anchor)
		}
	}
}
