// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"syscall"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// blind asks views that can read nothing: none may call anything good, and none may end with 0.
func (s *stage) blind(views ...func() *answer) (lies []string) {
	s.Helper()
	for _, view := range views {
		a := view()
		if a.code == 0 {
			lies = append(lies, fmt.Sprintf("green lie: %s ends with 0, and has read nothing", a.view))
		}
		for p, x := range a.said {
			if x.state == good {
				lies = append(lies, fmt.Sprintf("green lie: %s says that %s is good, and has read nothing", a.view, p))
			}
		}
	}
	return lies
}

func (s *stage) explained(p part) func() *answer { return func() *answer { return s.explain(p) } }

// forbidden is a person without any right.
func (s *stage) forbidden() (name string, lies []string) {
	s.Helper()
	s.set(healthy(s.T, s.world.now))
	s.flags = []string{"--as", "nobody"}
	defer func() { s.flags = nil }()
	views := []func() *answer{s.status, s.doctor, s.agreement, s.volumes, s.page}
	for _, p := range []part{{"machine", "w1"}, {"service", "shop/front"}, {"claim", "shop/data"}, {"tenant", "team-a"}} {
		views = append(views, s.explained(p))
	}
	return "nobody may read anything", s.blind(views...)
}

// frozen is an API server that no longer responds. What a page shows that is open then is tested with the page.
func (s *stage) frozen() (name string, lies []string) {
	s.Helper()
	s.set(healthy(s.T, s.world.now))
	s.flags = []string{"--request-timeout=1s"}
	pid := s.server.PID()
	testkit.PauseProcess(s, pid)
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		s.flags = nil
	}()
	tenant := part{"tenant", "team-a"}
	return "the API server is frozen", s.blind(s.status, s.agreement, s.volumes, s.page, s.explained(tenant))
}
