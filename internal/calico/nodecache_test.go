// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// storedNode is a Calico Node in etcd whose annotation who says something.
func storedNode(name, who string, revision int64) *mvccpb.KeyValue {
	value := fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"annotations":{"who":%q}},"spec":{}}`, name, who)
	return &mvccpb.KeyValue{Key: []byte(nodeKey(name)), Value: []byte(value), ModRevision: revision}
}

// What is kept is what parsing would return, whatever happens to the value: a write, a restored backup with another value at the same revision, a value that
// cannot be read, a Node that goes and comes back.
func TestKeptNodesAreTheStoredOnes(t *testing.T) {
	t.Parallel()
	var c nodeCache
	unreadable := &mvccpb.KeyValue{Key: []byte(nodeKey("n1")), Value: []byte("{"), ModRevision: 7}
	for i, snapshot := range [][]*mvccpb.KeyValue{
		{storedNode("n1", "a", 5), storedNode("n2", "x", 5)},
		{storedNode("n1", "a", 5), storedNode("n2", "x", 5)},
		{storedNode("n1", "b", 6), storedNode("n2", "x", 5)},
		{storedNode("n1", "c", 6)},
		{unreadable, storedNode("n2", "y", 5)},
		{unreadable, storedNode("n2", "y", 9)},
		{storedNode("n1", "c", 6), storedNode("n2", "y", 5)},
		{},
		{storedNode("n1", "c", 6)},
	} {
		for _, kv := range snapshot {
			want, err := parseNode(string(kv.Key), kv.Value, kv.ModRevision)
			got, readable := c.parse(kv)
			if readable != (err == nil) || readable && (got.Name != want.Name || got.Revision != want.Revision || got.Annotations["who"] != want.Annotations["who"]) {
				t.Errorf("snapshot %d: %+v (%v), want %+v (%v)", i, got, readable, want, err)
			}
		}
		c.forget()
		if len(c.parsed) != len(snapshot) {
			t.Errorf("after snapshot %d of %d Nodes %d are kept", i, len(snapshot), len(c.parsed))
		}
	}
}

// A snapshot of what has not changed parses nothing.
func TestUnchangedNodesAreParsedOnce(t *testing.T) {
	var c nodeCache
	stored := storedNode("n1", "a", 5)
	c.parse(stored)
	c.forget()
	// The key is looked up without a copy; what is left is the entry that is written back.
	if allocated := testing.AllocsPerRun(100, func() { c.parse(stored) }); allocated > 2 {
		t.Errorf("%.0f allocations for a Node that is known", allocated)
	}
}
