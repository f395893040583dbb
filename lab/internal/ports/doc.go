// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports owns TCP ports on 127.0.0.1 for processes that are not yet running.
//
// A port that is merely found free may be taken by somebody else before the process which should listen on it has started; two
// labs that start at the same moment would then share an etcd. So a port is held, not found: the holder binds it and keeps the
// socket for as long as the lab lives, but never listens on it. The process that is meant to listen binds the same port with
// SO_REUSEPORT. What makes this safe, each checked by the tests of this package on the kernel at hand:
//
//   - the holder binds without SO_REUSEPORT, so the kernel chooses a port that nobody has, and refuses one that somebody has;
//   - SO_REUSEPORT is set on the bound socket afterwards, so that only sockets of the same user which ask for SO_REUSEPORT too may
//     join; a plain bind is refused, whether or not anybody listens;
//   - as the holder never listens, every connection goes to the process; while it is down, connections are refused;
//   - the port stays held while the process restarts.
//
// A process of the same user that asks for SO_REUSEPORT could still join. That is why readiness is checked over TLS with the lab's
// own certificate authority: a foreign listener never passes as the lab's.
package ports
