// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The core has a processor of its own, and clients and proxies another: what a tenant costs others is then what it makes
// the core do, and not what its clients and its proxy need, which have machines of their own elsewhere.
const (
	coreProcessor  = 0
	otherProcessor = 1
)

// apart gives this process and what it starts from now on the one processor, and what start starts the other.
func apart(tb testing.TB, start func()) {
	tb.Helper()
	if runtime.NumCPU() <= otherProcessor {
		testkit.Skip(tb, "it needs two processors, one for the core")
	}
	start()
	for _, task := range tasks(tb, "self") {
		children := must.Get(os.ReadFile("/proc/self/task/" + strconv.Itoa(task) + "/children")).Or(tb)
		for child := range strings.FieldsSeq(string(children)) {
			for _, each := range tasks(tb, child) {
				onProcessor(tb, each, coreProcessor)
			}
		}
	}
	for _, task := range tasks(tb, "self") {
		onProcessor(tb, task, otherProcessor)
	}
}

// tasks are the threads of a process, from proc(5).
func tasks(tb testing.TB, process string) (all []int) {
	tb.Helper()
	for _, task := range must.Get(os.ReadDir("/proc/" + process + "/task")).Or(tb) {
		all = append(all, must.Get(strconv.Atoi(task.Name())).Or(tb))
	}
	return all
}

// onProcessor keeps a thread on a processor, with sched_setaffinity(2).
func onProcessor(tb testing.TB, thread, processor int) {
	tb.Helper()
	if err := pin(thread, processor); err != nil {
		tb.Fatal(err)
	}
}

func pin(thread, processor int) error {
	var set unix.CPUSet
	set.Set(processor)
	return unix.SchedSetaffinity(thread, &set)
}
