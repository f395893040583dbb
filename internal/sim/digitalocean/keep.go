// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// imageVersion is that of the format of [Simulator.Image].
const imageVersion = 1

// image is everything that is true, as one document. Tokens, faults, counters and the past are not part of it.
type image struct {
	Version     int            `json:"version"`
	NextDroplet int            `json:"nextDroplet"`
	NextAction  int            `json:"nextAction"`
	Identifiers []byte         `json:"identifiers"`
	Public      poolImage      `json:"public"`
	Public6     poolImage      `json:"public6"`
	Balancers   poolImage      `json:"balancers"`
	Accounts    []accountImage `json:"accounts"`
}

// poolImage is what of a network is taken.
type poolImage struct {
	Prefix netip.Prefix `json:"prefix"`
	Next   uint64       `json:"next"`
	Used   []netip.Addr `json:"used,omitempty"`
}

type accountImage struct {
	Name         string               `json:"name"`
	Info         AccountInfo          `json:"info"`
	Droplets     []dropletImage       `json:"droplets,omitempty"`
	Balancers    []balancerImage      `json:"loadBalancers,omitempty"`
	Certificates []certificateImage   `json:"certificates,omitempty"`
	Firewalls    []firewallImage      `json:"firewalls,omitempty"`
	Tags         []string             `json:"tags,omitempty"`
	VPCs         []VPC                `json:"vpcs,omitempty"`
	Networks     map[string]poolImage `json:"networks,omitempty"`
	Actions      map[int]*Action      `json:"actions,omitempty"`

	Volumes       []volumeImage         `json:"volumes,omitempty"`
	Snapshots     []Snapshot            `json:"snapshots,omitempty"`
	VolumeActions map[int]*volumeAction `json:"volumeActions,omitempty"`
	Pending       []int                 `json:"pending,omitempty"`
}

type volumeImage struct {
	Shown      Volume    `json:"shown"`
	Pending    int       `json:"pending,omitempty"`
	SnapshotAt time.Time `json:"snapshotAt"`
}

type dropletImage struct {
	ID         int       `json:"id"`
	Name       string    `json:"name"`
	Region     string    `json:"region"`
	Size       string    `json:"size"`
	VPC        string    `json:"vpc"`
	Tags       []string  `json:"tags,omitempty"`
	Features   []string  `json:"features,omitempty"`
	UserData   string    `json:"userData,omitempty"`
	Created    time.Time `json:"created"`
	ActiveAt   time.Time `json:"activeAt"`
	NetworksAt time.Time `json:"networksAt"`
	Power      string    `json:"power"`
	Networks   Networks  `json:"networks"`
	Volumes    []string  `json:"volumes,omitempty"`
	Pooled     []string  `json:"pooled,omitempty"`
}

type balancerImage struct {
	Shown     LoadBalancer `json:"shown"`
	ActiveAt  time.Time    `json:"activeAt"`
	Reads     int          `json:"reads,omitempty"`
	Errored   bool         `json:"errored,omitempty"`
	Forced    string       `json:"forced,omitempty"`
	ResizedAt time.Time    `json:"resizedAt"`
	BusyUntil time.Time    `json:"busyUntil"`
	Claimed   []string     `json:"claimed,omitempty"`
}

type certificateImage struct {
	Shown      Certificate `json:"shown"`
	VerifiedAt time.Time   `json:"verifiedAt"`
	Forced     string      `json:"forced,omitempty"`
}

type firewallImage struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Inbound   []InboundRule  `json:"inbound"`
	Outbound  []OutboundRule `json:"outbound"`
	Droplets  []int          `json:"droplets,omitempty"`
	Tags      []string       `json:"tags,omitempty"`
	Created   time.Time      `json:"created"`
	SettledAt time.Time      `json:"settledAt"`
	Forced    string         `json:"forced,omitempty"`
}

// Image returns everything that is true now as a document that [Options.Image] takes, so that a simulator whose process was killed goes on in
// another. Tokens are not part of it, nor are faults, counters of limits, the journal, and what lagging views would still show.
func (s *Simulator) Image() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.image()
}

