// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
)

// DefaultToken is the token of the default account.
const DefaultToken = "dop_v1_simulated" //nolint:gosec // it opens nothing but a simulator

// DefaultAccount is the name of the account that exists if no accounts are given.
const DefaultAccount = "default"

// Options tune a simulator. The zero value is DigitalOcean without delays: one account with one token, everything provisioned
// by the time of the next request, DigitalOcean's own rate limits, no faults.
type Options struct {
	// Seed makes identifiers and random faults those of another run, or the same again.
	Seed uint64
	// Clock is the real one if nil. All that happens by itself happens as of the next request, so a clock that is stepped
	// needs nobody to wait; only delays wait for it.
	Clock clock.Clock
	// Accounts are the accounts and their tokens. If there are none, there is one named [DefaultAccount] with [DefaultToken].
	Accounts []AccountOptions
	// RateLimits hold for each token.
	RateLimits ratelimit.Limits
	// Consistency says how far views lag behind.
	Consistency Consistency
	// Latency is how long every response takes.
	Latency time.Duration
	// Faults are the rules to start with. A rule that is wrong is a panic, since only code writes options.
	Faults []fault.Rule
	// NewestFirst turns the order of all lists around. Items created between two pages then shift, and one is seen twice.
	NewestFirst bool
	// Changed, if it is set, is told of every change of what [Simulator.Image] holds before no matter who made it has an answer. It may call image, and
	// no method of the simulator, whose lock is held: what it stores survives a kill of the process.
	Changed func(image func() ([]byte, error))
	// JournalKeep is how many entries the journal keeps: journal.DefaultKeep if zero, none if negative.
	JournalKeep int

	Droplets      DropletOptions
	LoadBalancers LoadBalancerOptions
	Certificates  CertificateOptions
	Firewalls     FirewallOptions
	Volumes       VolumeOptions
	Addresses     AddressOptions
}

// AccountOptions describe one account.
type AccountOptions struct {
	// Name is how Go code and the admin API call the account.
	Name string
	// UUID is made from the seed if empty.
	UUID string
	// Email is made from the name if empty.
	Email string
	// Tokens open the account; one with the value [DefaultToken] if there are none and it is the only account.
	Tokens []Token
	// DropletLimit is 100 000 if zero.
	DropletLimit int
	// VPCs are the networks to start with. A region without one gets a default VPC when it is first used.
	VPCs []VPC
	// Projects are the IDs of projects in addition to [DefaultProject].
	Projects []string
}

// DefaultProject is the ID of every account's default project: that of load balancers that name none (OpenAPI: load_balancer.project_id).
const DefaultProject = "d0d0d0d0-0000-4000-8000-000000000001"

// Token opens an account.
type Token struct {
	Value string `json:"value"`
	// Scopes are what the token may do, as "droplet:read". None means everything.
	Scopes []string `json:"scopes,omitempty"`
}

// Consistency says how far behind the truth a view is. Zero is not at all. With different values an object can be in the list
// while GET by ID responds with 404 already, and the reverse.
type Consistency struct {
	// Get is for GET by ID, List for lists, with and without filters.
	Get  time.Duration `json:"get,omitempty"`
	List time.Duration `json:"list,omitempty"`
}

// DropletOptions tune droplets.
type DropletOptions struct {
	// BootAfter is how long a droplet is new.
	BootAfter time.Duration
	// NetworksAfter is how long it takes until addresses appear.
	NetworksAfter time.Duration
	// FirstID is the ID of the first droplet, 400000001 if zero.
	FirstID int
}

// LoadBalancerOptions tune load balancers.
type LoadBalancerOptions struct {
	// ActiveAfter is how long a load balancer stays new.
	ActiveAfter time.Duration
	// ActiveAfterReads is how many times it must be read, by ID or in a list, until it is active: 2 means that the first
	// read says new and the second active. It adds to ActiveAfter.
	ActiveAfterReads int
	// ErrorProbability is the chance that a load balancer ends errored instead of active.
	ErrorProbability float64
	// BusyAfterUpdate is how long after a change the next one is refused with 403.
	BusyAfterUpdate time.Duration
	// AcceptWhileBusy accepts changes while a load balancer is new or busy, as a simpler API would.
	AcceptWhileBusy bool
	// BusyRefusesDelete refuses DELETE too while it is new or busy. Whether DigitalOcean does is not known.
	BusyRefusesDelete bool
	// IgnoreImmutable ignores a change of an immutable field instead of refusing it with 422.
	IgnoreImmutable bool
	// Limit is how many load balancers an account may have, no limit if zero.
	Limit int
	// LimitStatus is the status of a refusal for the limit, 422 if zero.
	LimitStatus int
	// ResizeCooldown is how long after its creation or last change of size it cannot be resized: one hour if zero, never refused
	// if negative.
	ResizeCooldown time.Duration
}

