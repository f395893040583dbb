// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"hash/maphash"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// nodeCache keeps what Calico Nodes have been parsed to. Every snapshot reads all of them, and parses those whose value is another than in the
// snapshot before: with 15,000 machines that is most of what a snapshot costs. The zero value is empty.
type nodeCache struct {
	mu     sync.Mutex // guards all below
	parsed map[string]parsedNode
	seed   maphash.Seed
	round  int
}

// parsedNode is a Node, or that its value cannot be read.
type parsedNode struct {
	node     Node
	readable bool
	// value is the hash of the value; an etcd that was restored from a backup may have another one at the same revision.
	value uint64
	// round is that of the last snapshot in which it was.
	round int
}

// parse returns the Node of a key, whose annotations and references must not be changed; false if its value cannot be read.
func (c *nodeCache) parse(kv *mvccpb.KeyValue) (Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed == nil {
		c.parsed, c.seed = map[string]parsedNode{}, maphash.MakeSeed()
	}
	value := maphash.Bytes(c.seed, kv.Value)
	known, ok := c.parsed[string(kv.Key)]
	if !ok || known.node.Revision != kv.ModRevision || known.value != value {
		key := string(kv.Key)
		node, err := parseNode(key, kv.Value, kv.ModRevision)
		node.Revision = kv.ModRevision
		known = parsedNode{node: node, readable: err == nil, value: value}
	}
	known.round = c.round
	c.parsed[string(kv.Key)] = known
	return known.node, known.readable
}

// forget ends a snapshot: what was not in it is dropped.
func (c *nodeCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, known := range c.parsed {
		if known.round != c.round {
			delete(c.parsed, key)
		}
	}
	c.round++
}
