// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

func TestIdentityOfARecycledIDIsAnother(t *testing.T) {
	t.Parallel()
	self := must.Get(process.Self()).Or(t)
	if !self.Alive() {
		t.Error("this process does not think that it is alive")
	}
	for name, other := range map[string]process.Identity{
		"started at another time": {PID: self.PID, StartTime: self.StartTime + 1, Boot: self.Boot},
		"of another boot":         {PID: self.PID, StartTime: self.StartTime, Boot: "another"},
		"nobody":                  {},
	} {
		if other.Alive() {
			t.Errorf("%s: alive", name)
		}
		// Were the check missing, this would end the test binary.
		if err := other.Signal(unix.SIGKILL); !errors.Is(err, process.ErrGone) {
			t.Errorf("%s: signal: %v", name, err)
		}
	}
}

func TestSignalAndZombie(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "sleep", "600")
	must.Do(t, command.Start())
	child := must.Get(process.Of(command.Process.Pid)).Or(t)
	must.Do(t, child.Signal(unix.SIGKILL))
	// Not yet reaped: a zombie counts as gone.
	must.Do(t, child.WaitGone(t.Context()))
	if err := command.Wait(); err == nil {
		t.Error("the child ended well after SIGKILL")
	}
	if err := child.Signal(unix.SIGKILL); !errors.Is(err, process.ErrGone) {
		t.Errorf("a signal to a process that is gone: %v", err)
	}
}
