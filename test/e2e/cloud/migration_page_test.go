// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// theirVariables are all variables of the upstream project's controller (the facts, section 1.1).
func theirVariables() []string {
	return []string{
		"DO_ACCESS_TOKEN", "DO_OVERRIDE_URL", "DO_API_RATE_LIMIT_QPS", "REGION", "DO_CLUSTER_ID", "DO_CLUSTER_VPC_ID", "DEFAULT_LB_TYPE",
		"PUBLIC_ACCESS_FIREWALL_NAME", "PUBLIC_ACCESS_FIREWALL_TAGS", "DEBUG_ADDR", "METRICS_ADDR",
	}
}

// The page names each of the upstream project's variables, once, in its table, and every flag that it names exists.
func TestTheMigrationPageNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	page := migrationPage(t)
	named := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z][A-Z_`, ]+`) \\|").FindAllStringSubmatch(page, -1) {
		for _, word := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(row[1], -1) {
			named[word[1]]++
		}
	}
	for _, variable := range theirVariables() {
		if named[variable] != 1 {
			t.Errorf("the table of variables names %s %d times", variable, named[variable])
		}
		delete(named, variable)
	}
	for variable := range named {
		t.Errorf("the table names %s, which the upstream project does not have", variable)
	}
	help, err := exec.CommandContext(t.Context(), testkit.Binary(t, manager), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	flags := regexp.MustCompile("`[^`\n]*--([a-z][a-z-]+)[^`\n]*`").FindAllStringSubmatch(blocks.ReplaceAllString(page, ""), -1)
	if len(flags) == 0 {
		t.Error("the page names no flags")
	}
	for _, flag := range flags {
		if !strings.Contains(flag[0], "kubectl") && !strings.Contains(string(help), "--"+flag[1]+" ") {
			t.Errorf("the page names --%s, which the program does not have", flag[1])
		}
	}
}
