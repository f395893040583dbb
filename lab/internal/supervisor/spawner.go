// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// spawner starts children from one thread that lives as long as the spawner is open; see the package comment for why.
type spawner struct {
	orders chan func()
}

func newSpawner() *spawner {
	s := &spawner{orders: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and then no child is left
		for order := range s.orders {
			order()
		}
	}()
	return s
}

// close may be called only when all children are gone.
func (s *spawner) close() { close(s.orders) }

func (s *spawner) start(owner *supervisor, description blueprint.Process) (*exec.Cmd, error) {
	log, err := os.OpenFile(description.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close() // the child has its own copy
	program := description.Program
	if program == "" {
		program = owner.Executable
	}
	command := &exec.Cmd{
		Path:   program,
		Args:   append([]string{program}, description.Args...),
		Env:    description.Env,
		Dir:    owner.Dir,
		Stdout: log,
		Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
		},
	}
	if command.Env == nil {
		command.Env = []string{} // nil would mean: inherit
	}
	started := make(chan error)
	s.orders <- func() { started <- command.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return command, nil
}

// wait waits for the child to end and then kills what it may have left in its process group. Until the child is reaped its id, and so
// its group's, cannot be given to anybody else.
func wait(command *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// ESRCH, the usual case, means that nobody was left.
	_ = unix.Kill(-command.Process.Pid, unix.SIGKILL)
	return command.Wait()
}
