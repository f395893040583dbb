// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
)

// errHostClosed says that the agent is ending.
var errHostClosed = errors.New("the agent is ending")

// hostThread starts the programs of pods on the host's network, from a thread that lives as long as it is open: they die with it
// (prctl(2), PR_SET_PDEATHSIG).
type hostThread struct {
	orders  chan func()
	closing chan struct{}
}

func newHostThread() *hostThread {
	h := &hostThread{orders: make(chan func()), closing: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for {
			select {
			case order := <-h.orders:
				order()
			case <-h.closing:
				return
			}
		}
	}()
	return h
}

// Start implements container.Starter.
func (h *hostThread) Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error, 1)
	select {
	case h.orders <- func() { done <- command.Start() }:
		return <-done
	case <-h.closing:
		return errHostClosed
	}
}

func (h *hostThread) close() { close(h.closing) }
