// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"slices"
	"time"
)

// State is everything that is true, for comparisons: two runs that ended alike have equal states.
type State struct {
	Accounts []AccountState `json:"accounts"`
}

// AccountState is everything in one account, each kind in the order of its creation; tags are sorted.
type AccountState struct {
	Name          string         `json:"name"`
	UUID          string         `json:"uuid"`
	Droplets      []Droplet      `json:"droplets"`
	LoadBalancers []LoadBalancer `json:"loadBalancers"`
	Certificates  []Certificate  `json:"certificates"`
	Firewalls     []Firewall     `json:"firewalls"`
	Volumes       []Volume       `json:"volumes"`
	Snapshots     []Snapshot     `json:"snapshots"`
	Tags          []string       `json:"tags"`
	VPCs          []VPC          `json:"vpcs"`
}

// State returns everything that is true now, however far views lag behind.
func (s *Simulator) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var state State
	for _, a := range s.accounts {
		state.Accounts = append(state.Accounts, a.state(now))
	}
	return state
}

func (a *account) state(now time.Time) AccountState {
	state := AccountState{Name: a.name, UUID: a.info.UUID}
	for d := range a.droplets.values() {
		state.Droplets = append(state.Droplets, d.show(now, a.sim.catalog.image))
	}
	for lb := range a.balancers.values() {
		state.LoadBalancers = append(state.LoadBalancers, a.showBalancer(lb.clone(), now))
	}
	for crt := range a.certificates.values() {
		state.Certificates = append(state.Certificates, crt.show(now))
	}
	for f := range a.firewalls.values() {
		state.Firewalls = append(state.Firewalls, a.showFirewall(f.clone(), now))
	}
	for v := range a.volumes.values() {
		state.Volumes = append(state.Volumes, v.shown)
	}
	for s := range a.snapshots.values() {
		state.Snapshots = append(state.Snapshots, s.shown)
	}
	state.Tags = slices.Sorted(a.tags.values())
	for vpc := range a.vpcs.values() {
		state.VPCs = append(state.VPCs, *vpc)
	}
	return state
}
