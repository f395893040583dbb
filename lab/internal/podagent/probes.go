// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/probe"
)

// probes are those of one run of a container. Until the startup probe has succeeded the others are not asked.
type probes struct {
	spec     corev1.Container
	checks   map[string]func(context.Context) error
	poke     func()
	cancel   context.CancelFunc
	finished sync.WaitGroup

	mu   sync.Mutex // guards what follows
	seen health
}

// health is what the probes say now.
type health struct {
	started, ready bool
	// sick says why the container must end, if it must; grace is how long that may take if the probe says so.
	sick  string
	grace *int64
}

func newProbes(spec corev1.Container, address string, poke func()) (*probes, error) {
	p := &probes{spec: spec, checks: map[string]func(context.Context) error{}, poke: poke}
	for name, asked := range map[string]*corev1.Probe{"startup": spec.StartupProbe, "liveness": spec.LivenessProbe, "readiness": spec.ReadinessProbe} {
		if asked == nil {
			continue
		}
		check, err := probe.Check(asked, spec, address)
		if err != nil {
			return nil, fmt.Errorf("the %s probe: %w", name, err)
		}
		p.checks[name] = check
	}
	p.seen = health{started: spec.StartupProbe == nil, ready: spec.ReadinessProbe == nil}
	return p, nil
}

func (p *probes) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.spec.StartupProbe == nil {
		p.startOthers(ctx)
		return
	}
	asking, enough := context.WithCancel(ctx)
	p.finished.Go(func() {
		defer enough()
		probe.Run(asking, p.spec.StartupProbe, p.checks["startup"], func(v probe.Verdict) {
			p.change(func(h *health) {
				h.started = v.Well
				h.fail("startup", p.spec.StartupProbe, v)
			})
			if v.Well {
				p.startOthers(ctx)
			}
			enough() // it is asked for one verdict only
		})
	})
}

func (p *probes) startOthers(ctx context.Context) {
	if live := p.spec.LivenessProbe; live != nil {
		p.finished.Go(func() {
			probe.Run(ctx, live, p.checks["liveness"], func(v probe.Verdict) {
				p.change(func(h *health) { h.fail("liveness", live, v) })
			})
		})
	}
	if ready := p.spec.ReadinessProbe; ready != nil {
		p.finished.Go(func() {
			probe.Run(ctx, ready, p.checks["readiness"], func(v probe.Verdict) {
				p.change(func(h *health) { h.ready = v.Well })
			})
		})
	}
}

// fail remembers that a probe wants the container ended.
func (h *health) fail(name string, asked *corev1.Probe, v probe.Verdict) {
	if !v.Well && h.sick == "" {
		h.sick, h.grace = fmt.Sprintf("%s probe failed: %s", name, v.Message), asked.TerminationGracePeriodSeconds
	}
}

func (p *probes) change(change func(*health)) {
	p.mu.Lock()
	change(&p.seen)
	p.mu.Unlock()
	p.poke()
}

func (p *probes) read() health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// grace is how long the container may take to end: what the probe that failed says, or else the pod.
func (p *probes) grace(pod time.Duration) time.Duration {
	if seconds := p.read().grace; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return pod
}

// stop ends the asking.
func (p *probes) stop() {
	p.cancel()
	p.finished.Wait()
}
