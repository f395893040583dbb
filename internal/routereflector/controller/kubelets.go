// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// KubeletPort is the kubelet's TCP port by default (its flag --port; the status of a Node has it as
// daemonEndpoints.kubeletEndpoint).
const KubeletPort = 10250

// KubeletPause is the time between two connections to one kubelet outside of tests.
const KubeletPause = 3 * time.Second

const (
	// kubeletTimeout is how long a connection may take to be made.
	kubeletTimeout = 2 * time.Second
	// kubeletSilence times the pause is how long a kubelet must not answer: four connections in a row.
	kubeletSilence = 3
	// maxDoubted and maxControls are how many kubelets of reflectors that are doubted are connected to at a time, and how
	// many of others.
	maxDoubted  = 4
	maxControls = 2
	// kubeletMemory is how long what is known of a kubelet that nobody connects to any more is kept.
	kubeletMemory = time.Minute
)

// Kubelets connects to the kubelets of reflectors whose Nodes are not heard from, and to some others for comparison:
// without an answer of any of these the trouble may be this program's own. While no reflector is doubted it makes no
// connection. It never connects to port 179, where a connection resets a session.
type Kubelets struct {
	// Port is the kubelets' TCP port.
	Port int
	// Pause is the time between two connections to one kubelet.
	Pause time.Duration
	Clock clock.PassiveClock
	// Dial makes a connection, as [net.Dialer.DialContext] does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// known are the kubelets by node, heard is when one that is not doubted last answered.
	known map[string]*kubelet
	heard time.Time
}

// kubelet is what is known of one: when it was last connected to, and since when it has not answered, zero if it has.
type kubelet struct {
	connected, silent time.Time
	busy              bool
}

// target is a kubelet to connect to; control reports that nobody doubts it.
type target struct {
	node    string
	address netip.Addr
	control bool
}

// observe connects to the kubelets that matter for a World, without waiting for them, and adds to the World what is
// known of them.
func (k *Kubelets) observe(ctx context.Context, w *routereflector.World) {
	if k == nil {
		return
	}
	all := targets(w)
	for _, t := range k.due(all) {
		go k.connect(context.WithoutCancel(ctx), t)
	}
	w.NoAnswer = k.silent(all)
}

// targets are the reflectors whose Nodes are unknown, and some nodes whose Nodes are Ready, reflectors first; none if
// no reflector is doubted.
func targets(w *routereflector.World) []target {
	var doubted, reflectors, others []target
	for i := range w.Nodes {
		n := &w.Nodes[i]
		address := n.IPv4
		if !address.IsValid() {
			address = n.IPv6
		}
		isReflector := n.Labels[v1alpha1.ReflectorLabel] == w.Topology.Name && !n.ForeignMark
		switch t := (target{node: n.Name, address: address}); {
		case !address.IsValid():
		case isReflector && n.Ready == corev1.ConditionUnknown:
			doubted = append(doubted, t)
		case n.Ready == corev1.ConditionTrue && n.LostSince.IsZero():
			t.control = true
			if isReflector {
				reflectors = append(reflectors, t)
			} else if len(others) < maxControls {
				others = append(others, t)
			}
		}
	}
	if len(doubted) == 0 {
		return nil
	}
	controls := slices.Concat(reflectors, others)
	return slices.Concat(doubted[:min(len(doubted), maxDoubted)], controls[:min(len(controls), maxControls)])
}

// due are those to which a connection is made now. What is not asked for any more is forgotten.
func (k *Kubelets) due(all []target) (now []target) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.Clock.Now()
	if k.known == nil {
		k.known = map[string]*kubelet{}
	}
	for name, is := range k.known {
		if !is.busy && at.Sub(is.connected) > kubeletMemory {
			delete(k.known, name)
		}
	}
	for _, t := range all {
		is := k.known[t.node]
		if is == nil {
			is = &kubelet{}
			k.known[t.node] = is
		}
		if !is.busy && at.Sub(is.connected) >= k.Pause {
			is.busy, is.connected = true, at
			now = append(now, t)
		}
	}
	return now
}

// connect makes one connection and closes it.
func (k *Kubelets) connect(ctx context.Context, t target) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	begun := k.Clock.Now()
	connection, err := k.Dial(ctx, "tcp", net.JoinHostPort(t.address.String(), strconv.Itoa(k.Port)))
	if err == nil {
		_ = connection.Close()
	}
	// A machine that refuses a connection lives.
	k.record(t, begun, err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET))
}

func (k *Kubelets) record(t target, begun time.Time, answered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.known[t.node]
	if is == nil {
		return
	}
	is.busy = false
	switch {
	case answered:
		is.silent = time.Time{}
		if t.control && begun.After(k.heard) {
			k.heard = begun
		}
	case is.silent.IsZero():
		is.silent = begun
	}
}

// silent are the doubted kubelets that have not answered for long enough, by node and since when, if another has
// answered meanwhile.
func (k *Kubelets) silent(all []target) map[string]time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out map[string]time.Time
	for _, t := range all {
		is := k.known[t.node]
		if t.control || is.silent.IsZero() || is.connected.Sub(is.silent) < kubeletSilence*k.Pause || !k.heard.After(is.silent) {
			continue
		}
		if out == nil {
			out = map[string]time.Time{}
		}
		out[t.node] = is.silent
	}
	return out
}
