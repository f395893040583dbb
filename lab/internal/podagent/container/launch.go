// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Name is the hidden subcommand that is the launcher.
const Name = "pod-container"

// The launcher's descriptors: on the first it says what went wrong, and the second, from which nothing ever comes, ends with the agent.
const (
	reportFD = 3
	agentFD  = 4
)

// NewCommand returns the hidden subcommand, which Start runs.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:    Name + " SPEC",
		Short:  "Become a program of a pod (used by the node agents)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return Launch(args[0]) },
	}
}

// Launch becomes the program that the file describes. It returns only if it cannot; the agent has been told why then.
func Launch(path string) error {
	runtime.LockOSThread() // what follows is this thread's, and the program is what this thread becomes
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(agentFD)
	err := launch(path)
	report := os.NewFile(reportFD, "report")
	_, writeErr := report.WriteString(err.Error())
	return errors.Join(err, writeErr)
}

func launch(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what to run: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return fmt.Errorf("reading what to run: %w", err)
	}
	if spec.Hostname != "" {
		if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
			return fmt.Errorf("setting the host's name: %w", err)
		}
	}
	if err := enterRoot(spec); err != nil {
		return err
	}
	if err := giveUpRights(spec); err != nil {
		return err
	}
	if err := bindToAgent(); err != nil {
		return err
	}
	if err := syscall.Exec(spec.Exec, spec.Argv, spec.Env); err != nil {
		return fmt.Errorf("executing %s: %w", spec.Exec, err)
	}
	return nil
}

// giveUpRights leaves this thread, and all others, the user and the capabilities that the spec allows.
func giveUpRights(spec Spec) error {
	known, err := knowsIDs(append(slices.Clone(spec.Groups), spec.Group), spec.User)
	if err != nil {
		return err
	}
	if !spec.Privileged || !known {
		kept := spec.Capabilities
		if !known {
			kept = nil
		}
		// Before the user is another, who may no longer do it.
		if err := dropCapabilities(kept); err != nil {
			return err
		}
	}
	if known {
		if err := becomeUser(spec); err != nil {
			return err
		}
	}
	if !spec.MayGainPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("giving up new privileges: %w", err)
		}
	}
	return nil
}

func becomeUser(spec Spec) error {
	if err := syscall.Setgroups(spec.Groups); err != nil {
		return fmt.Errorf("joining the groups %v: %w", spec.Groups, err)
	}
	if err := syscall.Setgid(spec.Group); err != nil {
		return fmt.Errorf("becoming group %d: %w", spec.Group, err)
	}
	if err := syscall.Setuid(spec.User); err != nil {
		return fmt.Errorf("becoming user %d: %w", spec.User, err)
	}
	return nil
}

// bindToAgent has the kernel kill this process when the agent ends. The kernel forgets that wish when the user of a process changes, so that it must
// be said again; and the agent may have ended in between.
func bindToAgent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to die with the agent: %w", err)
	}
	poll := []unix.PollFd{{Fd: agentFD, Events: unix.POLLIN}}
	if _, err := unix.Poll(poll, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("looking whether the agent is there: %w", err)
	}
	if poll[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
		return errors.New("the agent has ended")
	}
	return nil
}
