// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports that [FreeAddress] hands out. They are below those that Linux gives to connections and to listeners that name none
// (net.ipv4.ip_local_port_range, from 32768), so that none of these takes one before the program that it was chosen for.
const (
	firstPort = 16_384
	lastPort  = 29_999
)

// reserved are the locks of the ports that this process has handed out. They are held until it ends.
var reserved struct { //nolint:gochecknoglobals // a lock is the process's
	sync.Mutex
	locks []*os.File
}

// FreeAddress returns a loopback address that nothing listens on, for a program that takes its address as a flag. No other test process of the
// user is given the port until this one exits.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	folder := filepath.Join(os.TempDir(), "mooring-test-ports-"+strconv.Itoa(os.Getuid())) //nolint:usetesting // all test processes of a user share it
	must.Do(tb, os.MkdirAll(folder, 0o700))
	const ports = lastPort - firstPort + 1
	for i := range ports {
		port := strconv.Itoa(firstPort + (os.Getpid()*101+i)%ports) // each process begins elsewhere
		if address := net.JoinHostPort("127.0.0.1", port); reserve(tb, filepath.Join(folder, port)) && free(tb, address) {
			return address
		}
	}
	tb.Fatalf("no port from %d to %d is free", firstPort, lastPort)
	return ""
}

// reserve takes the lock of a port, which the kernel releases when this process ends.
func reserve(tb testing.TB, path string) bool {
	tb.Helper()
	file := must.Get(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)).Or(tb)
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return false
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.locks = append(reserved.locks, file)
	return true
}

// free reports whether nothing listens on an address, such as a program that knows nothing of the locks.
func free(tb testing.TB, address string) bool {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
