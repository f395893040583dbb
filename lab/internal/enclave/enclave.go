// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package enclave puts a whole lab with real machines into namespaces of its own, of network and mounts, which needs root. Nothing in there
// can be reached from outside but through the ports that the caller holds, and nothing in there reaches the outside.
//
// The lab's binary starts itself a second time as the first process of the namespaces (Start). That process furnishes them (Furnish), relays the
// outside's ports to its own ones of the same numbers, and runs the lab. Namespaces have no names, and each process dies with the one that
// started it (prctl(2), PR_SET_PDEATHSIG): whatever ends the first process ends all of it, and the kernel removes what is left.
//
// Ports that are relayed have the same number inside and outside, both on 127.0.0.1, so that a kubeconfig, a URL or a certificate is
// right on both sides.
package enclave

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
)

// ErrSaid reports that the process in the enclave has failed and has said why by itself.
var ErrSaid = errors.New("the lab has said why it ended")

// Ports are sockets of the outside, listening on 127.0.0.1, by the name of the port.
type Ports map[string]*net.TCPListener

// Listen holds a port of the outside for each name: that of fixed, or any free one.
func Listen(ctx context.Context, names []string, fixed map[string]int) (Ports, error) {
	ports := Ports{}
	for _, name := range names {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(fixed[name]))
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("port %d on 127.0.0.1 is already in use by another program; choose another port or stop that program", fixed[name])
		}
		if err != nil {
			return nil, errors.Join(err, ports.Close())
		}
		ports[name] = listener.(*net.TCPListener)
	}
	return ports, nil
}

// Close lets go of the ports.
func (p Ports) Close() error {
	var errs []error
	for _, listener := range p {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}

// Numbers are the ports' numbers by name.
func (p Ports) Numbers() map[string]int {
	numbers := map[string]int{}
	for name, listener := range p {
		numbers[name] = listener.Addr().(*net.TCPAddr).Port
	}
	return numbers
}

// Flag is the hidden flag of the command that Start runs: how the process inside gets the Ports. Its presence says that it is inside.
const Flag = "inside"

// firstDescriptor is the number of the first of ExtraFiles in a child (os/exec).
const firstDescriptor = 3

// Command describes the process inside.
type Command struct {
	// Executable is the lab's own binary, Args its arguments without Flag.
	Executable string
	Args       []string
	// Files are further descriptors for it, from 3 on. They stay the caller's.
	Files []*os.File
	// Ports are the outside's, which Start gives away.
	Ports Ports
}

// Start runs the command in an enclave until it ends, which it is told to do (SIGTERM) when ctx does. Standard input and output are the caller's.
// The error is netns.ErrNotAllowed where no namespaces may be made, and ErrSaid if the command has failed.
func (c Command) Start(ctx context.Context) error {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, c.Executable)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	described, err := c.give(command)
	if err != nil {
		return err
	}
	command.Args = append(append([]string{c.Executable}, c.Args...), "--"+Flag+"="+described)
	err = command.Start()
	// Anyone who asks must be refused once the child is gone, so the ports are the child's alone.
	for _, file := range command.ExtraFiles[len(c.Files):] {
		_ = file.Close()
	}
	_ = c.Ports.Close()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w (%w)", netns.ErrNotAllowed, err)
	case err != nil:
		return fmt.Errorf("starting the lab in namespaces of its own: %w", err)
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%w (%w)", ErrSaid, err)
	}
	return nil
}

// give makes the child's descriptors of the files and ports, and describes the ports for Flag.
func (c Command) give(command *exec.Cmd) (described string, err error) {
	command.ExtraFiles = slices.Clone(c.Files)
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.Ports)) {
		file, err := c.Ports[name].File()
		if err != nil {
			return "", fmt.Errorf("giving away the port of %s: %w", name, err)
		}
		words = append(words, name+"="+strconv.Itoa(firstDescriptor+len(command.ExtraFiles)))
		command.ExtraFiles = append(command.ExtraFiles, file)
	}
	return strings.Join(words, ","), nil
}

// Receive is what the process inside makes of the value of Flag.
func Receive(described string) (Ports, error) {
	ports := Ports{}
	if described == "" {
		return ports, nil
	}
	for word := range strings.SplitSeq(described, ",") {
		name, number, _ := strings.Cut(word, "=")
		descriptor, err := strconv.Atoi(number)
		if err != nil || name == "" || descriptor < firstDescriptor {
			return nil, fmt.Errorf("--%s: %q is not name=descriptor; this flag is for the lab itself", Flag, word)
		}
		file := os.NewFile(uintptr(descriptor), name)
		listener, err := net.FileListener(file) // a copy, which no child inherits
		_ = file.Close()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--%s: descriptor %d is not a socket that listens: %w", Flag, descriptor, err), ports.Close())
		}
		tcp, ok := listener.(*net.TCPListener)
		if !ok {
			return nil, errors.Join(fmt.Errorf("--%s: descriptor %d is not a TCP socket", Flag, descriptor), listener.Close(), ports.Close())
		}
		ports[name] = tcp
	}
	return ports, nil
}
