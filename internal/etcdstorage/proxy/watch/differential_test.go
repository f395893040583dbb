// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// on is a watch of one key, or of a range.
func on(key string, end ...string) *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: []byte(key)}
	if len(end) > 0 {
		r.RangeEnd = []byte(end[0])
	}
	return r
}

// TestDifferential runs each script on etcd and on the proxy: the answers must be the same, but for what describe leaves out. Each tells of what is a
// matter of luck where test/contract/etcdstorage/isolation compares watches that are drawn: progress, compaction, fragments, the end of a stream, and the
// numbers of watches.
func TestDifferential(t *testing.T) {
	t.Parallel()
	scripts := map[string]func(s *stream){
		"watch IDs": func(s *stream) {
			make := func(id int64) {
				r := on("k")
				r.WatchId = id
				s.create(r)
				s.expect(1)
			}
			for _, id := range []int64{0, 0, 5, 5, 0, 3, 0, 0, -7, 1 << 40, 0, -7} {
				make(id)
			}
			s.cancel(1)
			s.cancel(1 << 40)
			s.expect(2)
			for _, id := range []int64{1, 0, 1, 1 << 40} {
				make(id)
			}
			s.cancel(4711) // unknown: no answer
			s.cancel(1)
			s.cancel(1)
			s.expect(1)
			make(0)
		},
		"compacted": func(s *stream) {
			for v := range strings.FieldsSeq("1 2 3 4 5") {
				s.put("k", v)
			}
			s.compact(s.base + 3)
			for start := range int64(4) {
				r := on("k")
				r.StartRevision, r.WatchId = start, start+10
				s.create(r)
				switch start {
				case 0:
					s.expect(1) // from now on
					s.cancel(10)
					s.expect(1)
				case 3:
					s.expect(2) // the events
					s.cancel(13)
					s.expect(1)
				default:
					s.expect(2) // its end
				}
			}
			// The IDs are taken until they are canceled, and no progress is told meanwhile.
			r := on("k")
			r.WatchId = 11
			s.create(r)
			s.expect(1)
			s.progress()
			s.cancel(11)
			s.expect(1)
			s.progress()
			s.cancel(12)
			s.expect(1)
			r = on("k")
			r.WatchId = 11
			s.create(r)
			s.expect(1)
			s.progress()
			s.expect(1)
		},
		"previous versions that were compacted": func(s *stream) {
			for v := range strings.FieldsSeq("1 2 3 4 5 6") {
				s.put("k", v)
			}
			s.remove("k", "l")
			s.put("k", "8")
			s.remove("k", "l")
			for i, compact := range []int64{4, 7} {
				s.compact(s.base + compact)
				for start := compact; start < 10; start++ {
					r := on("k", "l")
					r.StartRevision, r.PrevKv, r.WatchId = start, true, 100*int64(i+1)+start
					s.create(r)
					s.expect(2)
				}
			}
			for id := range int64(10) {
				s.cancel(100 + id)
				s.cancel(200 + id)
			}
			s.expect(6 + 3)
		},
		"progress": func(s *stream) {
			s.progress() // no watches: no answer
			s.create(on("k"))
			s.expect(1)
			s.progress()
			s.expect(1)
			s.put("other", "")
			s.progress()
			s.expect(1)
			s.put("k", "")
			s.progress()
			s.expect(2)
			s.create(on("k", "l"))
			s.create(on("other"))
			s.expect(2)
			s.progress()
			s.expect(1)
			r := on("k")
			r.StartRevision = 100
			s.create(r)
			s.expect(1)
			s.put("other", "")
			s.expect(1)
			s.cancel(3)
			s.expect(1)
			s.progress()
			s.expect(1)
			// A watch from the future: no response. It stays, since the proxy may keep a request that etcd forgets, and answer it when nothing is in its
			// way any more.
			future := s.side.open()
			r = on("k")
			r.StartRevision = 100
			future.create(r)
			future.expect(1)
			future.progress()
			future.fence()
			s.log = append(s.log, future.log...)
			for id := range int64(3) {
				s.cancel(id)
				s.expect(1)
			}
			s.progress() // no watches any more
		},
		"fragments": func(s *stream) {
			big := strings.Repeat("x", 700<<10)
			for range 7 {
				s.put("k", big)
			}
			for _, fragment := range []bool{false, true} {
				r := on("k", "l")
				r.StartRevision, r.Fragment, r.PrevKv = 1, fragment, true
				s.create(r)
				s.expect(1)
				for seen := 0; seen < 7; {
					got := s.receive()
					seen += len(got.Events)
					if fragment {
						s.log = append(s.log, s.describe(got))
						continue
					}
					// The proxy has large responses in pieces from the core, and hands on those that are of whole revisions.
					if got.Fragment {
						s.tb.Error(s.name, "sent a fragment that was not asked for")
					}
					for _, e := range got.Events {
						s.log = append(s.log, s.version(e.Kv))
					}
				}
			}
			s.put("k", "small")
			s.receive()
			s.receive() // in any order
		},
		"half closed": func(s *stream) {
			s.create(on("k"))
			s.expect(1)
			other := s.side.open()
			other.create(on("k"))
			other.expect(1)
			must.Do(s.tb, other.c.CloseSend())
			s.put("k", "1")
			other.expect(1)
			s.expect(1)
			s.cancel(0)
			s.expect(1)
			s.log = append(s.log, other.log...)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, script)
		})
	}
}
