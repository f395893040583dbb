// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// pool hands out the addresses of one network, each to one owner at a time, in a fixed order: an address that is given back
// is used again only after all others.
type pool struct {
	prefix netip.Prefix
	next   uint64
	used   map[netip.Addr]bool
}

func newPool(prefix netip.Prefix) *pool {
	return &pool{prefix: prefix.Masked(), next: firstHost, used: map[netip.Addr]bool{}}
}

// firstHost leaves out the network's own address and, by convention, the gateway's.
const firstHost = 2

// size is how many addresses there are, at most 2^32: more than any test uses.
func (p *pool) size() uint64 {
	bits := min(p.prefix.Addr().BitLen()-p.prefix.Bits(), 32)
	return 1 << bits
}

// take returns a free address, or an error if there is none.
func (p *pool) take() (netip.Addr, error) {
	for range p.size() {
		if p.next >= p.size()-1 {
			p.next = firstHost
		}
		address := p.address(p.next)
		p.next++
		if !p.used[address] {
			p.used[address] = true
			return address, nil
		}
		if uint64(len(p.used)) >= p.size() {
			break
		}
	}
	return netip.Addr{}, fmt.Errorf("all addresses of %s are taken", p.prefix)
}

// claim takes a certain address. It is false if somebody has it.
func (p *pool) claim(address netip.Addr) bool {
	if p.used[address] {
		return false
	}
	p.used[address] = true
	return true
}

// give takes an address back; empty is nothing.
func (p *pool) give(address string) {
	if parsed, err := netip.ParseAddr(address); err == nil {
		delete(p.used, parsed)
	}
}

func (p *pool) gateway() string { return p.address(1).String() }

// address is the n-th address of the network.
func (p *pool) address(n uint64) netip.Addr {
	if p.prefix.Addr().Is4() {
		bytes := p.prefix.Addr().As4()
		binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(n))
		return netip.AddrFrom4(bytes)
	}
	bytes := p.prefix.Addr().As16()
	low := binary.BigEndian.Uint64(bytes[8:]) + n
	binary.BigEndian.PutUint64(bytes[8:], low)
	return netip.AddrFrom16(bytes)
}

// netmask is the IPv4 mask of the network.
func (p *pool) netmask() string {
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], ^uint32(0)<<(32-p.prefix.Bits()))
	return netip.AddrFrom4(bytes).String()
}
