// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"bytes"
	"math"
	"math/rand/v2"
)

// Words are what requests are made of.
type Words struct {
	// Own are keys that the tenant uses, as it names them.
	Own [][]byte
	// Hostile are keys that it has no business with: others' keys as the core names them, and bytes that upset bookkeeping.
	Hostile [][]byte
	// Leases are IDs of its own leases and of others', as anyone who owns them sees them.
	Leases []int64
	// Revision is about where the store was when the campaign began.
	Revision int64
}

// OwnKeys returns short keys, some of which are prefixes of others.
func OwnKeys() [][]byte {
	var keys [][]byte
	for _, k := range []string{
		"a", "a/", "a/1", "a/2", "a/22", "b", "b\x00", "c/0", "c/1", "c/2", "c/3", "z", "/", "/registry/pods/x", "compact_rev_key", "\x01", "\xff", "\xff\xff",
	} {
		keys = append(keys, []byte(k))
	}
	return keys
}

// oddKeys are bytes that upset bookkeeping whatever others keep.
func oddKeys() [][]byte {
	var keys [][]byte
	for _, k := range []string{"", "\x00", "\x00\x00", "\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", "/", "//", "../", "/../", "..", "\x7f", "0", "/.", "\xc3\x28"} {
		keys = append(keys, []byte(k))
	}
	return keys
}

// A Generator makes requests by chance. Two generators with equal words and chance make the same.
type Generator struct {
	*Words
	*rand.Rand
}

// NewGenerator returns the generator of the request with this number.
func NewGenerator(w *Words, seed, number uint64) Generator {
	return Generator{Words: w, Rand: rand.New(rand.NewPCG(seed, number))}
}

// once in n times it is true.
func (g Generator) once(n int) bool { return g.IntN(n) == 0 }

// Either returns one of them, by chance.
func Either[T any](g Generator, of ...T) T { return of[g.IntN(len(of))] }

// anyKey returns a key: mostly one of its own.
func (g Generator) anyKey() []byte {
	switch {
	case !g.once(3):
		return Either(g, g.Own...)
	case !g.once(4):
		return Either(g, g.Hostile...)
	case g.once(50):
		return bytes.Repeat([]byte{'k'}, 1+g.IntN(100_000))
	default:
		return g.bytes(12)
	}
}

func (g Generator) bytes(most int) []byte {
	out := make([]byte, g.IntN(most+1))
	for i := range out {
		out[i] = byte(g.Uint32())
	}
	return out
}

// end returns the end of a range that begins at key: none, all from there on, the prefix's, or anything.
func (g Generator) end(key []byte) []byte {
	switch g.IntN(8) {
	case 0, 1, 2:
		return nil
	case 3:
		return []byte{0}
	case 4:
		return append(bytes.Clone(key), 0)
	case 5:
		return afterPrefix(key)
	case 6:
		return Either(g, g.Hostile...)
	default:
		return g.anyKey()
	}
}

// afterPrefix is the first key after all that begin with the prefix, as etcd's clients compute it.
func afterPrefix(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}

// anyValue returns a value that is nearly always short.
func (g Generator) anyValue() []byte {
	if g.once(2000) {
		return bytes.Repeat([]byte{'v'}, g.IntN(3<<20))
	}
	if g.once(20) {
		return bytes.Repeat([]byte{'v'}, g.IntN(2000))
	}
	return g.bytes(20)
}

// lease returns an ID: none, its own, another's, or one that is special to integers.
func (g Generator) lease() int64 {
	switch g.IntN(6) {
	case 0, 1:
		return 0
	case 2, 3:
		return Either(g, g.Leases...)
	case 4:
		id := Either(g, g.Leases...)
		return Either(g, id&math.MaxUint32, id|1<<62, id^1<<32, -id, id+1, id>>32)
	default:
		return Either(g, 1, -1, math.MaxInt64, math.MinInt64, math.MaxUint32, math.MaxUint32+1, g.Int64(), -g.Int64N(1<<40))
	}
}

// revision returns 0 mostly, else one around where the store is, or none that there is.
func (g Generator) revision() int64 {
	switch g.IntN(8) {
	case 0, 1, 2, 3, 4:
		return 0
	case 5, 6:
		return max(1, g.Revision+g.Int64N(2000)-100)
	default:
		return Either(g, 1, -1, math.MaxInt64, math.MinInt64, g.Int64())
	}
}

// small returns one of the numbers that limits and enumerations are tested with.
func (g Generator) small() int64 {
	return Either(g, int64(0), 0, 0, 0, 0, 1, 2, 3, 4, 5, 10, -1, 1000, math.MaxInt32, math.MaxInt64, math.MinInt64)
}

// few is a number of parts: seldom as many as etcd takes, or more.
func (g Generator) few() int {
	if g.once(400) {
		return Either(g, 127, 128, 129, 300)
	}
	return Either(g, 0, 1, 1, 2, 3)
}
