// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
)

// tryFlag is the flag of the hidden subcommand that builds a network and leaves it at once.
const tryFlag = "try"

// tryTimeout bounds the attempt.
const tryTimeout = 20 * time.Second

// Tools are what a network needs of others: the folder of confd's templates, and the programs bird and bird6.
type Tools struct{ Templates, Bird, Bird6 string }

// FindTools finds them. The error is for users: one sentence that says what is missing and how to get it.
func FindTools(ctx context.Context) (t Tools, err error) {
	if t.Bird, t.Bird6, err = speaker.FindBird(); err != nil {
		return Tools{}, err
	}
	if t.Templates, err = speaker.FindTemplates(ctx); err != nil {
		return Tools{}, err
	}
	return t, nil
}

// Try makes a network of two machines, in a process of its own as a lab does, and takes it down at once. The error is for users: one sentence
// that says what this machine does not allow. executable is the lab's own binary.
func Try(ctx context.Context, executable string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, executable, Name, "--"+tryFlag)
	var problems bytes.Buffer
	command.Stderr = &problems
	err := command.Run()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(problems.String()) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "lab "+Name+": "); ok {
			return errors.New(said)
		}
	}
	return fmt.Errorf("trying to make a network: %w", err)
}

// build is what Try has its process do.
func build() error {
	f, err := fabric.New()
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	for i, name := range []string{"one", "other"} {
		address := netip.AddrFrom4([4]byte{172, 30, 0, byte(2 + i)})
		pod := netip.AddrFrom4([4]byte{10, 244, byte(i), 1})
		if _, err := f.Add(fabric.Machine{Name: name, Address: netip.PrefixFrom(address, 16), Pods: []netip.Addr{pod}}); err != nil {
			return denied(err)
		}
	}
	return nil
}

// denied says what a refusal of the kernel means.
func denied(err error) error {
	switch {
	case errors.Is(err, netns.ErrNotAllowed):
		return err
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (%w)", netns.ErrNotAllowed, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the kernel has no bridges or virtual network cables (modules bridge and veth): %w", err)
	default:
		return err
	}
}
