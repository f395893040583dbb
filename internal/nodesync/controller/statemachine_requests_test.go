// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// requestsPort is the real ConfigMapState as Requests, behind calls that can go wrong. It knows when its process is at work on a request.
type requestsPort struct {
	p     *process
	state *ConfigMapState
	// text is the request as it is written.
	text string
}

func (x *requestsPort) Pending(ctx context.Context) (text string, answer Answer, err error) {
	_, err = call(x.p, portCall{"state", "Requests.Pending", ""}, func() (struct{}, error) {
		text, answer, err = x.state.Pending(ctx)
		return struct{}{}, err
	})
	if err != nil {
		return "", Answer{}, err
	}
	x.text = text
	return x.p.wrongly.pending(x.p, text), answer, nil
}

// Answer begins the work on a request when it says that it runs, and ends it otherwise.
func (x *requestsPort) Answer(ctx context.Context, _ string, answer Answer) error {
	before := x.p.serving
	x.p.serving = nil
	_, err := call(x.p, portCall{"state", "Requests.Answer", ""}, func() (struct{}, error) { return struct{}{}, x.state.Answer(ctx, x.text, answer) })
	if request, wrong := ParseRequest(x.text); err == nil && wrong == nil && before == nil && answer.State == AnswerRunning {
		x.p.serving, x.p.served = &request, true
	}
	if err == nil && answer.Final() {
		x.p.watcher.count("requests answered: " + answer.State)
	}
	return err
}

// asks is a person who names machines to be forgotten, of which some live.
func (s *story) asks(t *rapid.T) {
	request := Request{ID: fmt.Sprintf("request-%d", s.counts["requests by name"]+1), Verb: VerbForget, Until: s.u.clock.Now().Add(10 * time.Minute)}
	for range rapid.IntRange(1, 3).Draw(t, "names") {
		request.Names = append(request.Names, s.machine(t).host)
	}
	if rapid.IntRange(0, 3).Draw(t, "with users' objects") == 0 {
		request.AlsoRemove = []nodesync.ResourceKind{nodesync.KindHostEndpoint}
	}
	request.DryRun = rapid.IntRange(0, 5).Draw(t, "dry run") == 0
	text, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	if s.u.api.confirm(nodesync.RequestAnnotation, string(text)) {
		s.count("requests by name")
	}
}

// judgeNamed is I14: at work on a request, a process takes nothing but from machines that were named. That stands for the grace period, the
// mass guard and the share of machines that have their Node, and for nothing else.
func (k *watcher) judgeNamed(p *process, m *modelMachine) {
	p.seen.removed[m.host] = true
	k.count("removals by name")
	switch {
	case p.serving.DryRun:
		k.violate("I14: a write for a request that only asks what would be done")
	case !slices.Contains(p.serving.Names, m.host):
		k.violate("I14: %s was not named by %q", m.host, p.serving.Names)
	}
}

// alsoRemoves are the kinds of users' objects that the process may remove now.
func (p *process) alsoRemoves() []nodesync.ResourceKind {
	if p.serving == nil {
		return p.r.Config.AlsoRemove
	}
	return slices.Concat(p.r.Config.AlsoRemove, p.serving.AlsoRemove)
}

// What takes machines for gone that live, serves requests for others than were named, or takes pods that were deleted by force for ones whose
// sandboxes are gone is found out by the same checks.
func TestTheWatcherFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	serve := func(t *rapid.T, s *story, p *process) {
		s.happens(t, nil)
		p.watchAll()
		p.round()
		s.asks(t)
	}
	for wrong, test := range map[wrongly]struct {
		options processOptions
		times   int
		turn    func(*rapid.T, *story, *process)
	}{
		trustsThePerson: {processOptions{serves: true}, 4, serve},
		forgetsOthers:   {processOptions{serves: true}, 4, serve},
		believesEachGone: {processOptions{workers: 4}, 4, func(t *rapid.T, s *story, p *process) {
			m := s.machine(t)
			s.u.leaves(m)
			s.u.collectsPods()
			p.watchAll()
			p.work(map[int]mishap{rapid.IntRange(1, 20).Draw(t, "before call"): {before: func() { s.u.registers(m) }}})
			s.u.pass(s.u.config.Grace + time.Second)
		}},
		trustsKubelets: {processOptions{leftovers: true}, 30, func(t *rapid.T, s *story, p *process) {
			s.podTrouble(t)
			s.u.startsPod(s.machine(t))
			p.watchAll()
			p.round()
			s.u.pass(min(p.wait(), time.Minute))
		}},
	} {
		t.Run(string(wrong), func(t *testing.T) {
			t.Parallel()
			metrics := NewMetrics(prometheus.NewRegistry())
			history := rapid.Custom(func(t *rapid.T) []string {
				x := newTrial(t, metrics)
				defer x.end()
				x.watchesPods(t)
				x.u.config.AlsoRemove, x.u.config.SweepPeriod = []nodesync.ResourceKind{nodesync.KindPodLeftovers}, 30*time.Second
				p := x.newProcess("leader", x.u.api, test.options)
				p.wrongly = wrong
				x.leaders = []*process{p}
				for range test.times {
					test.turn(t, &story{trial: x}, p)
				}
				return x.violations
			})
			for seed := range 400 {
				if violations := history.Example(seed); len(violations) > 0 {
					t.Logf("after %d histories: %s", seed, violations[0])
					return
				}
			}
			t.Error("400 histories have not found it")
		})
	}
}

// wrongly is a way to go about it that is wrong.
type wrongly string

const (
	// trustsThePerson takes machines that a person has named for gone, whatever Kubernetes says.
	trustsThePerson wrongly = "trusts the person"
	// forgetsOthers takes all machines to be named.
	forgetsOthers wrongly = "forgets others"
	// believesEachGone takes every machine that is looked up for gone.
	believesEachGone wrongly = "believes each gone"
	// trustsKubelets takes every kubelet to be at work.
	trustsKubelets wrongly = "trusts kubelets"
)

// list leaves out of a list of Nodes what the process does not want to see while it is at work on a request, and lie changes the answer to a live read.
func (w wrongly) list(p *process, nodes []nodesync.KubernetesNode) []nodesync.KubernetesNode {
	if w != trustsThePerson || p.serving == nil {
		return nodes
	}
	return slices.DeleteFunc(nodes, func(n nodesync.KubernetesNode) bool { return slices.Contains(p.serving.Names, n.Name) })
}

func (w wrongly) lie(p *process, lookup nodesync.Lookup) nodesync.Lookup {
	if w == believesEachGone || w == trustsThePerson && p.serving != nil {
		lookup.Verdict = nodesync.VerdictGone
	}
	return lookup
}

// pending changes the request that a process is given.
func (w wrongly) pending(p *process, text string) string {
	request, err := ParseRequest(text)
	if w != forgetsOthers || text == "" || err != nil {
		return text
	}
	request.Names = p.u.hosts()
	changed, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return string(changed)
}
