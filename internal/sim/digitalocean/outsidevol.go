// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"time"
)

// Volumes returns all volumes, in the order of their creation.
func (a *Account) Volumes() []Volume {
	all, _ := under(a, func(now time.Time) ([]Volume, error) {
		a.account.settle(now)
		var all []Volume
		for v := range a.account.volumes.values() {
			all = append(all, v.shown)
		}
		return all, nil
	})
	return all
}

// CreateVolume makes a volume, as a person does.
func (a *Account) CreateVolume(spec VolumeSpec) (Volume, error) {
	return under(a, func(now time.Time) (Volume, error) {
		v, refused := a.account.createVolume(spec, now)
		if refused != nil {
			return Volume{}, refused
		}
		return v.shown, nil
	})
}

// AttachVolume attaches a volume at once, with an action that has completed already; with droplet 0 it detaches it.
func (a *Account) AttachVolume(id string, droplet int) error {
	return a.do(func(now time.Time) error {
		v, found := a.account.volumes.get(id)
		if !found {
			return fmt.Errorf("volume %q does not exist", id)
		}
		todo := &volumeAction{Volume: id, Kind: actionAttach, Droplet: droplet}
		if droplet == 0 {
			todo.Kind, todo.Droplet = actionDetach, v.droplet()
		}
		err := a.account.apply(v, todo, now)
		if err == nil {
			action := a.account.recordVolumeAction(v, todo, now)
			action.Status, action.CompletedAt = actionCompleted, new(rfc3339(now))
		}
		return err
	})
}

// DeleteVolume deletes a volume, as a person does.
func (a *Account) DeleteVolume(id string) error {
	return a.do(func(now time.Time) error {
		v, found := a.account.volumes.get(id)
		if !found {
			return fmt.Errorf("volume %q does not exist", id)
		}
		if refused := a.account.deleteVolume(v, now); refused != nil {
			return refused
		}
		return nil
	})
}

// Snapshots returns all snapshots, in the order of their creation.
func (a *Account) Snapshots() []Snapshot {
	all, _ := under(a, func(time.Time) ([]Snapshot, error) {
		var all []Snapshot
		for s := range a.account.snapshots.values() {
			all = append(all, s.shown)
		}
		return all, nil
	})
	return all
}

// AddActions records completed actions of droplets, newer than all others, as other programs make them.
func (a *Account) AddActions(count int) {
	_ = a.do(func(now time.Time) error {
		for range count {
			a.account.keepAction(&Action{
				ID: a.sim.nextAction, Status: actionCompleted, Type: "power_cycle", StartedAt: rfc3339(now),
				CompletedAt: new(rfc3339(now)), ResourceID: new(a.sim.nextAction), ResourceType: "droplet",
			})
			a.sim.nextAction++
		}
		return nil
	})
}

// FailVolumeActions makes the next actions of volumes end errored.
func (a *Account) FailVolumeActions(count int) {
	_ = a.do(func(time.Time) error {
		a.account.failNext = count
		return nil
	})
}
