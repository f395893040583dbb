// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package birdc

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// serve answers as BIRD does, on a socket whose path is longer than that of a socket may be.
func serve(t *testing.T, answers map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join("/proc/self/fd", fmt.Sprint(folder.Fd()), "bird.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = folder.Close()
	})
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(connection, "0001 BIRD 1.6.8 ready.")
			if command, err := bufio.NewReader(connection).ReadString('\n'); err == nil {
				fmt.Fprint(connection, answers[strings.TrimSpace(command)])
			}
			_ = connection.Close()
		}
	}()
	return filepath.Join(dir, "bird.ctl")
}

func TestAsk(t *testing.T) {
	t.Parallel()
	socket := serve(t, map[string]string{
		"show protocols":   "2002-name proto\n1002-kernel1 Kernel\n direct1 Direct\n0000 \n",
		"disable \"no*\"":  "8003 No protocols match\n",
		"dance":            "9001 syntax error, unexpected $undefined\n",
		"configure":        "0002-Reading configuration from bird.cfg\n0003 Reconfigured\n",
		"show nothing":     "0000 \n",
		"be cut off":       "1007-10.0.0.0/8 via\n",
		"have no number":   "x\n",
		"show route count": "0014 3 of 3 routes for 2 networks\n",
	})
	for command, want := range map[string][]string{
		"show protocols": {"name proto", "kernel1 Kernel", "direct1 Direct"}, "configure": {"Reading configuration from bird.cfg", "Reconfigured"},
		"show nothing": nil, "show route count": {"3 of 3 routes for 2 networks"},
	} {
		got, err := Ask(t.Context(), socket, command)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
	for command, want := range map[string]string{
		"disable \"no*\"": "it answers: No protocols match", "dance": "it answers: syntax error, unexpected $undefined", "be cut off": "EOF",
		"have no number": `it answers "x", which has no number`,
	} {
		_, err := Ask(t.Context(), socket, command)
		if full := fmt.Sprintf("asking BIRD at %s to %q: %s", socket, command, want); err == nil || err.Error() != full {
			t.Errorf("%s: %v\nwant %s", command, err, full)
		}
	}
	if _, err := Ask(t.Context(), filepath.Join(t.TempDir(), "bird.ctl"), "show status"); err == nil {
		t.Error("nobody answered, and that was no error")
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	got := Sessions(strings.Split(`name     proto    table    state  since       info
static1  Static   master   up     07:41:06    
kernel1  Kernel   master   up     07:41:06    
Mesh_172_30_0_3 BGP      master   up     07:41:08    Established   
Node_172_30_0_4 BGP      master   start  07:41:06    Active        Socket: Connection refused
Node_172_30_0_5 BGP      master   down   07:41:06    
Global_fd00_30__6 BGP      master   up     07:41:08    Established   
uplink   BGP      master   up     07:41:08    Established   `, "\n"))
	want := []Session{
		{Protocol: "Mesh_172_30_0_3", Peer: netip.MustParseAddr("172.30.0.3"), Established: true, Info: "Established"},
		{Protocol: "Node_172_30_0_4", Peer: netip.MustParseAddr("172.30.0.4"), Info: "Active Socket: Connection refused"},
		{Protocol: "Node_172_30_0_5", Peer: netip.MustParseAddr("172.30.0.5")},
		{Protocol: "Global_fd00_30__6", Peer: netip.MustParseAddr("fd00:30::6"), Established: true, Info: "Established"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	got := Paths(strings.Split(`172.30.0.0/16      dev eth0 [direct1 07:41:06] * (240)
10.244.1.0/26      via 172.30.0.3 on eth0 [Node_172_30_0_4 07:41:10 from 172.30.0.4] * (100/0) [i]
                   via 172.30.0.3 on eth0 [Node_172_30_0_5 07:41:10 from 172.30.0.5] (100/0) [i]
                   via 172.30.0.3 on eth0 [kernel1 07:41:12] (10)
10.244.2.0/26      blackhole [static1 07:41:06] * (200)
10.244.2.7/32      dev cali0 [kernel1 07:41:06] * (10)
10.244.3.0/26      unreachable [Mesh_172_30_0_6 07:41:10 from 172.30.0.6] * (100/-) [i]
fd00:244:3::/122   via fd00:30::6 on eth0 [Mesh_fd00_30__6 07:41:10] * (100/0) [i]`, "\n"))
	want := map[netip.Prefix]int{
		netip.MustParsePrefix("10.244.1.0/26"): 2, netip.MustParsePrefix("10.244.3.0/26"): 1, netip.MustParsePrefix("fd00:244:3::/122"): 1,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}