func (s *Simulator) image() ([]byte, error) {
	identifiers, err := s.source.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("keeping the state of the simulator: %w", err)
	}
	kept := image{
		Version: imageVersion, NextDroplet: s.nextDroplet, NextAction: s.nextAction, Identifiers: identifiers,
		Public: s.public.image(), Public6: s.public6.image(), Balancers: s.balancers.image(),
	}
	for _, a := range s.accounts {
		kept.Accounts = append(kept.Accounts, a.image())
	}
	document, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("keeping the state of the simulator: %w", err)
	}
	return document, nil
}

func (p *pool) image() poolImage {
	kept := poolImage{Prefix: p.prefix, Next: p.next}
	for address := range p.used {
		kept.Used = append(kept.Used, address)
	}
	slices.SortFunc(kept.Used, netip.Addr.Compare)
	return kept
}

func (a *account) image() accountImage {
	kept := accountImage{Name: a.name, Info: a.info, Tags: slices.Collect(a.tags.values()), Networks: map[string]poolImage{}, Actions: a.actions}
	for d := range a.droplets.values() {
		kept.Droplets = append(kept.Droplets, dropletImage{
			ID: d.id, Name: d.name, Region: d.region.Slug, Size: d.size.Slug, VPC: d.vpc, Tags: d.tags, Features: d.features,
			UserData: d.userData, Created: d.created, ActiveAt: d.activeAt, NetworksAt: d.networksAt, Power: d.power,
			Networks: d.networks, Volumes: d.volumes, Pooled: d.pooled,
		})
	}
	for lb := range a.balancers.values() {
		kept.Balancers = append(kept.Balancers, balancerImage{
			Shown: lb.shown, ActiveAt: lb.progress.activeAt, Reads: lb.progress.reads, Errored: lb.progress.errored,
			Forced: lb.progress.forced, ResizedAt: lb.resizedAt, BusyUntil: lb.busyUntil, Claimed: lb.claimed,
		})
	}
	for crt := range a.certificates.values() {
		kept.Certificates = append(kept.Certificates, certificateImage{Shown: crt.shown, VerifiedAt: crt.verifiedAt, Forced: crt.forced})
	}
	for f := range a.firewalls.values() {
		kept.Firewalls = append(kept.Firewalls, firewallImage{
			ID: f.id, Name: f.name, Inbound: f.inbound, Outbound: f.outbound, Droplets: f.droplets, Tags: f.tags, Created: f.created,
			SettledAt: f.settledAt, Forced: f.forced,
		})
	}
	kept.VolumeActions, kept.Pending = a.volumeActions, a.pending
	for v := range a.volumes.values() {
		kept.Volumes = append(kept.Volumes, volumeImage{Shown: v.shown, Pending: v.pending, SnapshotAt: v.snapshotAt})
	}
	for s := range a.snapshots.values() {
		kept.Snapshots = append(kept.Snapshots, s.shown)
	}
	for vpc := range a.vpcs.values() {
		kept.VPCs = append(kept.VPCs, *vpc)
		kept.Networks[vpc.ID] = a.networks[vpc.ID].image()
	}
	return kept
}

// changed notes that something is no longer as it was.
func (s *Simulator) changed() { s.revision++ }

// keep tells of a change since a revision, before anybody is told of it. The lock is held.
func (s *Simulator) keep(since uint64) {
	if s.options.Changed != nil && s.revision != since {
		s.options.Changed(s.image)
	}
}

// restore makes an image true. The accounts are those of the options.
func (s *Simulator) restore(document []byte) error {
	var kept image
	if err := json.Unmarshal(document, &kept); err != nil {
		return fmt.Errorf("reading the kept state of the simulator: %w", err)
	}
	if kept.Version != imageVersion {
		return fmt.Errorf("the kept state of the simulator has version %d, this program reads version %d", kept.Version, imageVersion)
	}
	if err := s.source.UnmarshalBinary(kept.Identifiers); err != nil {
		return fmt.Errorf("reading the kept state of the simulator: %w", err)
	}
	s.nextDroplet, s.nextAction = kept.NextDroplet, kept.NextAction
	s.public, s.public6, s.balancers = kept.Public.pool(), kept.Public6.pool(), kept.Balancers.pool()
	for _, kept := range kept.Accounts {
		found, err := s.findAccount(kept.Name)
		if err != nil {
			return fmt.Errorf("reading the kept state of the simulator: %w", err)
		}
		if err := found.account.restore(kept); err != nil {
			return fmt.Errorf("reading the kept state of account %q: %w", kept.Name, err)
		}
	}
	return nil
}

