// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire rewrites etcd's messages between a tenant and the core, on their protobuf wire bytes: keys, ranges and lease IDs change, all
// else stays. It is pure, keeps no state and allocates nothing but the room that the appended bytes need (and the texts of a new watch). Values
// are never decoded, and are copied once (a second time only if the length of a message around them grows or shrinks over a varint's border).
//
// Requests come from the tenant and are not trusted:
//
//   - What goes to the core is written again from what was understood. No byte is passed on unread, so the core cannot read a message
//     differently from how it was judged here: whatever protobuf's rules are for fields that occur twice, for split messages, for the last
//     member of a oneof, for odd varints or truncated enums, the output has each field once.
//   - A field that is unknown is refused (Unimplemented), as a newer etcd could give it a meaning that leaves the prefix. So is a singular
//     field that occurs twice (InvalidArgument): protobuf allows it and no encoder writes it.
//   - What etcd refuses before it looks into its store is refused here with etcd's code and text, in etcd's order (server
//     etcdserver/api/v3rpc/key.go and api/v3rpc/rpctypes/error.go, v3.7.3), so that nothing that etcd would refuse is rewritten into
//     something that it would not (an empty key becomes the bare prefix). Refusals that need the store, overlapping puts and deletes of a
//     Txn included, are left to the core: a common prefix changes no order and no equality.
//   - Each key and range that was written is then judged again, on the output, by tenancy.Prefix.ContainsRange.
//
// Responses come from the core, which is believed to speak protobuf but not to have answered for the right tenant: a key outside the prefix,
// a lease that was not asked for or bytes that make no sense are a BoundaryError and nothing of the response goes out. Unknown fields of a
// response are dropped: a newer core may put keys or leases into them, and a client that knows them asks for them with a field that is
// refused above. Cluster and member ID and Raft term of a header pass as they are, and so do all revisions unless the tenant has an offset of them
// (tenancy.Revisions), which is added to every revision that it is shown, and subtracted from every one that it names.
//
// For a client, four things differ from a core of its own. Lease IDs that it chooses lie between 1 and 2^32-1. Messages that no encoder writes
// are refused. The compares and operations of all levels of a Txn are bounded (tenancy.Limits), where etcd bounds each level and leaves the
// breadth free. And a Txn that deletes from a key on without end (range_end "\0") and puts a key behind it is refused as a duplicate key, as
// etcd's documentation has it: etcd v3.7.3 itself misses this one overlap (measured), because its checkIntervals takes "\0" for a real end,
// and here the end is a real one.
package wire