// CertificateOptions tune certificates.
type CertificateOptions struct {
	// VerifiedAfter is how long a Let's Encrypt certificate is pending.
	VerifiedAfter time.Duration
}

// FirewallOptions tune firewalls.
type FirewallOptions struct {
	// SettledAfter is how long after a change a firewall is waiting and lists pending changes.
	SettledAfter time.Duration
	// MaxRules is how many inbound and outbound rules together a firewall may have, no limit if zero.
	MaxRules int
	// KnownBalancers refuses rules that name load balancers which do not exist. Nothing public says what DigitalOcean does.
	KnownBalancers bool
}

// VolumeOptions tune block storage.
type VolumeOptions struct {
	// AttachAfter, DetachAfter and ResizeAfter are how long the actions take.
	AttachAfter, DetachAfter, ResizeAfter time.Duration
	// ErrorProbability is the chance that an action ends errored, with nothing changed.
	ErrorProbability float64
	// PerDroplet is how many volumes a droplet may have, assumed.VolumesPerDroplet if zero. Largest is the largest size in GiB, assumed.VolumeSizeStated
	// if zero. Limit is how many an account may have, no limit if zero.
	PerDroplet, Largest, Limit int
	// SnapshotEvery is how far apart snapshots of a volume must be: ten minutes if zero, no bound if negative.
	SnapshotEvery time.Duration
	// RestoreAtOnce makes volumes from snapshots as large as asked for; otherwise they have the snapshot's size and are to be resized.
	RestoreAtOnce bool
	// Devices is told what becomes of volumes; nobody if nil.
	Devices Devices
}

// AddressOptions are the networks from which addresses are taken.
type AddressOptions struct {
	// Public is for droplets, 198.18.0.0/16 if not valid: addresses for tests of networks (RFC 2544).
	Public netip.Prefix
	// Public6 is for droplets and load balancers with IPv6, 2001:db8::/64 if not valid: addresses for examples (RFC 3849).
	Public6 netip.Prefix
	// LoadBalancers is for load balancers, 198.19.0.0/16 if not valid.
	LoadBalancers netip.Prefix
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if len(o.Accounts) == 0 {
		o.Accounts = []AccountOptions{{Name: DefaultAccount}}
	}
	if len(o.Accounts) == 1 && len(o.Accounts[0].Tokens) == 0 {
		only := o.Accounts[0]
		only.Tokens = []Token{{Value: DefaultToken}}
		o.Accounts = []AccountOptions{only}
	}
	if o.Droplets.FirstID == 0 {
		o.Droplets.FirstID = 400_000_001
	}
	if o.LoadBalancers.ResizeCooldown == 0 {
		o.LoadBalancers.ResizeCooldown = assumed.ResizeInterval
	}
	if o.LoadBalancers.LimitStatus == 0 {
		o.LoadBalancers.LimitStatus = http.StatusUnprocessableEntity
	}
	if o.Volumes.PerDroplet == 0 {
		o.Volumes.PerDroplet = assumed.VolumesPerDroplet
	}
	if o.Volumes.Largest == 0 {
		o.Volumes.Largest = assumed.VolumeSizeStated
	}
	if o.Volumes.SnapshotEvery == 0 {
		o.Volumes.SnapshotEvery = assumed.SnapshotInterval
	}
	if o.Volumes.Devices == nil {
		o.Volumes.Devices = noDevices{}
	}
	if !o.Addresses.Public.IsValid() {
		o.Addresses.Public = netip.MustParsePrefix("198.18.0.0/16")
	}
	if !o.Addresses.Public6.IsValid() {
		o.Addresses.Public6 = netip.MustParsePrefix("2001:db8::/64")
	}
	if !o.Addresses.LoadBalancers.IsValid() {
		o.Addresses.LoadBalancers = netip.MustParsePrefix("198.19.0.0/16")
	}
	return o
}
