// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is the only address on which anything of the lab listens.
const Host = "127.0.0.1"

// OccupiedError reports that a port which the user asked for is in use by somebody else.
type OccupiedError struct{ Port int }

// Error implements error.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("port %d on %s is already in use by another program; choose another port or stop that program", e.Port, Host)
}

// Holder holds ports until it is closed. The zero value is ready to use. It is safe for concurrent use.
type Holder struct {
	mu sync.Mutex // guards fds
	// fds are bound sockets that never listen.
	fds []int
}

// Any holds a port that nobody else has and returns its number.
func (h *Holder) Any() (int, error) {
	fd, err := newSocket()
	if err != nil {
		return 0, err
	}
	port, err := hold(fd, 0)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("binding a free port on %s: %w", Host, err), unix.Close(fd))
	}
	h.keep(fd)
	return port, nil
}

// Exactly holds the given port (1 to 65535). It returns an *OccupiedError when somebody else has it.
//
// A plain bind would also be refused for a minute after a former server of ours has stopped, because of its connections in
// TIME_WAIT. So the proof that nobody has the port is a listening socket with SO_REUSEADDR, which tolerates TIME_WAIT but no other
// bound socket; the holder joins it and the proof is closed.
func (h *Holder) Exactly(ctx context.Context, port int) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("port %d does not exist; choose one from 1 to 65535", port)
	}
	var plain net.ListenConfig // with SO_REUSEADDR, as always in Go
	listener, err := plain.Listen(ctx, "tcp4", net.JoinHostPort(Host, strconv.Itoa(port)))
	if err != nil {
		return explain(port, err)
	}
	defer listener.Close()
	if err := shareListener(listener.(*net.TCPListener)); err != nil {
		return err
	}
	fd, err := newSocket()
	if err != nil {
		return err
	}
	if err := joinPort(fd, port); err != nil {
		return errors.Join(explain(port, err), unix.Close(fd))
	}
	h.keep(fd)
	return nil
}

// Close lets go of all ports.
func (h *Holder) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, fd := range h.fds {
		errs = append(errs, unix.Close(fd))
	}
	h.fds = nil
	return errors.Join(errs...)
}

func (h *Holder) keep(fd int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fds = append(h.fds, fd)
}

// Listen listens on a held port, as the process that the port is held for does.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return setReusePort(conn)
	}}
	listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort(Host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on the held port %d: %w", port, err)
	}
	return listener, nil
}

func newSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket: %w", err)
	}
	return fd, nil
}

// hold binds fd and only then makes it shareable; the order is what makes the port ours alone.
func hold(fd, port int) (int, error) {
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	address, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("the kernel answered with a socket name of type %T", name)
	}
	return address.Port, nil
}

// joinPort binds fd to a port on which a shareable socket of ours listens. SO_REUSEADDR is needed for connections in TIME_WAIT and is
// taken off afterwards, so that no later bind with SO_REUSEADDR alone is let in.
func joinPort(fd, port int) error {
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
}

func shareListener(listener *net.TCPListener) error {
	conn, err := listener.SyscallConn()
	if err != nil {
		return fmt.Errorf("reaching the socket of %s: %w", listener.Addr(), err)
	}
	return setReusePort(conn)
}

func setReusePort(conn syscall.RawConn) error {
	var optionErr error
	err := conn.Control(func(fd uintptr) {
		optionErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	if err := errors.Join(err, optionErr); err != nil {
		return fmt.Errorf("setting SO_REUSEPORT: %w", err)
	}
	return nil
}

func explain(port int, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return &OccupiedError{Port: port}
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("port %d on %s may only be used by root; choose a port above 1023", port, Host)
	default:
		return fmt.Errorf("binding port %d on %s: %w", port, Host, err)
	}
}
