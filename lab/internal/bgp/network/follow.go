// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

const (
	// pollInterval is how often the network is compared with what it should be; nothing is asked of the API server for that, which is watched.
	pollInterval = 200 * time.Millisecond
	// retryInterval is waited after a change that could not be made.
	retryInterval = 2 * time.Second
	// joinTimeout is how long the first machines are waited for: one that cannot get its address must not keep the lab from its users.
	joinTimeout = time.Minute
)

// follower makes the network what the machines are.
type follower struct {
	Options
	fabric   *fabric.Fabric
	speakers *speaker.Speakers
	nodes    corelisters.NodeLister
	pods     corelisters.PodLister
	// calico follows Calico's etcd, nil where the Nodes hold what Calico has given them.
	calico *calico.BGPEtcd
	// restore undoes what was changed in the kernel for many machines; nil until there were many.
	restore func() error
}

// watch fills in the listers and returns once they know what there is. A watch that breaks goes on by itself with what was known.
func (f *follower) watch(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	f.nodes, f.pods = factory.Core().V1().Nodes().Lister(), factory.Core().V1().Pods().Lister()
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %v: %w", kind, ctx.Err())
		}
	}
	return nil
}

// watchCalico follows Calico's etcd from now on, if its data are there. A watch that breaks goes on by itself with what was known.
func (f *follower) watchCalico(ctx context.Context) error {
	if f.Datastore != blueprint.DatastoreEtcd {
		return nil
	}
	where, err := calico.Resolve(f.Datastore, os.LookupEnv)
	if err != nil {
		return err
	}
	etcd, err := calico.OpenEtcd(where.Etcd)
	if err != nil {
		return err
	}
	f.calico = calico.NewBGPEtcd(etcd, "", clock.RealClock{})
	go func() {
		_ = f.calico.Start(ctx)
		_ = etcd.Close()
	}()
	return nil
}

// look reads what the network is to be. A list of machines that cannot be read is an error, and never an empty one.
func (f *follower) look() (world, error) {
	list, err := machines.Load(f.Machines)
	if err != nil {
		return world{}, err
	}
	w := world{list: list}
	if w.nodes, err = f.nodes.List(labels.Everything()); err != nil {
		return world{}, err
	}
	if w.pods, err = f.pods.List(labels.Everything()); err != nil {
		return world{}, err
	}
	for _, h := range f.fabric.Hosts() {
		w.hosts = append(w.hosts, h.Machine)
	}
	if f.calico == nil {
		return w, nil
	}
	view, err := f.calico.View()
	if err != nil {
		return world{}, err
	}
	w.calico, w.inEtcd = view.Nodes, true
	return w, nil
}

// pending names the machines that the network has not followed yet.
func (f *follower) pending() ([]string, error) {
	w, err := f.look()
	if err != nil {
		return nil, err
	}
	return plan(w).pending(), nil
}

// run follows until ctx ends. It says once that the network is ready.
func (f *follower) run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	deadline := time.Now().Add(joinTimeout)
	var next time.Time
	for announced := false; ; {
		if now := time.Now(); now.After(next) {
			awaited, err := f.follow(ctx)
			if err != nil {
				f.Logger.Error("The network does not follow the machines yet", "because", err)
				next = now.Add(retryInterval)
			}
			if !announced && err == nil && (len(awaited) == 0 || now.After(deadline)) {
				if err := f.announce(awaited); err != nil {
					return err
				}
				announced = true
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (f *follower) announce(awaited []string) error {
	if f.ReadyFile != "" {
		if err := os.WriteFile(f.ReadyFile, []byte("ready\n"), 0o600); err != nil {
			return fmt.Errorf("saying that the network is ready: %w", err)
		}
	}
	f.Logger.Info("The BGP network runs", "machines", len(f.fabric.Hosts()), "awaited", awaited)
	return nil
}

// follow makes all changes that are due and returns which machines are still to come. After a failure it goes on with the other machines.
func (f *follower) follow(ctx context.Context) (awaited []string, err error) {
	w, err := f.look()
	if err != nil {
		return nil, err
	}
	c := plan(w)
	var errs []error
	for _, name := range c.remove {
		errs = append(errs, f.remove(name))
	}
	f.makeRoom(len(w.hosts) - len(c.remove) + len(c.add))
	for _, m := range c.add {
		errs = append(errs, f.add(ctx, m))
	}
	for name, pods := range c.pods {
		errs = append(errs, f.fabric.SetPods(name, pods))
	}
	return c.awaited, errors.Join(errs...)
}

func (f *follower) add(ctx context.Context, m fabric.Machine) error {
	h, err := f.fabric.Add(m)
	if err != nil {
		return err
	}
	if err := f.speakers.Add(ctx, h); err != nil {
		return errors.Join(err, f.remove(m.Name))
	}
	f.Logger.Info("A machine has joined", "machine", m.Name, "address", m.Address, "addressV6", m.AddressV6, "pods", m.Pods)
	return nil
}

// remove ends a machine as the loss of its power does: its cable goes first, so that not even the end of its connections is heard by the others.
func (f *follower) remove(name string) error {
	h, err := f.fabric.Unplug(name)
	f.speakers.Remove(name)
	if h.Namespace != nil {
		h.Close()
	}
	f.Logger.Info("A machine has gone", "machine", name)
	return err
}

// makeRoom prepares the kernel for many machines, once.
func (f *follower) makeRoom(count int) {
	if f.restore != nil || count <= fabric.FewMachines {
		return
	}
	restore, err := fabric.RaiseNeighborLimits(max(count, blueprint.MaxBGPNodes))
	if err != nil {
		f.Logger.Warn("A network this large will lose packets: the kernel's table of neighbors is too small", "because", err)
	}
	f.restore = restore
}

// close ends all machines and undoes what was changed for them.
func (f *follower) close() error {
	f.speakers.Close()
	f.fabric.Close()
	if f.restore != nil {
		return f.restore()
	}
	return nil
}
