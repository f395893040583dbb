// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package podnet is the network of a lab whose pods are real (`lab up --pods`). All of the lab lives in one network namespace, made by package
// enclave, in which Build makes
//
//	lo        127.0.0.1, and every address of the machines' network and of the services' range: each of them is local (RTN_LOCAL), so a process
//	          may listen on a Node's address or on a Service's without anybody giving it to a device
//	pods      a bridge with the pods' gateway; every pod hangs on it
//	pod N     a network namespace of its own: lo, eth0 with the pod's address, and a default route to the gateway
//
// So pods reach each other over the bridge, and Nodes, Services, names and the API server by way of the gateway; processes of the lab reach
// pods directly. Nothing of it is reachable from the machine that the lab runs on, and nothing in it reaches the outside.
//
// A process that runs in the lab's namespace makes a Network and attaches pods to it. The kernel removes a pod's namespace and cable when the
// process that attached it ends, whatever ends that (package netns).
package podnet

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// ErrFull says that every address of the pods' range is in use.
var ErrFull = errors.New("no address is left for another pod")

// ErrClosed says that the network has been closed.
var ErrClosed = errors.New("the network of pods has been closed")

// PodRange is where pods have their addresses. It is Calico's pool, too.
func PodRange() netip.Prefix { return netip.MustParsePrefix(blueprint.PodCIDR) }

// Gateway is the bridge's address: a pod's default route, and the source of what the lab's own processes send to pods.
func Gateway() netip.Addr { return PodRange().Addr().Next() }

// APIServer is where pods reach the API server, as KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT tell them.
func APIServer() netip.AddrPort {
	const port = 443
	return netip.AddrPortFrom(netip.MustParseAddr(blueprint.APIServerService), port)
}

// Attachment is a pod's place in the network. It embeds the pod's network namespace, with which one
//
//   - starts a program in the pod: Start(cmd). The program dies with the attachment (Detach, Close, or the end of this process), whatever it
//     does, and so do those that it starts if it is the first of a PID namespace (SysProcAttr.Cloneflags, which Start keeps);
//   - opens sockets there: Do(f), as a probe of the pod's loopback address needs;
//   - gets a descriptor of it: Open().
type Attachment struct {
	// Key is what the pod was attached by.
	Key string
	// IP is the pod's address, of PodRange.
	IP netip.Addr
	*netns.Namespace
	// port is the end of the cable that is on the bridge; no two pods ever have the same.
	port string
}

// Network gives pods their addresses and namespaces. All methods may be called by any goroutine, at any time.
type Network struct {
	mu sync.Mutex // guards what follows
	// pods are those that are attached or being attached, by key.
	pods map[string]*pod
	// taken are the addresses of pods, of attached ones and of those on their way.
	taken map[netip.Addr]bool
	last  netip.Addr
	// prefix begins the names of this network's cables: those of a process that has just ended may be there still.
	prefix string
	ports  int
	closed bool
}

// pod is one that is attached, or on its way: done is closed once attachment or err is set.
type pod struct {
	done       chan struct{}
	attachment Attachment
	err        error
}

// New returns a network without pods. The process must be in the lab's namespace; where Build has not been called there, Attach fails.
//
// Addresses are given out in turn, from a random one on: the pods of a process that came before this one have just ended, and what the API server
// still says of them must not lead to another pod.
func New() (*Network, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("choosing the first pod's address: %w", err)
	}
	return newNetwork(binary.BigEndian.Uint64(seed[:])), nil
}

func newNetwork(seed uint64) *Network {
	first := PodRange().Addr().As4()
	size := uint64(1) << (32 - PodRange().Bits())
	start := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first[:])+uint32(seed%size)) //nolint:gosec // below the size of the range
	return &Network{
		pods: map[string]*pod{}, taken: map[netip.Addr]bool{}, last: netip.AddrFrom4([4]byte(start)),
		prefix: fmt.Sprintf("p%06x-", seed>>40), // with the number after it no longer than a device's name may be (IFNAMSIZ)
	}
}

// Attach gives the pod called key (any text that is its own, such as its UID) an address and a network namespace with lo, eth0 and a default
// route. It is idempotent: a pod that is attached keeps what it has, and a second caller waits for the first. Errors wrap netns.ErrNotAllowed,
// ErrFull or ErrClosed where that is the cause; then nothing is left of the attempt. ctx bounds the waiting only.
func (n *Network) Attach(ctx context.Context, key string) (Attachment, error) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return Attachment{}, ErrClosed
	}
	p, ok := n.pods[key]
	if !ok {
		address, err := n.nextAddress()
		if err != nil {
			n.mu.Unlock()
			return Attachment{}, fmt.Errorf("attaching %s: %w", key, err)
		}
		n.ports++
		p = &pod{done: make(chan struct{}), attachment: Attachment{Key: key, IP: address, port: fmt.Sprint(n.prefix, n.ports)}}
		n.pods[key] = p
		go n.attach(p)
	}
	n.mu.Unlock()
	select {
	case <-p.done:
		return p.attachment, p.err
	case <-ctx.Done():
		return Attachment{}, fmt.Errorf("attaching %s: %w", key, context.Cause(ctx))
	}
}

// attach makes what Attach promises.
func (n *Network) attach(p *pod) {
	defer close(p.done)
	namespace, err := connect(p.attachment.port, p.attachment.IP)
	if err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.pods, p.attachment.Key)
		delete(n.taken, p.attachment.IP)
		p.err = fmt.Errorf("attaching %s: %w", p.attachment.Key, err)
		p.attachment = Attachment{}
		return
	}
	p.attachment.Namespace = namespace
}

// Detach ends all programs that were started in the pod's namespace and takes the pod off the network; its address is free for another one then.
// Detaching a pod that is not attached is no error. It waits for an Attach of the same pod that is under way.
func (n *Network) Detach(key string) error {
	n.mu.Lock()
	p, ok := n.pods[key]
	n.mu.Unlock()
	if !ok {
		return nil
	}
	<-p.done
	n.mu.Lock()
	if n.pods[key] != p { // it failed, or somebody else has detached it
		n.mu.Unlock()
		return nil
	}
	delete(n.pods, key)
	n.mu.Unlock()
	err := disconnect(p.attachment)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, p.attachment.IP)
	return err
}

// Close detaches all pods; Attach fails from then on.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	var keys []string
	for key := range n.pods {
		keys = append(keys, key)
	}
	n.mu.Unlock()
	var errs []error
	for _, key := range keys {
		errs = append(errs, n.Detach(key))
	}
	return errors.Join(errs...)
}

// nextAddress takes the next address that no pod has. The caller holds mu.
func (n *Network) nextAddress() (netip.Addr, error) {
	pods := PodRange()
	for range 1 << (32 - pods.Bits()) {
		n.last = n.last.Next()
		if !pods.Contains(n.last) {
			n.last = Gateway() // skips the network's own address, and the gateway's in the next round
			continue
		}
		if n.isPods(n.last) && !n.taken[n.last] {
			n.taken[n.last] = true
			return n.last, nil
		}
	}
	return netip.Addr{}, ErrFull
}

// isPods reports whether a pod may have the address: not the network's own, not the gateway's and not that for broadcasts.
func (n *Network) isPods(address netip.Addr) bool {
	return address != PodRange().Addr() && address != Gateway() && PodRange().Contains(address.Next())
}
