// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

const (
	// calicoStartTimeout bounds one start of calico-node, calicoRetry is the pause after one that failed: a container that crashes is
	// started again.
	calicoStartTimeout = 30 * time.Second
	calicoRetry        = 2 * time.Second
	// calicoStarts is how many start at a time: all at once would take the memory of all at once.
	calicoStarts = 32
)

// errNotStarted is what a CNI plugin says before calico-node has installed it; the kubelet tries again.
var errNotStarted = errors.New("calico-node has not started on this machine yet")

// calicoHost is calico-node and the CNI plugin of one machine. The nil pointer is a machine without Calico.
type calicoHost struct {
	datastore *caliconode.Datastore
	host      caliconode.Host
	logger    logr.Logger
	stopped   chan struct{}
	// starting has room for those that may start now; all hosts of a process share it.
	starting chan struct{}

	mu       sync.Mutex // guards what follows
	network  kubelet.PodNetwork
	conflict bool
}

func (f *fleet) newCalicoHost(machine machines.Machine) *calicoHost {
	if f.datastore == nil {
		return nil
	}
	host := caliconode.Host{
		Name: machine.Name, KubernetesNode: machine.Name, Address: machine.Address, Bits: machines.Network().Bits(), IPIP: f.tunnels,
		BitsV6: machines.NetworkV6().Bits(),
	}
	switch f.families {
	case blueprint.FamilyIPv6:
		host.Address, host.Bits = machines.IPv6(machine.Address), machines.NetworkV6().Bits()
	case blueprint.BothFamilies:
		host.AddressV6, host.DualStack = machines.IPv6(machine.Address), true
	}
	return &calicoHost{
		datastore: f.datastore, host: host,
		logger:   f.logger.WithValues("machine", machine.Name),
		stopped:  make(chan struct{}),
		starting: f.starting,
	}
}

// run starts calico-node until that succeeds.
func (c *calicoHost) run(ctx context.Context) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		err := c.start(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			c.logger.Info("calico-node does not start, trying again", "because", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(calicoRetry):
		}
	}
}

func (c *calicoHost) start(ctx context.Context) error {
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, calicoStartTimeout)
	defer cancel()
	agent, err := c.datastore.Start(ctx, c.host)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conflict = errors.Is(err, caliconode.ErrAddressConflict)
	if err != nil {
		return err
	}
	c.network = agent.PodNetwork()
	c.logger.Info("calico-node has started")
	return nil
}

// stop ends calico-node as the end of its machine does: nothing is cleaned up.
func (c *calicoHost) stop() {
	if c != nil {
		close(c.stopped)
	}
}

// settled reports whether calico-node has started, or has found that it cannot until somebody clears Calico's datastore of a machine that is gone:
// that is a state of the lab which users want to see, not a failed start of the lab.
func (c *calicoHost) settled() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.network != nil || c.conflict
}

// podNetwork is nil for a machine without Calico, whose pods then stay Pending.
func (c *calicoHost) podNetwork() kubelet.PodNetwork {
	if c == nil {
		return nil
	}
	return c
}

func (c *calicoHost) plugin() (kubelet.PodNetwork, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.network == nil {
		return nil, errNotStarted
	}
	return c.network, nil
}

// Add implements kubelet.PodNetwork.
func (c *calicoHost) Add(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error) {
	plugin, err := c.plugin()
	if err != nil {
		return nil, fmt.Errorf("connecting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return plugin.Add(ctx, pod)
}

// Del implements kubelet.PodNetwork.
func (c *calicoHost) Del(ctx context.Context, pod *corev1.Pod) error {
	plugin, err := c.plugin()
	if err != nil {
		return fmt.Errorf("disconnecting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return plugin.Del(ctx, pod)
}

// hasNetwork reports whether pods can get an address.
func (c *calicoHost) hasNetwork() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.network != nil
}
