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

// usedBelow returns the CPU time of a process and of all that descend from it and still run (proc(5)); 0 where there is no /proc.
func usedBelow(root int) time.Duration {
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
	var sum func(pid int) time.Duration
	sum = func(pid int) time.Duration {
		total := used[pid]
		for _, child := range children[pid] {
			total += sum(child)
		}
		return total
	}
	return sum(root)
}
