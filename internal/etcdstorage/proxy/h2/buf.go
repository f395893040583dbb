// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"math/bits"
	"sync"
)

// Buf is a pooled buffer. Anyone who holds it owns it; Release ends that.
type Buf struct {
	B []byte

	budget *Budget // nil: it counts in none
	held   int64   // of budget; below 0 it is a small answer
}

// MoveHold makes the room that a buffer has in a budget another's. The buffer may be nil.
func (b *Buf) MoveHold(to *Buf) {
	if b != nil && b.budget != nil {
		to.budget, to.held, b.budget, b.held = b.budget, b.held, nil, 0
	}
}

// unhold gives the buffer's room in a budget back.
func (b *Buf) unhold() {
	budget, held := b.budget, b.held
	b.budget, b.held = nil, 0
	if held < 0 {
		budget.small.Add(held)
		return
	}
	budget.give(held)
}

// roomFor is how many bytes GetBuf takes for a buffer of that size.
func roomFor(size int) int64 {
	class := max(bits.Len(uint(max(size, 1)-1)), leastBufBits)
	if class > mostBufBits {
		return int64(size)
	}
	return 1 << class
}

// Size classes of the pools, as powers of two. Larger buffers are left to the garbage collector.
const (
	leastBufBits = 10 // 1 KiB
	largeBufBits = 15 // from 32 KiB on, buffers are kept through garbage collections
	mostBufBits  = 22 // 4 MiB
	mostKept     = 32 << 20
)

// pools are shared by all connections: that is what they are for.
var pools struct { //nolint:gochecknoglobals // see above
	small [largeBufBits - leastBufBits]sync.Pool
	// Large buffers are worth more than what a collection frees: each new one is memory that the kernel must clear, page by page.
	mu    sync.Mutex
	kept  int
	large [mostBufBits - largeBufBits + 1][]*Buf
}

// GetBuf returns an empty buffer with room for size bytes.
func GetBuf(size int) *Buf {
	class := max(bits.Len(uint(max(size, 1)-1)), leastBufBits)
	switch {
	case class > mostBufBits:
		return &Buf{B: make([]byte, 0, size)}
	case class >= largeBufBits:
		if b := takeLarge(class - largeBufBits); b != nil {
			return b
		}
	default:
		if b, ok := pools.small[class-leastBufBits].Get().(*Buf); ok {
			b.B = b.B[:0]
			return b
		}
	}
	return &Buf{B: make([]byte, 0, 1<<class)}
}

func takeLarge(i int) *Buf {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	n := len(pools.large[i])
	if n == 0 {
		return nil
	}
	b := pools.large[i][n-1]
	pools.large[i][n-1] = nil
	pools.large[i] = pools.large[i][:n-1]
	pools.kept -= cap(b.B)
	b.B = b.B[:0]
	return b
}

// Release gives the buffer back; nobody may use it afterwards. nil is allowed.
func (b *Buf) Release() {
	if b == nil {
		return
	}
	if b.budget != nil {
		b.unhold()
	}
	// A buffer that append made larger lies in the class that it fills.
	class := bits.Len(uint(cap(b.B))) - 1
	switch {
	case class < leastBufBits || class > mostBufBits:
	case class < largeBufBits:
		pools.small[class-leastBufBits].Put(b)
	default:
		pools.mu.Lock()
		defer pools.mu.Unlock()
		if pools.kept+cap(b.B) <= mostKept {
			pools.kept += cap(b.B)
			pools.large[class-largeBufBits] = append(pools.large[class-largeBufBits], b)
		}
	}
}

// grow makes it a buffer with room for size bytes.
func (b *Buf) grow(size int) {
	larger := GetBuf(size)
	larger.B = append(larger.B, b.B...)
	b.B, larger.B = larger.B, b.B
	larger.Release()
}

// reserve makes room for n more bytes.
func (b *Buf) reserve(n int) {
	if cap(b.B)-len(b.B) >= n {
		return
	}
	larger := GetBuf(max(len(b.B)+n, 2*cap(b.B)))
	larger.B = append(larger.B, b.B...)
	b.B, larger.B = larger.B, b.B
	larger.Release()
}
