// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"runtime"
	"sync"
)

// starts hands functions to one goroutine whose thread lives as long as the process: the parent-death signal of a child is sent when the
// thread that forked it ends (prctl(2), PR_SET_PDEATHSIG).
var starts = sync.OnceValue(func() chan<- func() { //nolint:gochecknoglobals // one thread per process, started at first use
	orders := make(chan func())
	go func() {
		runtime.LockOSThread()
		for order := range orders {
			order()
		}
	}()
	return orders
})

func onLastingThread(start func() error) error {
	done := make(chan error, 1)
	starts() <- func() { done <- start() }
	return <-done
}
