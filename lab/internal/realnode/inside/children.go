// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are the processes of a PID namespace as its first process sees them: those that it has started, and those that have lost their parents,
// such as shims, which it must collect when they end.
type children struct {
	mu      sync.Mutex // guards started
	started map[int]chan unix.WaitStatus
}

func newChildren() *children {
	c := &children{started: map[int]chan unix.WaitStatus{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		for range signals {
			c.collect()
		}
	}()
	return c
}

// start starts a program, whose end comes through the channel.
func (c *children) start(args, env []string, log *os.File) (<-chan unix.WaitStatus, error) {
	c.mu.Lock() // until it is known here: it may end at once
	defer c.mu.Unlock()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	ended := make(chan unix.WaitStatus, 1)
	c.started[pid] = ended
	return ended, nil
}

// collect waits for all processes that have ended.
func (c *children) collect() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
		c.mu.Lock()
		if ended, ok := c.started[pid]; ok {
			ended <- status
			delete(c.started, pid)
		}
		c.mu.Unlock()
	}
}
