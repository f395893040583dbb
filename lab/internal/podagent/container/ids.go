// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// KnowsID reports whether this process's user namespace knows the user or group: as root every one, without root only the lab's own.
func KnowsID(id int) (bool, error) { return knowsIDs([]int{id}, id) }

func knowsIDs(groups []int, users ...int) (bool, error) {
	for path, ids := range map[string][]int{"/proc/self/uid_map": users, "/proc/self/gid_map": groups} {
		content, err := os.ReadFile(path)
		if err != nil {
			return false, fmt.Errorf("reading which users there are: %w", err)
		}
		if slices.ContainsFunc(ids, func(id int) bool { return !inMap(string(content), id) }) {
			return false, nil
		}
	}
	return true, nil
}

// inMap reports whether the map of user_namespaces(7) has the id: each line is the first id inside, the first outside, and how many there are.
func inMap(text string, id int) bool {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err := strconv.ParseInt(fields[0], 10, 64)
		count, countErr := strconv.ParseInt(fields[2], 10, 64)
		if err == nil && countErr == nil && int64(id) >= first && int64(id) < first+count {
			return true
		}
	}
	return false
}
