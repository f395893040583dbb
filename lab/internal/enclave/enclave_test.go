// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package enclave_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/enclave"
)

// TestPortsAreGiven gives ports as Start does: the receiver has the same ones, for itself alone.
func TestPortsAreGiven(t *testing.T) {
	t.Parallel()
	ports := must.Get(enclave.Listen(t.Context(), []string{"a", "b"}, nil)).Or(t)
	numbers := ports.Numbers()
	if len(numbers) != 2 || numbers["a"] == 0 || numbers["a"] == numbers["b"] {
		t.Fatalf("the ports are %v", numbers)
	}
	var words []string
	for _, name := range []string{"a", "b"} {
		file := must.Get(ports[name].File()).Or(t)
		descriptor, err := syscall.Dup(int(file.Fd())) // Receive closes what it is given
		must.Do(t, err)
		_ = file.Close()
		words = append(words, fmt.Sprintf("%s=%d", name, descriptor))
	}
	received := must.Get(enclave.Receive(strings.Join(words, ","))).Or(t)
	if got := received.Numbers(); got["a"] != numbers["a"] || got["b"] != numbers["b"] {
		t.Errorf("received %v of %v", got, numbers)
	}
	must.Do(t, ports.Close())
	c, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(numbers["a"])))
	if err != nil {
		t.Fatalf("the port is closed with its copy: %v", err)
	}
	_ = c.Close()
	must.Do(t, received.Close())
	if _, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(numbers["a"]))); err == nil {
		t.Error("the port is open after all copies are closed")
	}
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	must.Do(t, err)
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = enclave.Listen(t.Context(), []string{"a", "b"}, map[string]int{"b": port})
	want := fmt.Sprintf("port %d on 127.0.0.1 is already in use by another program; choose another port or stop that program", port)
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestReceiveRefuses(t *testing.T) {
	t.Parallel()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "file"))).Or(t)
	defer func() { _ = file.Close() }()
	descriptor := must.Get(syscall.Dup(int(file.Fd()))).Or(t)
	for described, want := range map[string]string{
		"a":                             `"a" is not name=descriptor`,
		"a=1":                           `"a=1" is not name=descriptor`,
		"=7":                            `"=7" is not name=descriptor`,
		"a=":                            `"a=" is not name=descriptor`,
		"a=99999":                       "descriptor 99999 is not a socket that listens",
		"a=" + strconv.Itoa(descriptor): "is not a socket that listens",
		",":                             "is not name=descriptor",
	} {
		if _, err := enclave.Receive(described); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", described, err, want)
		}
	}
	if none, err := enclave.Receive(""); err != nil || len(none) != 0 {
		t.Errorf("no ports: %v, %v", none, err)
	}
}
