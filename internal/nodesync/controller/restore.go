// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// RestoreStore is what restoring needs of either datastore.
type RestoreStore interface {
	Snapshot(ctx context.Context) (calico.Snapshot, error)
	MachineIsBack(ctx context.Context, host string, objects []calico.Object) (bool, error)
	MachineUID(ctx context.Context, host string) (string, error)
	Restore(ctx context.Context, object calico.Object, without ...string) error
	CheckRestore(ctx context.Context, object calico.Object, without ...string) error
	RestoreAddress(ctx context.Context, host string, address calico.HeldAddress, dryRun bool) error
	// Revert undoes a change of a repair.
	Revert(ctx context.Context, change calico.Change, dryRun bool) error
}

// Restore puts back what the entries hold, which are in the order of their time, and says a line of each thing. It returns false when
// something was refused. The UID is that of the cluster which the datastore is part of, empty for etcd.
func Restore(ctx context.Context, store RestoreStore, clusterUID string, entries []Entry, dryRun bool, say func(line string) error) (bool, error) {
	if err := checkCluster(ctx, store, clusterUID, entries); err != nil {
		return false, err
	}
	if foreign := foreignIn(entries); foreign != "" {
		return false, say(foreign)
	}
	r := restorer{
		store: store, say: say, dryRun: dryRun, done: map[string]bool{}, held: map[string][]calico.Object{}, taken: map[netip.Addr]calico.HeldAddress{},
		ownCluster: clusterUID != "",
	}
	all := true
	for _, entry := range entries {
		ok, err := r.restore(ctx, entry)
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	return all, nil
}

// foreignIn returns what is wrong with entries that hold something of another machine than the one that they are about, "" for nothing. The controller writes
// no such entry: it was put together or changed by somebody else, and nothing is put back then, also not of other entries.
func foreignIn(entries []Entry) string {
	const all = "not restored, and nothing else is: the entry of %s holds %s, which is not of that machine alone; the controller writes no such entry"
	for _, entry := range entries {
		for _, object := range entry.Objects {
			if !object.IsOf(entry.Host) {
				return fmt.Sprintf(all, cmp.Or(entry.Host, "no machine"), object.Key)
			}
		}
		for _, address := range entry.Addresses {
			if !address.IsOf(entry.Host) {
				return fmt.Sprintf(all, cmp.Or(entry.Host, "no machine"), "address "+address.Address.String())
			}
		}
	}
	return ""
}

// checkCluster refuses a datastore that is locked, or that belongs to another cluster than the journal.
func checkCluster(ctx context.Context, store RestoreStore, clusterUID string, entries []Entry) error {
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !snapshot.DatastoreReady {
		return errors.New("calico's ClusterInformation does not report datastoreReady: unlock the datastore first")
	}
	bound := cmp.Or(clusterUID, snapshot.ClusterInformation.Annotations[nodesync.BindingAnnotation])
	for _, entry := range entries {
		if bound != "" && entry.ClusterUID != "" && bound != entry.ClusterUID {
			return fmt.Errorf("the journal is of the cluster whose kube-system has UID %s, and this datastore belongs to %s: check ETCD_ENDPOINTS and --kubeconfig",
				entry.ClusterUID, bound)
		}
	}
	return nil
}

// restorer puts entries back, the oldest first.
type restorer struct {
	store  RestoreStore
	say    func(line string) error
	dryRun bool
	// done are the keys that an older entry has been asked for: of a clean-up that was interrupted, it holds them as they were at first.
	done map[string]bool
	// held are the objects of the entries so far, by host.
	held map[string][]calico.Object
	// taken are the addresses that an older entry has been asked for.
	taken map[netip.Addr]calico.HeldAddress
	// ownCluster reports that the datastore is part of its cluster, where the addresses of a machine that is gone are nobody's.
	ownCluster bool
}

// restore puts back one entry, the machine's Node first, which the others lead to, then its addresses, by which endpoints are judged. It
// returns false when something was refused.
func (r *restorer) restore(ctx context.Context, entry Entry) (bool, error) {
	if entry.Host == RepairHost {
		return r.revert(ctx, entry)
	}
	objects := slices.DeleteFunc(slices.Clone(entry.Objects), func(object calico.Object) bool { return calico.IsIPAM(object.Key) })
	addresses := entry.Addresses
	if r.ownCluster && !entry.Leftovers {
		addresses = nil
	}
	first := len(r.held[entry.Host]) == 0
	// What an older entry has just put back is not a machine that has joined again, even if this one is of after its Node was removed.
	r.held[entry.Host] = append(r.held[entry.Host], entry.Objects...)
	if len(objects)+len(addresses) == 0 && !first {
		return true, nil // the rest of an interrupted clean-up
	}
	if len(objects)+len(addresses) == 0 {
		return false, r.say("not restored: the entry of " + entry.Host + " holds nothing that could be put back")
	}
	refused, err := r.mayRestore(ctx, entry)
	if err != nil {
		return false, err
	}
	if refused != "" {
		return false, r.say(refused)
	}
	isNode := func(object calico.Object) bool { return strings.HasSuffix(object.Key, "/nodes/"+entry.Host) }
	nodes := slices.DeleteFunc(slices.Clone(objects), func(object calico.Object) bool { return !isNode(object) })
	ok, err := r.putAll(ctx, nodes)
	if err != nil {
		return false, err
	}
	for _, address := range addresses {
		placed, err := r.putAddress(ctx, entry.Host, address)
		if err != nil {
			return false, err
		}
		ok = ok && placed
	}
	rest, err := r.putAll(ctx, slices.DeleteFunc(slices.Clone(objects), isNode))
	return ok && rest, err
}

// mayRestore returns why nothing of an entry is put back, or "": onto a machine that has joined again nothing old is put, and leftovers go
// back to the machine on which they were, and to no other of its name.
func (r *restorer) mayRestore(ctx context.Context, entry Entry) (string, error) {
	if entry.Leftovers {
		uid, err := r.store.MachineUID(ctx, entry.Host)
		if err != nil {
			return "", err
		}
		if uid == "" || uid != entry.MachineUID {
			return "not restored: machine " + entry.Host + " is another machine than the one with these leftovers of pods", nil
		}
		return "", nil
	}
	back, err := r.store.MachineIsBack(ctx, entry.Host, r.held[entry.Host])
	if err != nil || !back {
		return "", err
	}
	return "not restored: machine " + entry.Host + " has joined again; nothing old is put onto it", nil
}

// putAll puts back objects, each once.
func (r *restorer) putAll(ctx context.Context, objects []calico.Object) (bool, error) {
	ok := true
	for _, object := range objects {
		if r.done[object.Key] {
			continue
		}
		r.done[object.Key] = true
		placed, err := r.put(ctx, object)
		if err != nil {
			return false, err
		}
		ok = ok && placed
	}
	return ok, nil
}

// putAddress puts back one address, or says why not. Of two entries with one address the older has it, and the other is named.
func (r *restorer) putAddress(ctx context.Context, host string, address calico.HeldAddress) (bool, error) {
	if older, taken := r.taken[address.Address]; taken {
		if older.Handle == address.Handle {
			return true, nil // of the same clean-up, or of the same pod
		}
		return false, r.say(fmt.Sprintf("%v: address %s of handle %s is in an older entry as well, of handle %s", calico.ErrNotRestored,
			address.Address, address.Handle, older.Handle))
	}
	r.taken[address.Address] = address
	err := r.store.RestoreAddress(ctx, host, address, r.dryRun)
	return r.came(fmt.Sprintf("restored address %s of %s", address.Address, cmp.Or(address.Attributes["pod"], host)), err)
}

// put puts back one object, or, in a dry run, reports whether it could.
func (r *restorer) put(ctx context.Context, object calico.Object) (bool, error) {
	act := r.store.Restore
	if r.dryRun {
		act = r.store.CheckRestore
	}
	return r.came("restored "+object.Key, act(ctx, object, nodesync.FenceAnnotation))
}

// came says what came of putting something back. It returns false when it was refused.
func (r *restorer) came(line string, err error) (bool, error) {
	refused := errors.Is(err, calico.ErrNotRestored) || errors.Is(err, calico.ErrConflict)
	switch {
	case refused, errors.Is(err, calico.ErrUnchanged):
		line = err.Error()
	case err != nil:
		return false, err
	case r.dryRun:
		line = "would restore" + strings.TrimPrefix(line, "restored")
	}
	return !refused, r.say(line)
}
