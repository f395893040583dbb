// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Neighbor measures what another tenant notices of an attack: how long each of its operations takes, and which fail. Its methods may be called from
// any goroutine.
type Neighbor struct {
	mu     sync.Mutex
	took   map[string][]time.Duration
	failed map[string][]error
}

// Do makes one operation, which may take as long as patience. What the end of ctx has cut short is not counted.
func (n *Neighbor) Do(ctx context.Context, patience time.Duration, operation string, do func(context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err := do(bounded)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.took == nil {
		n.took, n.failed = map[string][]time.Duration{}, map[string][]error{}
	}
	n.took[operation] = append(n.took[operation], took)
	if err != nil {
		n.failed[operation] = append(n.failed[operation], err)
	}
}

// Count is how many operations of a name were made.
func (n *Neighbor) Count(operation string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.took[operation])
}

// Percentile returns how long all but some operations of a name took at most, 0 if there were none.
func (n *Neighbor) Percentile(operation string, percent int) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Sorted(slices.Values(n.took[operation]))
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)*percent/100, len(all)-1)]
}

// Wrong returns one sentence for each operation that failed, or that was never made although it is named.
func (n *Neighbor) Wrong(operations ...string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, operation := range operations {
		if len(n.took[operation]) == 0 {
			out = append(out, operation+" was never made")
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(n.failed)) {
		errs := n.failed[operation]
		out = append(out, fmt.Sprintf("%d of %d times %s failed, last with: %v", len(errs), len(n.took[operation]), operation, errs[len(errs)-1]))
	}
	return out
}

// String lists the operations with their number and the longest time.
func (n *Neighbor) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, operation := range slices.Sorted(maps.Keys(n.took)) {
		out = append(out, fmt.Sprintf("%s %d times, at most %v", operation, len(n.took[operation]), slices.Max(n.took[operation]).Round(time.Millisecond)))
	}
	return strings.Join(out, "; ")
}
