// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// However often a Service is edited, no more settings are sent than three at once and one in 15 seconds; Nodes that come or
// go meanwhile are sent at once; and the latest settings are sent in the end, without anybody asking again.
func TestSettingsAreSentInTurn(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		s := newStage(input(service(annotation.Name, "web")))
		s.settle(t)
		s.change = 15 * time.Second
		begun, members := s.now, 3
		for i := range rapid.IntRange(5, 60).Draw(t, "edits") {
			s.service.Annotations[annotation.Prefix+"http-idle-timeout-seconds"] = fmt.Sprint(30 + i)
			if rapid.IntRange(0, 9).Draw(t, "a node comes or goes") == 0 {
				members = rapid.IntRange(1, 6).Draw(t, "nodes")
				s.in.Nodes = nodes(v4(1), v4(2), v4(3), v4(4), v4(5), v4(6))[:members]
			}
			end, err := s.pass(t, loadbalancer.Keep)
			if err != nil || end.Refusal != nil {
				t.Fatalf("%+v, %v", end, err)
			}
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "until the next, in ms")) * time.Millisecond)
		}
		if most := 3 + int(s.now.Sub(begun)/s.change) + 1; s.edits() > most {
			t.Fatalf("%d changes of settings in %s, want at most %d", s.edits(), s.now.Sub(begun), most)
		}
		end, err := s.pass(t, loadbalancer.Keep)
		for range 5 {
			if err != nil || end.Refusal != nil || len(end.LoadBalancer.DropletIDs) != members && end.Next == 0 {
				t.Fatalf("%+v, %v, %d nodes", end, err, members)
			}
			s.now = s.now.Add(end.Next)
			end, err = s.pass(t, loadbalancer.Keep)
		}
		want := s.service.Annotations[annotation.Prefix+"http-idle-timeout-seconds"]
		if lb := end.LoadBalancer; fmt.Sprint(*lb.HTTPIdleTimeoutSeconds) != want || len(lb.DropletIDs) != members {
			t.Fatalf("timeout %d and %d targets, want %s and %d", *lb.HTTPIdleTimeoutSeconds, len(lb.DropletIDs), want, members)
		}
	})
}

// edits is how many changes of settings were sent.
func (s *stage) edits() int {
	n := 0
	for _, step := range s.steps {
		if c, ok := step.(loadbalancer.Changing); ok && c.Changed().Settings() {
			n++
		}
	}
	return n
}
