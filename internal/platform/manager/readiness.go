// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

const (
	// checkTimeout bounds one check. Probes should allow more (timeoutSeconds: 5).
	checkTimeout = 3 * time.Second
	// checkReuse is how long an answer is given again without asking: /readyz is open to everyone who
	// reaches the port, and the dependencies behind it must not pay for that.
	checkReuse = time.Second
)

// errNotChecked is the answer before the first check has come to an end.
var errNotChecked = errors.New("not checked yet")

// Check asks one dependency whether it can be worked with. It must respect ctx, which carries a
// deadline, must be cheap, and must write nothing.
type Check func(ctx context.Context) error

// Readiness is the set of checks behind /readyz. A check's result is reused for a second, a check
// runs once at a time, and each change between failing and passing is logged once with its reason.
type Readiness struct {
	add    func(name string, check healthz.Checker) error
	logger logr.Logger
	clock  clock.PassiveClock
}

// Add puts a check behind /readyz (and alone under /readyz/NAME). It fails once the manager has started.
func (r *Readiness) Add(name string, check Check) error {
	if err := r.add(name, r.checker(name, check)); err != nil {
		return fmt.Errorf("adding readiness check %q: %w", name, err)
	}
	return nil
}

// checker is check with memory.
func (r *Readiness) checker(name string, check Check) healthz.Checker {
	var mu sync.Mutex // guards what follows, and lets one check run at a time
	var asked time.Time
	last := errNotChecked
	return func(req *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if !asked.IsZero() && r.clock.Since(asked) < checkReuse {
			return last
		}
		// A prober that gives up must not make the check fail for the next one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), checkTimeout)
		defer cancel()
		err := check(ctx)
		r.logChange(name, last, err)
		last, asked = err, r.clock.Now()
		return err
	}
}

func (r *Readiness) logChange(name string, before, now error) {
	switch {
	case now != nil && (before == nil || errors.Is(before, errNotChecked)):
		// Not an error: at start it is the ordinary state of things.
		r.logger.Info("Readiness check fails", "check", name, "reason", now.Error())
	case now == nil && before != nil:
		r.logger.Info("Readiness check passes", "check", name)
	}
}
