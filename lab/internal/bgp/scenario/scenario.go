// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario has calico-route-reflector-operator change the route reflectors of a running BGP lab while an all-pairs probe is under way, and
// says what that cost.
//
// A scenario writes a RouteReflectorTopology, or deletes it, and waits until the operator has done what it asks for. All else is watching: a
// ledger of every write to roles, BGPPeers and mesh, in the order of their resourceVersions, with what each node had said of its sessions since
// the write before; and the probe. A control applies the planner's whole plan in one burst, without operator and without waiting: it must show
// the loss that waiting avoids, or the harness proves nothing.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
)

const (
	// poll is between two looks at the cluster.
	poll = 100 * time.Millisecond
	// settle is how long the probe goes on before the first step and after the last, to see what comes late.
	settle = 5 * time.Second
	// idleFor is how long the scenario of that name probes.
	idleFor = 30 * time.Second
	// steadyFor is how long the scenario of that name looks for writes: longer than the operator's --resync-period.
	steadyFor = 75 * time.Second
	// questionsEnd is how long the operator may go on asking after a scenario.
	questionsEnd = time.Minute
)

// Options say what to run and where.
type Options struct {
	Kubeconfig string
	// Network is the folder of the running network.
	Network string
	// CRDs is the folder of the CRDs.
	CRDs string
	// Operator is the program of calico-route-reflector-operator; "" if one runs already.
	Operator string
	// Burst applies all steps at once, without operator: the control.
	Burst bool
	// KillAt has the operator killed once it has done that many steps, and KillDelay has passed, and started again; 0 does not.
	KillAt    int
	KillDelay time.Duration
	// Interval is the probe's.
	Interval time.Duration
	// Progress is told what happens, and when since the topology was written.
	Progress func(at time.Duration, line string)
}

// Result is what a scenario cost.
type Result struct {
	Scenario string `json:"scenario"`
	Burst    bool   `json:"burst"`
	// Changes are the steps, as the API server told of them, in order.
	Changes []Change     `json:"changes"`
	Report  probe.Report `json:"report"`
	// Took is from when the topology was written to when the operator called it ready and every node had every route.
	Took probe.Milliseconds `json:"tookMs"`
	// Reflectors are those at the end.
	Reflectors []string `json:"reflectors"`
	// Questions are the CalicoNodeStatuses of the topology that are left, apart from those that stand.
	Questions []string `json:"questions"`
	// Writes are those of Steady: there should be none.
	Writes []string `json:"writes"`
	// Killed reports that the operator was killed and started again.
	Killed bool `json:"killed"`
}

