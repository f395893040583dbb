// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What status of a thousand Nodes may cost.
const (
	manyNodes    = 1000
	mostRequests = 40
	mostCPU      = time.Second
)

// TestRequestsOfStatus counts what status asks of the API server in a cluster of a thousand Nodes where nothing is at fault.
func TestRequestsOfStatus(t *testing.T) {
	s := newStage(t)
	w := healthy(t, time.Now())
	for i := 4; i <= manyNodes; i++ {
		name := fmt.Sprintf("w%d", i)
		w.machine(name, i, false)
		w.lease(corev1.NamespaceNodeLease, name, "") // which its kubelet has
	}
	s.set(w)
	s.beat()
	f := newFront(t, s.server.Config.Host)
	s.through(f, func() {
		// An API server that has just begun to serve a kind asks clients to come again, once for each of them.
		s.status()
		f.set(0, nil)
		var before, after syscall.Rusage
		s.must(syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		a := s.status()
		s.must(syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		cpu := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
		sent := f.sent()
		slices.Sort(sent)
		t.Logf("status of %d Nodes ends with %d: %d requests, %s of CPU, the front and DigitalOcean's simulator included:\n%s", manyNodes, a.code, len(sent), cpu, strings.Join(sent, "\n"))
		if len(sent) > mostRequests {
			t.Errorf("status sends %d requests, at most %d are allowed:\n%s", len(sent), mostRequests, strings.Join(sent, "\n"))
		}
		if cpu > mostCPU {
			t.Errorf("status takes %s of CPU, more than %s", cpu, mostCPU)
		}
	})
}
