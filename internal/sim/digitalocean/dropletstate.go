// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The states of a droplet (OpenAPI: droplet.status).
const (
	statusNew     = "new"
	statusActive  = "active"
	statusOff     = "off"
	statusArchive = "archive"
)

// droplet is a machine. It is never changed in place, see table.
type droplet struct {
	id         int
	name       string
	region     *Region
	size       *Size
	vpc        string
	tags       []string // sorted
	features   []string
	userData   string
	created    time.Time
	activeAt   time.Time
	networksAt time.Time
	power      string // active, off, archive
	networks   Networks
	volumes    []string // IDs, in the order in which they were attached
	pooled     []string // addresses that go back to their pools
}

// DropletSpec is a droplet to be. What is empty gets a value.
type DropletSpec struct {
	Name   string   `json:"name"`
	Region string   `json:"region,omitempty"` // nyc1 if empty
	Size   string   `json:"size,omitempty"`   // s-2vcpu-4gb if empty
	Tags   []string `json:"tags,omitempty"`
	// VPCUUID is the network, the region's default if empty.
	VPCUUID string `json:"vpcUUID,omitempty"`
	// ID must be free; the next one is taken if it is 0.
	ID               int  `json:"id,omitempty"`
	IPv6             bool `json:"ipv6,omitempty"`
	NoPublicNetwork  bool `json:"noPublicNetwork,omitempty"`
	NoPrivateNetwork bool `json:"noPrivateNetwork,omitempty"`
	// Networks are the addresses, instead of such from the pools.
	Networks *Networks `json:"networks,omitempty"`
	// BootAfter and NetworksAfter are used instead of those of the options.
	BootAfter     *time.Duration `json:"bootAfter,omitempty"`
	NetworksAfter *time.Duration `json:"networksAfter,omitempty"`
	// UserData is what the metadata service shows.
	UserData string `json:"userData,omitempty"`
}

// hostname is what DigitalOcean accepts as a droplet's name (OpenAPI: droplet_create.name).
var hostname = regexp.MustCompile(`^[a-zA-Z0-9]?[a-z0-9A-Z.\-]*[a-z0-9A-Z]$`)

// status is the droplet's at a time.
func (d *droplet) status(when time.Time) string {
	if when.Before(d.activeAt) {
		return statusNew
	}
	return d.power
}

func (d *droplet) hasTag(name string) bool {
	return slices.ContainsFunc(d.tags, func(tag string) bool { return strings.EqualFold(tag, name) })
}

// show returns the droplet as it was at a time.
func (d *droplet) show(when time.Time, image *Image) Droplet {
	networks := d.networks
	if when.Before(d.networksAt) {
		networks = Networks{}
	}
	if networks.V4 == nil {
		networks.V4 = []NetworkV4{}
	}
	if networks.V6 == nil {
		networks.V6 = []NetworkV6{}
	}
	return Droplet{
		ID: d.id, Name: d.name, Memory: d.size.Memory, VCPUs: d.size.VCPUs, Disk: d.size.Disk, Status: d.status(when),
		CreatedAt: rfc3339(d.created), Features: d.features, BackupIDs: []int{}, SnapshotIDs: []int{}, Image: image,
		VolumeIDs: new(append([]string{}, d.volumes...)), Size: d.size, SizeSlug: d.size.Slug, Networks: networks, Region: d.region, Tags: &d.tags,
		VPCUUID: d.vpc,
	}
}

// createDroplet checks a droplet and adds it.
func (a *account) createDroplet(spec DropletSpec, now time.Time) (*droplet, *refusal) {
	d, refused := a.planDroplet(spec, now)
	if refused != nil {
		return nil, refused
	}
	if d.id == 0 {
		d.id = a.sim.freeDropletID()
	}
	if spec.Networks != nil {
		d.networks = *spec.Networks
	} else if refused := a.assignAddresses(d, spec); refused != nil {
		a.releaseAddresses(d)
		return nil, refused
	}
	for _, tag := range d.tags {
		a.ensureTag(tag, now)
	}
	a.droplets.put(d.id, d, now)
	return d, nil
}

