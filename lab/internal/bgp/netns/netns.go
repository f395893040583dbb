// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package netns makes network namespaces that nobody has to clean up.
//
// A namespace is held by one thread of this process and by the processes that were started from that thread. It has no name in the file system.
// When this process ends, however it ends, the kernel kills those processes (prctl(2), PR_SET_PDEATHSIG) and then removes the namespace with
// all its devices. So nothing is left behind after kill -9, and nothing of anybody else can be taken for ours.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotAllowed reports that this process may not make a network namespace.
var ErrNotAllowed = errors.New("network namespaces may not be made here; run as root, or allow unprivileged user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces)")

// ErrClosed reports that the namespace has been closed.
var ErrClosed = errors.New("the network namespace has been closed")

// Namespace is a network namespace. Its methods may be called by any goroutine, at any time.
type Namespace struct {
	orders chan func()
	// closing is closed by Close, ended once the thread's work is over.
	closing, ended chan struct{}
	close          func()
}

// New makes a namespace in which nothing is but lo, which is down.
func New() (*Namespace, error) {
	n := &Namespace{orders: make(chan func()), closing: make(chan struct{}), ended: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closing) })
	made := make(chan error)
	go n.hold(made)
	if err := <-made; err != nil {
		return nil, err
	}
	return n, nil
}

// hold runs on a thread of its own until Close. The thread is never unlocked, so it ends with the goroutine and takes the namespace along.
func (n *Namespace) hold(made chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// Go never ends the first thread. While this goroutine keeps it, another gets another.
		go n.hold(made)
		<-n.ended
		runtime.UnlockOSThread()
		return
	}
	defer close(n.ended)
	err := unix.Unshare(unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w (%w)", ErrNotAllowed, err)
	}
	made <- err
	if err != nil {
		return
	}
	for {
		select {
		case order := <-n.orders:
			order()
		case <-n.closing:
			return
		}
	}
}

// Do calls f on the namespace's thread. Sockets that f opens belong to the namespace for good; f must not wait for other calls of Do. The error
// is ErrClosed, and f is not called, if the namespace has been closed.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	select {
	case n.orders <- func() { done <- f() }: // the thread has taken it, so it carries it out
		return <-done
	case <-n.closing:
		return ErrClosed
	}
}

// Start starts a command in the namespace. It dies with the namespace.
func (n *Namespace) Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return n.Do(command.Start)
}

// Open returns a descriptor of the namespace, for setns(2) and for moving devices.
func (n *Namespace) Open() (*os.File, error) {
	var file *os.File
	err := n.Do(func() (err error) {
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return file, err
}

// Close ends the namespace's thread, which kills what was started in it. The kernel removes the devices soon after, once no socket of the
// namespace is open any more. Further calls do nothing.
func (n *Namespace) Close() {
	n.close()
	<-n.ended
}
