// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"strings"

	"github.com/mooring-dev/mooring/internal/ui"
)

// shown is what the page and kubectl mooring status have of the volumes.
func (s *volumesStage) shown() {
	s.Helper()
	page := serveUI(s.T, "--kubeconfig", s.cluster.Kubeconfig)
	rows := texts(page.page(s.T, ""), "volumes")
	if len(rows) != 7 || !strings.HasPrefix(rows[0], "5 volumes: ") || rows[1] != "" || !strings.Contains(strings.Join(rows[2:5], "\n"), "default/lost | ") ||
		!strings.HasPrefix(rows[6], "default/used | ") || !strings.Contains(rows[6], " | default/volumes | volumes-1 | ") || !strings.HasSuffix(rows[6], " | 5 | in use | agree") {
		s.Errorf("the page has %q", rows)
	}
	if code, _ := page.stop(); code != 0 {
		s.Errorf("ended with %d", code)
	}
	_, out, _ := run(s.T, []string{"status", "--kubeconfig", s.cluster.Kubeconfig, "-o", "json"})
	var got struct {
		Health []ui.Tile `json:"health"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	for _, tile := range got.Health {
		if tile.Key == "volumes" && (tile.State != ui.Bad || !strings.Contains(tile.Text, " disagree, ")) {
			s.Errorf("%+v", tile)
		}
	}
	expect(s.T, 2, "", []string{"status", "--kubeconfig", s.cluster.Kubeconfig}, "  ! default/lost disagree: its volume is gone: DigitalOcean responds with 404 for its ID\n")
}
