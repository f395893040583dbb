// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
)

// fuzz feeds rewriters with whatever bytes the fuzzer finds, beginning with some good and some odd messages of each.
func fuzz(f *testing.F, all map[string]rewriter) {
	f.Helper()
	names := slices.Sorted(maps.Keys(all))
	for n, name := range names {
		f.Add(uint8(n), []byte{})
		for i := range uint64(40) {
			g := attacks.NewGenerator(words(), 0, i)
			in := all[name].message(g, i%4 == 0)
			if i%2 == 1 {
				in = g.Mutate(in)
			}
			f.Add(uint8(n), in)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, in []byte) {
		if len(in) > math.MaxUint16 {
			t.Skip("longer than is of interest")
		}
		all[names[int(n)%len(names)]].judgeAny(t, in)
	})
}

func FuzzRequests(f *testing.F)  { fuzz(f, requests()) }
func FuzzResponses(f *testing.F) { fuzz(f, responses()) }
