// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
)

// What controller-runtime says as an error at each end in order: the Lease that was given back is lost to it (pkg/manager, engageStopProcedure).
const (
	afterStop = "error received after stop sequence was engaged"
	leaseLost = "leader election lost"
)

// orderlyStop is a sink that does not call an end in order an error.
type orderlyStop struct{ logr.LogSink }

// quiet returns a logger that does not call an end in order an error.
func quiet(log logr.Logger) logr.Logger { return log.WithSink(orderlyStop{log.GetSink()}) }

// Error implements logr.LogSink.
func (s orderlyStop) Error(err error, msg string, keysAndValues ...any) {
	if msg == afterStop && err != nil && err.Error() == leaseLost {
		s.LogSink.Info(0, "Gave the Lease back")
		return
	}
	if errors.Is(err, context.Canceled) { // a request that was under way, such as one for the Lease
		s.LogSink.Info(0, msg, append([]any{"err", err.Error()}, keysAndValues...)...)
		return
	}
	s.LogSink.Error(err, msg, keysAndValues...)
}

// WithValues implements logr.LogSink.
func (s orderlyStop) WithValues(keysAndValues ...any) logr.LogSink {
	return orderlyStop{s.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (s orderlyStop) WithName(name string) logr.LogSink { return orderlyStop{s.LogSink.WithName(name)} }