func (p poolImage) pool() *pool {
	restored := newPool(p.Prefix)
	restored.next = p.Next
	for _, address := range p.Used {
		restored.used[address] = true
	}
	return restored
}

func (a *account) restore(kept accountImage) error {
	catalog, now := a.sim.catalog, a.sim.clock.Now()
	a.clear()
	a.info = kept.Info
	if kept.Actions != nil {
		a.actions = kept.Actions
	}
	for _, tag := range kept.Tags {
		a.ensureTag(tag, now)
	}
	for _, vpc := range kept.VPCs {
		a.vpcs.put(vpc.ID, &vpc, now)
		a.networks[vpc.ID] = kept.Networks[vpc.ID].pool()
	}
	for _, d := range kept.Droplets {
		region, size := catalog.byRegion[d.Region], catalog.bySize[d.Size]
		if region == nil || size == nil || a.networks[d.VPC] == nil {
			return fmt.Errorf("droplet %d has region %q, size %q and network %q, of which one does not exist", d.ID, d.Region, d.Size, d.VPC)
		}
		a.droplets.put(d.ID, &droplet{
			id: d.ID, name: d.Name, region: region, size: size, vpc: d.VPC, tags: sortedUnique(d.Tags), features: d.Features,
			userData: d.UserData, created: d.Created, activeAt: d.ActiveAt, networksAt: d.NetworksAt, power: d.Power,
			networks: d.Networks, volumes: d.Volumes, pooled: d.Pooled,
		}, d.Created)
	}
	for _, lb := range kept.Balancers {
		if lb.Shown.Region != nil {
			lb.Shown.Region = catalog.byRegion[lb.Shown.Region.Slug]
		}
		a.balancers.put(lb.Shown.ID, &loadBalancer{
			shown: lb.Shown, resizedAt: lb.ResizedAt, busyUntil: lb.BusyUntil, claimed: lb.Claimed,
			progress: &progress{activeAt: lb.ActiveAt, reads: lb.Reads, errored: lb.Errored, forced: lb.Forced},
		}, now)
	}
	for _, crt := range kept.Certificates {
		a.certificates.put(crt.Shown.ID, &certificate{shown: crt.Shown, verifiedAt: crt.VerifiedAt, forced: crt.Forced}, now)
	}
	for _, f := range kept.Firewalls {
		a.firewalls.put(f.ID, &firewall{
			id: f.ID, name: f.Name, inbound: f.Inbound, outbound: f.Outbound, droplets: sortedUnique(f.Droplets), tags: sortedUnique(f.Tags),
			created: f.Created, settledAt: f.SettledAt, forced: f.Forced,
		}, f.Created)
	}
	return a.restoreVolumes(kept, now)
}

func (a *account) restoreVolumes(kept accountImage, now time.Time) error {
	adopter, adopts := a.sim.options.Volumes.Devices.(Adopter)
	for _, v := range kept.Volumes {
		v.Shown.Region = a.sim.catalog.byRegion[v.Shown.Region.Slug]
		restored := &volume{shown: v.Shown, pending: v.Pending, snapshotAt: v.SnapshotAt}
		if adopts {
			if err := adopter.Adopt(v.Shown.ID, v.Shown.Name, restored.droplet()); err != nil {
				return fmt.Errorf("the disk of volume %s: %w", v.Shown.Name, err)
			}
		}
		a.volumes.put(v.Shown.ID, restored, now)
	}
	for _, s := range kept.Snapshots {
		a.snapshots.put(s.ID, &snapshot{shown: s}, now)
	}
	if kept.VolumeActions != nil {
		a.volumeActions = kept.VolumeActions
	}
	a.pending = kept.Pending
	return nil
}
