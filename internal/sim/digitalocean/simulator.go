// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
)

// Streams of chance that must not disturb each other.
const (
	identifierStream = 1 + iota
	requestStream
)

// Simulator is DigitalOcean. Its methods may be called from any goroutine.
type Simulator struct {
	options Options
	clock   clock.Clock
	catalog *catalog
	routes  []route

	mu          sync.Mutex // guards everything below; held while a request is processed, never while one waits
	consistency Consistency
	accounts    []*account
	tokens      map[string]*token
	source      *rand.PCG // of identifiers
	identifiers *rand.Rand
	revision    uint64 // grows with every change of what an image holds
	nextDroplet int
	nextAction  int
	faults      *fault.Injector
	journal     *journal.Journal
	public      *pool // droplets, IPv4
	public6     *pool // droplets and load balancers, IPv6
	balancers   *pool // load balancers, IPv4
}

// token is one credential and how much of its limits is spent.
type token struct {
	account *account
	scopes  map[string]bool // nil means everything
	counter *ratelimit.Counter
}

// account is what belongs to one customer. Its fields are guarded by Simulator.mu.
type account struct {
	sim          *Simulator
	name         string
	info         AccountInfo
	limit        int // of droplets
	projects     []string
	droplets     *table[int, *droplet]
	balancers    *table[string, *loadBalancer]
	certificates *table[string, *certificate]
	firewalls    *table[string, *firewall]
	tags         *table[string, string] // lower-case name to name: tags are told apart without regard to case
	vpcs         *table[string, *VPC]
	networks     map[string]*pool // by VPC
	actions      map[int]*Action
	volumes      *table[string, *volume]
	snapshots    *table[string, *snapshot]

	volumeActions map[int]*volumeAction // what actions of volumes do, by their ID
	pending       []int                 // those in progress
	unfit         map[int]bool          // droplets that no load balancer takes
	failNext      int                   // how many of the next ones end errored
}

// New returns a simulator. It starts nothing and needs no closing. Options that are wrong are a panic, since only code writes them; for an
// image, which a file may hold, there is [Open].
func New(options Options) *Simulator {
	s, err := Open(options, nil)
	if err != nil {
		panic(err)
	}
	return s
}

// Open returns a simulator that goes on where an image ([Simulator.Image]) was taken; nil is a new one. The error says what of the image is wrong.
func Open(options Options, image []byte) (*Simulator, error) {
	options = options.withDefaults()
	source := rand.NewPCG(options.Seed, identifierStream)
	s := &Simulator{
		options:     options,
		clock:       options.Clock,
		catalog:     newCatalog(),
		consistency: options.Consistency,
		tokens:      map[string]*token{},
		source:      source,
		identifiers: rand.New(source),
		nextDroplet: options.Droplets.FirstID,
		nextAction:  1,
		faults:      fault.NewInjector(options.Seed),
		journal:     journal.New(options.JournalKeep),
		public:      newPool(options.Addresses.Public),
		public6:     newPool(options.Addresses.Public6),
		balancers:   newPool(options.Addresses.LoadBalancers),
	}
	s.routes = routes()
	if err := s.faults.Add(options.Faults...); err != nil {
		return nil, err
	}
	for _, account := range options.Accounts {
		s.addAccount(account)
	}
	if image != nil {
		if err := s.restore(image); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Simulator) addAccount(o AccountOptions) {
	now := s.clock.Now()
	a := &account{
		sim:   s,
		name:  o.Name,
		limit: o.DropletLimit,

		projects: append([]string{DefaultProject}, o.Projects...),
	}
	a.clear()
	if a.limit == 0 {
		a.limit = 100_000
	}
	a.info = AccountInfo{
		UUID: o.UUID, Email: o.Email, Name: o.Name, EmailVerified: true, Status: "active",
		Team: TeamInfo{UUID: s.newUUID(), Name: o.Name},
	}
	if a.info.UUID == "" {
		a.info.UUID = s.newUUID()
	}
	if a.info.Email == "" {
		a.info.Email = o.Name + "@example.com"
	}
	for _, vpc := range o.VPCs {
		a.addVPC(vpc, now)
	}
	s.accounts = append(s.accounts, a)
	for _, t := range o.Tokens {
		s.addToken(a, t)
	}
}

// clear makes the account empty.
func (a *account) clear() {
	s := a.sim
	a.droplets = newTable[int, *droplet](s.longestLag, s.changed)
	a.balancers = newTable[string, *loadBalancer](s.longestLag, s.changed)
	a.certificates = newTable[string, *certificate](s.longestLag, s.changed)
	a.firewalls = newTable[string, *firewall](s.longestLag, s.changed)
	a.tags = newTable[string, string](s.longestLag, s.changed)
	a.vpcs = newTable[string, *VPC](s.longestLag, s.changed)
	a.volumes = newTable[string, *volume](s.longestLag, s.changed)
	a.snapshots = newTable[string, *snapshot](s.longestLag, s.changed)
	a.volumeActions, a.pending = map[int]*volumeAction{}, nil
	a.networks, a.actions = map[string]*pool{}, map[int]*Action{}
}

func (s *Simulator) addToken(a *account, t Token) {
	added := &token{account: a, counter: ratelimit.NewCounter(s.options.RateLimits)}
	if len(t.Scopes) > 0 {
		added.scopes = map[string]bool{}
		for _, scope := range t.Scopes {
			added.scopes[scope] = true
		}
	}
	s.tokens[t.Value] = added
}

// can reports whether the token has a scope. The scope "read" stands for all that read, as DigitalOcean's read-only tokens have.
func (t *token) can(scope string) bool {
	return t.scopes == nil || t.scopes[scope] || (t.scopes["read"] && strings.HasSuffix(scope, ":read"))
}

// longestLag is how long the past must be kept.
func (s *Simulator) longestLag() time.Duration { return max(s.consistency.Get, s.consistency.List) }

// newUUID returns the next identifier, a random UUID of version 4 (RFC 9562).
func (s *Simulator) newUUID() string { return uuidFrom(s.identifiers) }

func uuidFrom(random *rand.Rand) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], random.Uint64())
	binary.BigEndian.PutUint64(b[8:], random.Uint64())
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// chance reports whether something of this probability happens, from the stream of identifiers.
func (s *Simulator) chance(probability float64) bool {
	return probability > 0 && s.identifiers.Float64() < probability
}

// Inject adds faults. If one of the rules is wrong, none is added and the error says which.
func (s *Simulator) Inject(rules ...fault.Rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Add(rules...)
}

// ClearFaults removes all faults, also those of the options.
func (s *Simulator) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.Clear()
}

// Faults returns the rules in force.
func (s *Simulator) Faults() []fault.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.Rules()
}

// SetConsistency changes how far views lag behind. A longer lag than before holds for what changes from now on.
func (s *Simulator) SetConsistency(c Consistency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consistency = c
}

// Stats returns the counters of the journal.
func (s *Simulator) Stats() journal.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.Stats()
}

// Requests returns the kept entries of the journal that the filter selects, in the order of their arrival. A client that has an
// answer, or whose connection was cut, finds its request there; one that gave up waiting finds it soon.
func (s *Simulator) Requests(f journal.Filter) []journal.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.Entries(f)
}

// Mark returns the number of the last request that arrived, for journal.Filter.After.
func (s *Simulator) Mark() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.Number()
}

// ResetJournal forgets the entries and counters.
func (s *Simulator) ResetJournal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.Reset()
}
