// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/command"
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
	pid := s.server.PID()
	testkit.PauseProcess(s, pid)
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	return "the API server is frozen", s.unresponsive("is too slow")
}

// stuck is an API server whose etcd no longer responds.
func (s *stage) stuck() (name string, lies []string) {
	s.Helper()
	s.set(healthy(s.T, s.world.now))
	s.etcd.Pause(s.T)
	defer s.etcd.Resume()
	return "etcd is frozen", s.unresponsive("is too slow")
}

// slow is an API server whose responses take longer than a person waits for all of them.
func (s *stage) slow() (name string, lies []string) {
	s.Helper()
	s.set(healthy(s.T, s.world.now))
	f := newFront(s.T, s.server.Config.Host)
	f.set(3*time.Second, nil)
	s.through(f, func() { lies = s.unresponsive("is too slow") })
	return "each response of the API server takes 3 s", lies
}

// gone is an API server at whose address nothing listens.
func (s *stage) gone() (name string, lies []string) {
	s.Helper()
	f := newFront(s.T, s.server.Config.Host)
	f.server.Close()
	s.through(f, func() { lies = s.unresponsive("cannot be reached") })
	return "the API server is gone", lies
}

// unresponsive asks all views of an API server that does not respond: each ends with an error of one sentence within ten
// seconds.
func (s *stage) unresponsive(sentence string) (lies []string) {
	s.Helper()
	views := []func() *answer{s.status, s.doctor, s.agreement, s.volumes, s.page} // version shows its own, with a note
	for _, p := range []part{{"machine", "w1"}, {"service", "shop/front"}, {"claim", "shop/data"}, {"tenant", "team-a"}} {
		views = append(views, s.explained(p))
	}
	for _, view := range views {
		began := time.Now()
		a := view()
		took := time.Since(began)
		whole := strings.HasPrefix(a.errs, "error: the API server of ") && strings.Count(a.errs, "\n") == 1
		if a.code != command.ExitError || a.out != "" || !whole || !strings.Contains(a.errs, sentence) {
			lies = append(lies, fmt.Sprintf("%s ends with %d, prints %q, and says %q, not in one sentence that the API server %s", a.view, a.code, a.out, a.errs, sentence))
		}
		if took > 10*time.Second {
			lies = append(lies, fmt.Sprintf("%s takes %s to say so: %s", a.view, took, a.errs))
		}
	}
	return lies
}

// early and late are a person whose machine has a clock that is behind or ahead of the cluster's: nothing is at fault.
func (s *stage) early() (name string, lies []string) {
	s.Helper()
	return "the person's clock is 40 minutes behind", s.skewed(40 * time.Minute)
}

func (s *stage) late() (name string, lies []string) {
	s.Helper()
	return "the person's clock is 40 minutes ahead", s.skewed(-40 * time.Minute)
}

func (s *stage) skewed(ahead time.Duration) (lies []string) {
	s.Helper()
	f := newFront(s.T, s.server.Config.Host)
	f.ahead, s.ahead = ahead, ahead
	defer func() { s.ahead = 0 }()
	s.set(healthy(s.T, s.world.now.Add(ahead)))
	s.through(f, func() {
		answers := s.ask(parts()...)
		lies = judge(broken{}, answers)
		for _, a := range answers {
			if a.code != 0 {
				lies = append(lies, fmt.Sprintf("%s ends with %d: %s", a.view, a.code, a.errs))
			}
		}
	})
	s.set(healthy(s.T, s.world.now.Add(-ahead)))
	return lies
}
