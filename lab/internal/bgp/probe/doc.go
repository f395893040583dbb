// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe sends packets between all pairs of pod addresses of a BGP lab and says what became of them.
//
// Each pair is probed in each direction, every 20 ms by default, with UDP. A packet that the kernel has no route for is lost, and so is one that
// has not arrived a second after the end. A probe that could not be sent in time because this process was not given a processor is not sent at
// all, so a busy machine makes for fewer probes, not for losses.
//
// What counts is an outage: two or more probes of one pair lost in a row. BIRD replaces a kernel route by deleting it and adding another, so
// that single packets may be lost whatever is done. Collateral are the outages of pairs in which no node changed its role as a reflector:
// a node that does always loses its own traffic, and nobody else should.
package probe
