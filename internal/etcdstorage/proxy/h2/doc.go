// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package h2 carries gRPC over HTTP/2 (RFC 9113) for the etcd storage proxy: a server side towards the tenant and a client side towards the core.
//
// grpc-go spends most of a proxy's time in goroutine hand-overs, one or two per frame and direction. Here the goroutine that reads a connection
// does all the work of a unary call: it parses the request, puts it into the other connection's buffer, and flushes that buffer once it has
// handled all that one read(2) gave. A unary call costs two wake-ups and, under load, a fraction of two writes.
//
//	tenant conn reader ──► Handler.Unary ──► Conn.Start ──► core conn's buffer ──┐ flushed when the tenant's bytes are used up
//	core conn reader   ──► Sink.Message, Sink.Done ──► Stream.Reply ──► tenant conn's buffer ──┐ flushed when the core's bytes are used up
//
// Rules that keep this correct:
//
//   - A reader never blocks on the other side. Writes go through sock, which tries once without blocking and leaves the rest to a goroutine.
//   - Callbacks run without locks, and no code holds the locks of two connections.
//   - A Batch belongs to one goroutine. Whatever is given one may be delayed until that goroutine flushes it; a nil Batch flushes at once.
//
// Streaming calls (watches, keep-alives) have a goroutine each and block as usual: Stream.Recv, Stream.Send and ClientStream.
//
// What a peer can make us hold is bounded: header blocks, messages, streams, unread answers, unacknowledged control frames, resets.
package h2
