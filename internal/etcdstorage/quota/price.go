// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

// Work is what requests make the core do, as counts. A request is priced by what is known before it goes to the core,
// and corrected by what its response shows.
type Work struct {
	// Calls is how many requests there are. Logged is how many of them go through the core's log, to every member's disk.
	Calls, Logged int
	// Parts are the compares and operations of a Txn, of all levels and branches.
	Parts int
	// Keys are those that the core looks at in its index: all of a range, whatever its limit is and whether it only
	// counts (etcd v3.7.3, mvcc treeIndex.Revisions).
	Keys int64
	// Values are those of a range that it reads, whether they are in the response or it only compares, sorts or filters them.
	Values int64
	// Deleted are the keys that it deletes.
	Deleted int64
	// Revisions are those that a watch which starts in the past makes it read.
	Revisions int64
	// Read and Written are bytes of responses and of requests that go through the log.
	Read, Written int64
	// Scanned are bytes of the values that it reads only to compare, sort or filter.
	Scanned int64
}

// One unit is the work of a get of one small key: some 40 µs of one of the core's processors. The others are measured on
// etcd v3.7.3: 140 ns for a key of the index, 1 µs for a value or a revision, 4 µs for a key that is deleted, and the bytes
// that the core reads, logs or scans in the time of a unit. Prices are for what work costs others, not for
// how long it takes.
const (
	loggedUnits       = 2.0
	partsOfUnit       = 4
	keysOfUnit        = 250
	valuesOfUnit      = 40
	deletionsOfUnit   = 10
	revisionsOfUnit   = 100
	readBytesOfUnit   = 16 << 10
	loggedBytesOfUnit = 2 << 10
	scanBytesOfUnit   = 512 << 10
)

// largeFrom is how many units of the core's processors, some 40 µs each, make a request a large one: those that wait for
// it notice.
const largeFrom = 4

// writtenOfUnit are the bytes of a write that keep a processor of the core for a unit. The price of as many is eight
// units, since the disk is slower.
const writtenOfUnit = 8 * loggedBytesOfUnit

// Class is that of a request with such work.
func (w Work) Class() Class {
	busy := w
	busy.Logged, busy.Written = 0, 0
	if busy.Units()+float64(w.Written)/writtenOfUnit > largeFrom {
		return Large
	}
	return Small
}

// Units is the price. Each count adds its own, so that a correction is the price of a difference.
func (w Work) Units() float64 {
	return float64(w.Calls) + loggedUnits*float64(w.Logged) + float64(w.Parts)/partsOfUnit +
		float64(w.Keys)/keysOfUnit + float64(w.Values)/valuesOfUnit + float64(w.Deleted)/deletionsOfUnit +
		float64(w.Revisions)/revisionsOfUnit + float64(w.Read)/readBytesOfUnit + float64(w.Written)/loggedBytesOfUnit +
		float64(w.Scanned)/scanBytesOfUnit
}
