// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Compaction is etcdserverpb.CompactionRequest. It is only read: a tenant's compaction never reaches the core.
type Compaction struct {
	Revision int64
	Physical bool
}

const nameCompaction = "CompactionRequest"

// ParseCompact reads a CompactionRequest. etcd refuses nothing of it before it looks into its store.
func ParseCompact(request []byte) (c Compaction, err error) {
	err = fields(nameCompaction, request, func(r record) bool {
		switch r.key {
		case 1<<3 | varint:
			c.Revision = int64(r.value)
		case 2<<3 | varint:
			c.Physical = r.value != 0
		default:
			return false
		}
		return true
	})
	return c, err
}
