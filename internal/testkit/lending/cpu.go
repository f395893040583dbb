// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat on Linux (proc(5), sysconf(3), _SC_CLK_TCK).
const tick = 10 * time.Millisecond

// A family is a process and all that descend from it and still run, with the CPU time of each.
type family map[int]time.Duration

// used adds up the CPU time of all.
func (f family) used() time.Duration {
	var total time.Duration
	for _, used := range f {
		total += used
	}
	return total
}

// familyOf reads a process and its descendants from /proc (proc(5)); none where there is no /proc.
func familyOf(root int) family {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	children, used := map[int][]int{}, map[int]time.Duration{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		var pid, parent int
		var skip string
		var user, system int64
		// The name in brackets may hold spaces; fields 3 to 15 follow it.
		_, rest, _ := strings.Cut(string(text), ") ")
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			continue
		}
		_, err = fmt.Sscan(rest, &skip, &parent, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &user, &system)
		if err != nil {
			continue
		}
		children[parent] = append(children[parent], pid)
		used[pid] = time.Duration(user+system) * tick
	}
	out := family{}
	for members := []int{root}; len(members) > 0; members = members[1:] {
		if cpu, runs := used[members[0]]; runs {
			out[members[0]] = cpu
		}
		members = append(members, children[members[0]]...)
	}
	return out
}
