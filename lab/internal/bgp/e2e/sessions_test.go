// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/lab/internal/bgp/birdc"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
)

// TestSessionsOfAReflector measures what the default of sizing.maxClientsPerReflector rests on: a reflector, with the options
// of Calico's template that matter, and many clients, each with one prefix, in one network namespace. The terms are those of
// RFC 7747: the time until all clients have all routes, and the reflector's own CPU time and memory, which a busy machine
// does not change.
func TestSessionsOfAReflector(t *testing.T) {
	bird, _, err := speaker.FindBird()
	if err != nil {
		testkit.Skip(t, "%v", err)
	}
	if out, err := unshare(t.Context(), "true").CombinedOutput(); err != nil {
		testkit.Skip(t, "namespaces of one's own are not allowed here: %v: %s", err, out)
	}
	sizes := []int{500, 1000, 2000}
	switch {
	case testing.Short():
		sizes = sizes[:0]
	case cases.Number(t, 0, 0, 1) == 0: // 2,000 take minutes
		sizes = sizes[:2]
	}
	for _, clients := range append([]int{200}, sizes...) {
		reflect(t, bird, clients)
	}
}

// unshare runs a command in namespaces of its own, with its processes.
func unshare(ctx context.Context, command ...string) *exec.Cmd {
	args := []string{"--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"}
	return exec.CommandContext(ctx, "unshare", append(args, command...)...)
}

// reflect starts the clients and then the reflector, and measures.
func reflect(t *testing.T, bird string, clients int) {
	t.Helper()
	dir := t.TempDir()
	script := birds(t, dir, bird, clients)
	ctx, cancel := context.WithCancel(t.Context())
	c := unshare(ctx, "sh", script)
	c.Stderr, c.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = c.Wait() }()
	routes := func(name string) int {
		lines, err := birdc.Ask(t.Context(), filepath.Join(dir, name+".ctl"), "show route count")
		if err != nil || len(lines) == 0 {
			return 0
		}
		count, _ := strconv.Atoi(strings.Fields(lines[0])[0])
		return count
	}
	all := func(name string) func() string {
		return func() string {
			if n := routes(name); n < clients {
				return fmt.Sprintf("%s has %d of %d routes", name, n, clients)
			}
			return ""
		}
	}
	testkit.Eventually(t, "the reflector's routes", all("reflector"))
	began := time.Now()
	for i := 0; i < clients; i += max(1, clients/20) {
		testkit.Eventually(t, "the clients' routes", all(fmt.Sprint("client-", i)))
	}
	cpu, memory := used(t, filepath.Join(dir, "reflector.conf"))
	t.Logf("%d clients: all have all routes %.1f s after the reflector has; it used %.1f CPU-s and %d MiB", clients, time.Since(began).Seconds(), cpu, memory)
}

// birds writes the daemons' configurations and the script that starts them. It waits for the clients' sockets before it
// starts the reflector.
func birds(t *testing.T, dir, bird string, clients int) string {
	t.Helper()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const session = "  local as 64512; multihop; graceful restart; add paths on; connect delay time 2; connect retry time 5; error wait time 5,30;\n"
	reflector := "router id 10.0.0.1;\nlisten bgp address 10.0.0.1;\nprotocol device {}\n"
	for i := range clients {
		address := fmt.Sprintf("10.1.%d.%d", (i+1)/250, (i+1)%250+1)
		reflector += fmt.Sprintf("protocol bgp c%d {\n  source address 10.0.0.1; neighbor %s as 64512; rr client; rr cluster id 244.0.0.1; import all; export all;\n%s}\n", i, address, session)
		write(fmt.Sprintf("client-%d.conf", i), fmt.Sprintf("router id %[1]s;\nlisten bgp address %[1]s;\nprotocol device {}\n"+
			"protocol static { route 10.%[2]d.%[3]d.0/26 unreachable; }\n"+
			"protocol bgp up {\n  source address %[1]s; neighbor 10.0.0.1 as 64512; import all; export where source = RTS_STATIC;\n%[4]s}\n",
			address, 100+i/256, i%256, session))
	}
	write("reflector.conf", reflector)
	return write("start.sh", fmt.Sprintf(`set -e
cd %[1]s
ip link set lo up
ip addr add 10.1.0.0/16 dev lo
ip addr add 10.0.0.1/32 dev lo

for i in $(seq 0 %[3]d); do %[2]s -f -c client-$i.conf -s client-$i.ctl -P client-$i.pid & done
until [ -S client-%[3]d.ctl ]; do sleep 0.2; done
sleep 2
%[2]s -f -c %[1]s/reflector.conf -s reflector.ctl -P reflector.pid &
wait
`, dir, bird, clients-1))
}

// used returns the CPU seconds and the memory, in MiB, of the process that was started with a file, from /proc (proc(5)).
func used(t *testing.T, file string) (cpu float64, memory int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), "\x00"+file+"\x00") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		status, err2 := os.ReadFile(filepath.Join(filepath.Dir(path), "statm"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		pages, _ := strconv.Atoi(strings.Fields(string(status))[1])
		return float64(user+system) / 100, pages * os.Getpagesize() >> 20
	}
	t.Fatalf("no process has %s", file)
	return 0, 0
}
