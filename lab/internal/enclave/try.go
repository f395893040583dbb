// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package enclave

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/podnet"
)

// tryName is the hidden subcommand that makes an enclave with one pod and leaves it at once.
const tryName = "try-pods"

// tryTimeout bounds the attempt.
const tryTimeout = 20 * time.Second

// Try makes an enclave with one pod, as a lab does, and takes it down at once. The error is for users: one sentence that says what this machine does
// not allow. executable is the lab's own binary.
func Try(ctx context.Context, executable string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, executable, tryName)
	var problems bytes.Buffer
	command.Stderr = &problems
	err := command.Run()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(problems.String()) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "lab "+tryName+": "); ok {
			return errors.New(said)
		}
	}
	return fmt.Errorf("trying to make a network of pods: %w", err)
}

// NewTryCommand returns the hidden subcommand of Try.
func NewTryCommand() *cobra.Command {
	var inside string
	command := &cobra.Command{
		Use:    tryName,
		Short:  "See whether pods can run here (used by the lab)",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	command.Flags().StringVar(&inside, Flag, "", "descriptors of the ports that are relayed")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if command.Flags().Changed(Flag) {
			return denied(build(context.Background()))
		}
		return Command{Executable: "/proc/self/exe", Args: []string{tryName}}.Start(context.Background())
	}
	return command
}

// build is what Try has its process do: a pod that speaks to a Service's address.
func build(ctx context.Context) error {
	if err := Furnish(Pods); err != nil {
		return err
	}
	network, err := podnet.New()
	if err != nil {
		return err
	}
	pod, err := network.Attach(ctx, tryName)
	if err != nil {
		return err
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: podnet.APIServer().Addr().AsSlice()})
	if err != nil {
		return fmt.Errorf("listening at the address of a Service: %w", err)
	}
	err = pod.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", listener.Addr().String())
		if err != nil {
			return fmt.Errorf("reaching a Service from a pod: %w", err)
		}
		return c.Close()
	})
	return errors.Join(err, listener.Close(), network.Close())
}

// denied says what a refusal of the kernel means.
func denied(err error) error {
	switch {
	case err == nil, errors.Is(err, netns.ErrNotAllowed):
		return err
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (%w)", netns.ErrNotAllowed, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the kernel has no bridges or virtual network cables (modules bridge and veth): %w", err)
	default:
		return err
	}
}
