// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// What only reports logs each step once, when it appears, and not all of them again when another comes or goes.
func TestADryRunLogsWhatIsNew(t *testing.T) {
	t.Parallel()
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	planned := func(hosts ...string) (p nodesync.Plan) {
		for _, host := range hosts {
			p.Steps = append(p.Steps, nodesync.RemoveNode{Of: nodesync.Subject{Host: host, KubernetesNode: host}})
		}
		return p
	}
	r := &Reconciler{DryRun: true}
	for _, test := range []struct {
		hosts []string
		want  string
	}{{[]string{"a", "b"}, "a b"}, {[]string{"a", "b"}, ""}, {[]string{"a", "b", "c"}, "c"}, {[]string{"b", "c"}, ""}, {[]string{"a", "b", "c"}, "a"}} {
		lines = nil
		r.reportDryRun(log, planned(test.hosts...))
		var said []string
		for _, line := range lines {
			_, host, _ := strings.Cut(line, `"host"="`)
			said = append(said, host[:1])
		}
		if got := strings.Join(said, " "); got != test.want {
			t.Errorf("steps of %v: logged are those of %q, want %q", test.hosts, got, test.want)
		}
	}
}
