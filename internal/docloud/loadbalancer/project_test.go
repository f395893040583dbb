// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

const project, elsewhere = "4de7ac8b-495b-4884-9a69-1050c6793cd6", "11111111-495b-4884-9a69-1050c6793cd6"

// A project that nobody asks for is the one that there is: none for a new load balancer, which means the default one, and no PUT for any.
func TestProject(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked, is, sent string
		differs         int
	}{
		"none asked for, a new one":     {sent: ""},
		"asked for, a new one":          {asked: project, sent: project},
		"none asked for":                {is: project, sent: project},
		"none asked for and none shown": {is: "?", sent: ""},
		"asked for and there":           {asked: project, is: project, sent: project},
		"asked for in upper case":       {asked: strings.ToUpper(project), is: project, sent: project},
		"asked for and elsewhere":       {asked: project, is: elsewhere, sent: project, differs: 1},
		"asked for and not shown":       {asked: project, is: "?", sent: project},
	} {
		in := input(service("project-id", tt.asked))
		if tt.is != "" {
			o := keeps(desired(t, input(service())))
			o.Project = strings.TrimPrefix(tt.is, "?")
			in.Observed = &o
		}
		r := desired(t, in)
		if r.Project != tt.sent {
			t.Errorf("%s: %q is sent, want %q", name, r.Project, tt.sent)
		}
		body, err := json.Marshal(r)
		if sent := strings.HasSuffix(string(body), `,"project_id":"`+tt.sent+`"}`); err != nil || sent != (tt.sent != "") || tt.sent == "" && strings.Contains(string(body), "project_id") {
			t.Errorf("%s: %s", name, body)
		}
		if in.Observed == nil {
			continue
		}
		d := loadbalancer.Diff(*in.Observed, r)
		if len(d) != tt.differs {
			t.Errorf("%s: %q", name, messages(d))
		}
		if tt.differs == 1 && (d[0].Field != "project_id" || d[0].Remedy != loadbalancer.RemedyUpdate || d[0].Message != "the project is "+elsewhere+" instead of "+project) {
			t.Errorf("%s: %+v", name, d[0])
		}
	}
}
