// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// NotifyContext returns a context that ends with a [SignalError] as its cause at the first SIGINT or
// SIGTERM. At the second one it calls exit with 128 plus the signal's number: someone is waiting, or
// the orderly stop hangs. The returned function ends the watch and the context, and returns when its
// goroutine has ended.
func NotifyContext(parent context.Context, exit func(code int)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			cancel(SignalError{Signal: s})
		case <-quit:
			return
		}
		select {
		case s := <-signals:
			exit(128 + SignalError{Signal: s}.number())
		case <-quit:
		}
	}()
	stopped := false
	return ctx, func() {
		if stopped {
			return
		}
		stopped = true
		signal.Stop(signals)
		close(quit)
		<-done
		cancel(nil)
	}
}