// Run runs one scenario. It leaves the cluster as the scenario's end has it.
func Run(ctx context.Context, name string, o Options) (result Result, err error) {
	c, err := connect(ctx, o.Kubeconfig)
	if err != nil {
		return Result{}, err
	}
	now, err := c.reflectors(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := check(name, o.Burst, now); err != nil {
		return Result{}, err
	}
	if err := c.install(ctx, o.CRDs); err != nil {
		return Result{}, err
	}
	r := &run{Options: o, cluster: c, network: network.Connect(o.Network), name: name, wanted: wanted(name, now), result: Result{Scenario: name, Burst: o.Burst}}
	if err := r.start(ctx); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	err = r.measure(ctx)
	return r.result, err
}

// run is a scenario under way.
type run struct {
	Options
	*cluster
	network *network.Client
	name    string
	// wanted is what the topology is to be, nil for none.
	wanted   *v1alpha1.RouteReflectorTopologySpec
	watcher  *watcher
	operator *operator
	result   Result
}

// start starts the operator, if one is needed and none runs.
func (r *run) start(ctx context.Context) error {
	if r.Burst || r.Operator == "" {
		return nil
	}
	o, err := startOperator(ctx, r.Operator, r.Kubeconfig, filepath.Join(r.Network, operatorName+".log"))
	r.operator = o
	return err
}

func (r *run) stop() error {
	if r.operator == nil {
		return nil
	}
	return r.operator.stop()
}

// measure plays the scenario under a probe.
func (r *run) measure(ctx context.Context) error {
	if !r.Burst {
		if err := r.awaitReady(ctx); err != nil {
			return fmt.Errorf("before the scenario: %w", err)
		}
	}
	if _, err := r.network.AwaitRoutes(ctx); err != nil {
		return fmt.Errorf("before the scenario: %w", err)
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	w, err := follow(watching, r.cluster, r.Progress)
	if err != nil {
		return err
	}
	r.watcher = w
	id, err := r.network.StartProbe(ctx, r.Interval)
	if err != nil {
		return err
	}
	err = r.play(ctx)
	w.take(0)
	var missed, unread error
	r.result.Changes, r.result.Writes, missed = w.soFar()
	r.result.Report, unread = r.network.StopProbe(context.WithoutCancel(ctx), id, changed(r.result.Changes))
	return errors.Join(err, missed, unread)
}

func (r *run) play(ctx context.Context) error {
	switch r.name {
	case Idle:
		if err := sleep(ctx, idleFor); err != nil {
			return err
		}
		return r.look(ctx)
	case Steady:
		return r.steady(ctx)
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	r.watcher.restart()
	change := r.converge
	if r.Burst {
		change = r.burst
	}
	if err := change(ctx, r.wanted); err != nil {
		return err
	}
	if r.Burst {
		// What a burst breaks begins to show only once confd has rendered it.
		if err := sleep(ctx, settle); err != nil {
			return err
		}
	}
	if _, err := r.network.AwaitRoutes(ctx); err != nil {
		return fmt.Errorf("after the scenario: %w", err)
	}
	r.result.Took = probe.Milliseconds(time.Since(r.watcher.begun))
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	return r.look(ctx)
}

// look sees how things are at the end.
func (r *run) look(ctx context.Context) (err error) {
	if r.Burst {
		if err := r.release(ctx, r.wanted); err != nil {
			return err
		}
	}
	if r.result.Reflectors, err = r.reflectors(ctx); err != nil {
		return err
	}
	return r.noQuestions(ctx)
}

// noQuestions waits until the operator has no more requests than those that stand, and notes those that are left: one that
// shows a reflector without one of its sessions stays until the session is up.
func (r *run) noQuestions(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, questionsEnd)
	defer cancel()
	err := until(bounded, func() (_ bool, err error) {
		r.result.Questions, err = r.questions(ctx)
		return len(r.result.Questions) == 0, err
	})
	if bounded.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// steady looks for writes while there is no reason for any.
func (r *run) steady(ctx context.Context) error {
	err := until(ctx, func() (bool, error) {
		left, err := r.questions(ctx)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the operator to have no more questions: %w", err)
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	r.watcher.mark()
	if err := sleep(ctx, steadyFor); err != nil {
		return err
	}
	return r.look(ctx)
}

// converge lets the operator do it.
func (r *run) converge(ctx context.Context, wanted *v1alpha1.RouteReflectorTopologySpec) error {
	if wanted == nil {
		if err := r.remove(ctx); err != nil {
			return err
		}
	} else if _, err := r.write(ctx, *wanted); err != nil {
		return err
	}
	return r.awaitReady(ctx)
}

// awaitReady waits until the operator says of the topology's present generation that it is ready, or until a topology that is being deleted is
// gone. It kills the operator on the way if that is asked for.
func (r *run) awaitReady(ctx context.Context) error {
	said := ""
	err := until(ctx, func() (bool, error) {
		if err := r.harm(ctx); err != nil {
			return false, err
		}
		if r.operator != nil && r.operator.alive() != nil {
			return false, r.operator.alive()
		}
		t, err := r.topology(ctx)
		if t == nil || err != nil {
			return err == nil, err
		}
		said = string(t.Status.Phase)
		return t.DeletionTimestamp == nil && t.Status.Phase == v1alpha1.PhaseReady && conditions.IsTrue(t.Status.Conditions, conditions.Ready, t.Generation), nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for RouteReflectorTopology %s, whose phase is %q: %w", topologyName, said, err)
	}
	return err
}

// harm kills the operator at the step at which it is to be, and starts it again.
func (r *run) harm(ctx context.Context) error {
	if r.KillAt == 0 || r.result.Killed || r.operator == nil || r.watcher == nil {
		return nil
	}
	if done, _, _ := r.watcher.soFar(); len(done) < r.KillAt {
		return nil
	}
	r.result.Killed = true
	if err := sleep(ctx, r.KillDelay); err != nil {
		return err
	}
	if err := r.operator.kill(); err != nil {
		return err
	}
	r.Progress(time.Since(r.watcher.begun), "the operator is killed")
	if err := sleep(ctx, downtime); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	r.Progress(time.Since(r.watcher.begun), "the operator runs again; it waits for the Lease that it could not give back")
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
