// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"hash/maphash"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What was let in by a book from before a restore of the core may have made a key that the book took for known. Nothing
// grows until the new book has come to it, whether its answer came before the keys were counted or afterwards.
func TestGrowthWaitsForWritesThatAnEarlierBookLetIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before    int64 // keys of the book before; "a" is among them if there is one
		late      bool  // the answer comes after the count
		revision  int64 // of the write; the keys are counted at 10
		wantOpens bool  // at once
	}{
		"a known key, answered before":       {1, false, 11, false},
		"a known key, answered afterwards":   {1, true, 11, false},
		"a new key, answered before":         {0, false, 11, false},
		"a new key, answered afterwards":     {0, true, 11, false},
		"counted, answered before":           {1, false, 9, true},
		"counted, answered after the count":  {1, true, 9, true},
		"a new key that was counted already": {0, true, 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := must.Get(newMetrics(prometheus.NewRegistry(), "t")).Or(t)
			p := &Proxy{metrics: m, log: logr.Discard()}
			p.past.Store(&past{})
			p.cfg.Quota = quota.Limits{Keys: 10}
			l := newLedger(p)
			old := newBook()
			if c.before > 0 {
				old.Put([]byte("a"), 1)
			}
			takeOver := func(book *quota.Ledger, revision int64) {
				book.Advance(revision, clock())
				must.Do(t, l.takeOver(book, p.past.Load()))
			}
			takeOver(old, 5)
			g := &growth{ledger: l}
			g.visit(wire.Put{Key: []byte("a"), Bytes: 1, Success: true})
			id, err := l.reserve(g)
			if err != nil || id == 0 {
				t.Fatal(id, err)
			}
			if !c.late {
				l.answeredAt(id, c.revision)
			}
			takeOver(newBook(), 10)
			if c.late {
				l.answeredAt(id, c.revision)
			}
			if l.isLoaded != c.wantOpens {
				t.Fatalf("growth is judged: %v, want %v", l.isLoaded, c.wantOpens)
			}
			l.mu.Lock()
			l.book.Advance(c.revision, clock())
			l.open()
			l.mu.Unlock()
			if !l.isLoaded {
				t.Error("growth waits though the book has come to the write")
			}
		})
	}
}

// A key may hold any byte: no range may be taken for another one that was counted before.
func TestRangesAreLearntApart(t *testing.T) {
	t.Parallel()
	l := learnt{seed: maphash.MakeSeed()}
	l.learn(l.hash(response{span: wire.Span{Key: "a\x00b", End: "c"}}), 1)
	for _, other := range []wire.Span{{Key: "a", End: "b\x00c"}, {Key: "a\x00b\x00c"}, {End: "a\x00b\x00c"}} {
		if keys, known := l.keys(l.hash(response{span: other})); known {
			t.Errorf("%+q has %d keys of another range", other, keys)
		}
	}
}