// planDroplet returns the droplet that a request asks for, without an ID unless it asks for one, and without addresses.
func (a *account) planDroplet(spec DropletSpec, now time.Time) (*droplet, *refusal) {
	if spec.Region == "" {
		spec.Region = "nyc1"
	}
	if spec.Size == "" {
		spec.Size = "s-2vcpu-4gb"
	}
	region, regionKnown := a.sim.catalog.byRegion[spec.Region]
	size, sizeKnown := a.sim.catalog.bySize[spec.Size]
	switch {
	case len(spec.Name) > 255 || !hostname.MatchString(spec.Name):
		return nil, invalid("Only valid hostname characters are allowed. (a-z, A-Z, 0-9, . and -)")
	case !regionKnown:
		return nil, invalid("region %q is not available", spec.Region)
	case !sizeKnown:
		return nil, invalid("size %q is not available", spec.Size)
	case a.sim.dropletExists(spec.ID):
		return nil, invalid("droplet %d exists already", spec.ID)
	case a.droplets.len() >= a.limit:
		return nil, invalid("creating this/these droplet(s) will exceed your droplet limit of %d", a.limit)
	}
	for _, tag := range spec.Tags {
		if !tagName.MatchString(tag) {
			return nil, invalid("tag %q contains invalid characters", tag)
		}
	}
	vpc, refused := a.vpcFor(spec.VPCUUID, spec.Region, now)
	if refused != nil {
		return nil, refused
	}
	d := &droplet{
		id: spec.ID, name: spec.Name, region: region, size: size, vpc: vpc.ID, tags: sortedUnique(spec.Tags), power: statusActive,
		userData: spec.UserData, created: now,
		activeAt:   now.Add(valueOr(spec.BootAfter, a.sim.options.Droplets.BootAfter)),
		networksAt: now.Add(valueOr(spec.NetworksAfter, a.sim.options.Droplets.NetworksAfter)),
		features:   []string{"monitoring", "droplet_agent"},
	}
	if !spec.NoPrivateNetwork {
		d.features = append(d.features, "private_networking")
	}
	if spec.IPv6 {
		d.features = append(d.features, "ipv6")
	}
	return d, nil
}

func valueOr(value *time.Duration, otherwise time.Duration) time.Duration {
	if value != nil {
		return *value
	}
	return otherwise
}

// sortedUnique returns a sorted copy that is never nil.
func sortedUnique[T int | string](values []T) []T {
	sorted := append([]T{}, values...)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// assignAddresses takes a droplet's addresses from the pools.
func (a *account) assignAddresses(d *droplet, spec DropletSpec) *refusal {
	take := func(p *pool) (netip.Addr, *refusal) {
		address, err := p.take()
		if err != nil {
			return address, refuse(http.StatusServiceUnavailable, "%s", err)
		}
		d.pooled = append(d.pooled, address.String())
		return address, nil
	}
	v4 := func(p *pool, kind string) *refusal {
		address, refused := take(p)
		if refused == nil {
			d.networks.V4 = append(d.networks.V4, NetworkV4{
				IPAddress: address.String(), Netmask: p.netmask(), Gateway: p.gateway(), Type: kind,
			})
		}
		return refused
	}
	if !spec.NoPrivateNetwork {
		if refused := v4(a.networks[d.vpc], "private"); refused != nil {
			return refused
		}
	}
	if spec.NoPublicNetwork {
		return nil
	}
	if refused := v4(a.sim.public, "public"); refused != nil {
		return refused
	}
	if spec.IPv6 {
		address, refused := take(a.sim.public6)
		if refused != nil {
			return refused
		}
		d.networks.V6 = []NetworkV6{{
			IPAddress: address.String(), Netmask: a.sim.public6.prefix.Bits(), Gateway: a.sim.public6.gateway(), Type: "public",
		}}
	}
	return nil
}

func (a *account) releaseAddresses(d *droplet) {
	for _, address := range d.pooled {
		a.networks[d.vpc].give(address)
		a.sim.public.give(address)
		a.sim.public6.give(address)
	}
}

// freeDropletID returns the next ID that nobody has. IDs are unique across accounts and never used again.
func (s *Simulator) freeDropletID() int {
	for {
		id := s.nextDroplet
		s.nextDroplet++
		if !s.dropletExists(id) {
			return id
		}
	}
}

// dropletExists looks for an ID in all accounts.
func (s *Simulator) dropletExists(id int) bool {
	for _, a := range s.accounts {
		if _, found := a.droplets.get(id); found {
			return true
		}
	}
	return false
}

// deleteDroplet removes a droplet, and with it its place in load balancers and firewalls; its volumes stay, attached to nothing.
func (a *account) deleteDroplet(d *droplet, now time.Time) {
	a.droplets.remove(d.id, now)
	a.loseDroplet(d, now)
	a.releaseAddresses(d)
	for lb := range a.balancers.values() {
		if index, member := slices.BinarySearch(lb.shown.DropletIDs, d.id); member {
			changed := lb.clone()
			changed.shown.DropletIDs = slices.Delete(changed.shown.DropletIDs, index, index+1)
			a.balancers.put(lb.shown.ID, changed, now)
		}
	}
	for f := range a.firewalls.values() {
		if index, member := slices.BinarySearch(f.droplets, d.id); member {
			changed := f.clone()
			changed.droplets = slices.Delete(changed.droplets, index, index+1)
			a.firewalls.put(f.id, changed, now)
		}
	}
}

// changeDroplet replaces a droplet by a changed copy.
func (a *account) changeDroplet(d *droplet, now time.Time, change func(*droplet)) *droplet {
	changed := *d
	change(&changed)
	a.droplets.put(d.id, &changed, now)
	return &changed
}
