// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The core has a processor of its own, and clients and proxies another: what a tenant costs others is then what it makes
// the core do, and not what its clients and its proxy need, which have machines of their own elsewhere.
const (
	coreProcessor  = 0
	otherProcessor = 1
)

// apart gives this process and what it starts from now on the one processor, and what start starts the other.
func apart(b *testing.B, start func()) {
	b.Helper()
	if runtime.NumCPU() <= otherProcessor {
		b.Skip("it needs two processors")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	onProcessor(b, 0, coreProcessor)
	start()
	for _, task := range must.Get(os.ReadDir("/proc/self/task")).Or(b) {
		onProcessor(b, must.Get(strconv.Atoi(task.Name())).Or(b), otherProcessor)
	}
}

// onProcessor keeps a thread (0 is this one) on a processor, with sched_setaffinity(2).
func onProcessor(b *testing.B, thread, processor int) {
	b.Helper()
	if err := pin(thread, processor); err != nil {
		b.Fatal(err)
	}
}

func pin(thread, processor int) error {
	var set unix.CPUSet
	set.Set(processor)
	return unix.SchedSetaffinity(thread, &set)
}
