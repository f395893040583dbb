// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package birdc asks a BIRD 1.6 daemon on its control socket, as Debian's program of that name does. The sockets of a lab's daemons are files,
// and so can be reached from outside of the network namespaces that the daemons are in.
package birdc

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// patience is how long a daemon may take to answer, where the context has no deadline of its own.
const patience = 10 * time.Second

// Ask sends one command to the daemon whose control socket is at a path, of any length, and returns the lines of its answer without their
// numbers. The daemon's own complaint is an error.
func Ask(ctx context.Context, socket, command string) ([]string, error) {
	connection, err := dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("asking BIRD at %s: %w", socket, err)
	}
	defer func() { _ = connection.Close() }()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	if err := connection.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("asking BIRD at %s: %w", socket, err)
	}
	reader := bufio.NewReader(connection)
	if _, err := read(reader); err != nil { // it says who it is
		return nil, fmt.Errorf("asking BIRD at %s: %w", socket, err)
	}
	if _, err := fmt.Fprintln(connection, command); err != nil {
		return nil, fmt.Errorf("asking BIRD at %s: %w", socket, err)
	}
	lines, err := read(reader)
	if err != nil {
		return nil, fmt.Errorf("asking BIRD at %s to %q: %w", socket, command, err)
	}
	return lines, nil
}

// dial connects to a socket whose path may be longer than that of a socket may be.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	folder, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	short := filepath.Join("/proc/self/fd", fmt.Sprint(folder.Fd()), filepath.Base(socket))
	return (&net.Dialer{}).DialContext(ctx, "unix", short)
}

// numberLength is that of the number that begins a line, with the character after it: "-" if further lines follow, " " in the last.
const numberLength = 5

// read reads one answer. A line without a number goes on with that of the line before.
func read(reader *bufio.Reader) ([]string, error) {
	var lines []string
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, " "):
			lines = append(lines, line[1:])
			continue
		case len(line) < numberLength:
			return nil, fmt.Errorf("it answers %q, which has no number", line)
		}
		text := line[numberLength:]
		if line[0] == '8' || line[0] == '9' { // failures at run time, and commands that it does not understand
			return nil, fmt.Errorf("it answers: %s", text)
		}
		if text != "" {
			lines = append(lines, text)
		}
		if line[numberLength-1] == ' ' {
			return lines, nil
		}
	}
}

// Session is a BGP protocol of a daemon.
type Session struct {
	// Protocol is its name, such as Node_172_30_0_3.
	Protocol string
	// Peer is the address that confd has made that name of.
	Peer netip.Addr
	// Established reports that the session is up.
	Established bool
	// Info is what the daemon says of it otherwise, such as "Active        Socket: Connection refused".
	Info string
}

// Columns of `show protocols`: name, kind, table, state, since; what follows is Info.
const (
	kindColumn    = 1
	infoColumn    = 5
	fewestColumns = 5
)

// Sessions reads the answer to `show protocols`. Protocols whose names are not those of Calico's templates are left out.
func Sessions(lines []string) []Session {
	var out []Session
	for _, line := range lines {
		columns := strings.Fields(line)
		if len(columns) < fewestColumns || columns[kindColumn] != "BGP" {
			continue
		}
		peer, ok := peerOf(columns[0])
		if !ok {
			continue
		}
		s := Session{Protocol: columns[0], Peer: peer}
		if len(columns) > infoColumn {
			s.Info = strings.Join(columns[infoColumn:], " ")
			s.Established = columns[infoColumn] == "Established"
		}
		out = append(out, s)
	}
	return out
}

// peerOf reads the address in the name of a protocol: 172_30_0_3 for 172.30.0.3, fd00__3 for fd00::3.
func peerOf(protocol string) (netip.Addr, bool) {
	for _, kind := range []string{"Mesh_", "Node_", "Global_"} {
		text, ok := strings.CutPrefix(protocol, kind)
		if !ok {
			continue
		}
		for _, separator := range []string{".", ":"} {
			if peer, err := netip.ParseAddr(strings.ReplaceAll(text, "_", separator)); err == nil {
				return peer, true
			}
		}
	}
	return netip.Addr{}, false
}

// route is a line of `show route`: the destination, which is left out where it is that of the line before, and the protocol in brackets.
var route = regexp.MustCompile(`^(\S*)\s.*?\[(\S+) `)

// Paths reads the answer to `show route` and counts, by destination, the routes that came by BGP, in use or not.
func Paths(lines []string) map[netip.Prefix]int {
	out := map[netip.Prefix]int{}
	var destination netip.Prefix
	for _, line := range lines {
		found := route.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if found[1] != "" {
			var err error
			if destination, err = netip.ParsePrefix(found[1]); err != nil {
				destination = netip.Prefix{}
			}
		}
		if _, ok := peerOf(found[2]); ok && destination.IsValid() {
			out[destination]++
		}
	}
	return out
}
