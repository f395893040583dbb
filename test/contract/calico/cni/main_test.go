// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/lending"
)

// insideVariable tells the process that it is in namespaces of its own, and otherwise why it is not.
const insideVariable = "MOORING_CNI_INSIDE"

const isInside = "yes"

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel) // libcalico-go's log belongs to the process, and this process to the tests
	var err error
	if os.Getenv(insideVariable) == isInside {
		err = furnish()
	} else {
		err = os.Setenv(insideVariable, enter())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cni:", err)
		os.Exit(1)
	}
	testkit.Main(m)
}

// enter executes this program again in new network and mount namespaces. It returns only if that is not possible, with the reason.
func enter() string {
	if os.Geteuid() != 0 {
		return "it needs root, to make network namespaces and interfaces"
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err.Error()
	}
	flags := []string{"--net", "--mount", "--propagation", "private"}
	if out, err := exec.Command(unshare, append(flags, "true")...).CombinedOutput(); err != nil {
		return fmt.Sprintf("network and mount namespaces may not be made here: %s (%v)", strings.TrimSpace(string(out)), err)
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error()
	}
	// A lent control plane listens on the loopback outside.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, lending.Variable+"=") })
	args := slices.Concat([]string{unshare}, flags, []string{"--", self}, os.Args[1:])
	return syscall.Exec(unshare, args, append(env, insideVariable+"="+isInside)).Error()
}

// furnish makes the new namespaces usable: loopback, and an empty /run, where the plugin keeps files of the machine and the test its sandboxes.
func furnish() error {
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting an empty /run: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	return nil
}

// needNamespaces skips the test where the process is not in namespaces of its own.
func needNamespaces(t *testing.T) {
	t.Helper()
	if reason := os.Getenv(insideVariable); reason != isInside {
		testkit.Skip(t, "%s", reason)
	}
}
