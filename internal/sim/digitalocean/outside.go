// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Account is what somebody else does in an account: another cluster, a person at the control panel, DigitalOcean itself. It needs
// no token, counts against no limit and is in no journal. What it changes is true at once; views lag behind as ever.
type Account struct {
	sim     *Simulator
	account *account
}

// Account returns the account of this name, the first one if the name is empty. An unknown name is a panic, since only code
// writes names.
func (s *Simulator) Account(name string) *Account {
	found, err := s.findAccount(name)
	if err != nil {
		panic(err)
	}
	return found
}

func (s *Simulator) findAccount(name string) (*Account, error) {
	for _, a := range s.accounts { // accounts are added by New only
		if name == "" || a.name == name {
			return &Account{sim: s, account: a}, nil
		}
	}
	return nil, fmt.Errorf("account %q does not exist", name)
}

// under runs a function with the lock held, at the current time.
func under[T any](a *Account, do func(now time.Time) (T, error)) (T, error) {
	a.sim.mu.Lock()
	defer a.sim.mu.Unlock()
	before := a.sim.revision
	done, err := do(a.sim.clock.Now())
	a.sim.keep(before)
	return done, err
}

func (a *Account) do(do func(now time.Time) error) error {
	_, err := under(a, func(now time.Time) (struct{}, error) { return struct{}{}, do(now) })
	return err
}

// Name returns how Go code calls the account.
func (a *Account) Name() string { return a.account.name }

// UUID returns how the API calls it.
func (a *Account) UUID() string {
	a.sim.mu.Lock()
	defer a.sim.mu.Unlock()
	return a.account.info.UUID
}

// SetStatus changes what GET /v2/account says: active, warning or locked, and why.
func (a *Account) SetStatus(status, message string) {
	_ = a.do(func(time.Time) error {
		a.account.info.Status, a.account.info.StatusMessage = status, message
		a.sim.changed()
		return nil
	})
}

// AddToken adds a token, or gives one that is known to this account.
func (a *Account) AddToken(token Token) {
	a.sim.mu.Lock()
	defer a.sim.mu.Unlock()
	a.sim.addToken(a.account, token)
}

// RevokeToken makes a token unknown: 401 from now on.
func (a *Account) RevokeToken(value string) {
	a.sim.mu.Lock()
	defer a.sim.mu.Unlock()
	delete(a.sim.tokens, value)
}

// AddVPC adds a network; what is empty gets a value.
func (a *Account) AddVPC(vpc VPC) VPC {
	added, _ := under(a, func(now time.Time) (VPC, error) { return *a.account.addVPC(vpc, now), nil })
	return added
}

// CreateDroplet adds a droplet. A specification that DigitalOcean would refuse is an error that says what is wrong.
func (a *Account) CreateDroplet(spec DropletSpec) (Droplet, error) {
	return under(a, func(now time.Time) (Droplet, error) {
		d, refused := a.account.createDroplet(spec, now)
		if refused != nil {
			return Droplet{}, fmt.Errorf("creating droplet %q: %w", spec.Name, refused)
		}
		return d.show(now, a.sim.catalog.image), nil
	})
}

// Droplets returns all droplets, GPU droplets included, in the order of their creation.
func (a *Account) Droplets() []Droplet {
	all, _ := under(a, func(now time.Time) ([]Droplet, error) {
		var all []Droplet
		for d := range a.account.droplets.values() {
			all = append(all, d.show(now, a.sim.catalog.image))
		}
		return all, nil
	})
	return all
}

// droplet finds by ID or by name; a name that two droplets have is an error. The lock is held.
func (a *Account) droplet(which string) (*droplet, error) {
	if id, err := strconv.Atoi(which); err == nil {
		if d, found := a.account.droplets.get(id); found {
			return d, nil
		}
	}
	var found []*droplet
	for d := range a.account.droplets.values() {
		if d.name == which {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("droplet %q does not exist", which)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("droplet name %q belongs to %d droplets: use an ID", which, len(found))
}

// Droplet returns the droplet with this ID or name.
func (a *Account) Droplet(which string) (Droplet, error) {
	return under(a, func(now time.Time) (Droplet, error) {
		d, err := a.droplet(which)
		if err != nil {
			return Droplet{}, err
		}
		return d.show(now, a.sim.catalog.image), nil
	})
}

// DeleteDroplet removes the droplet with this ID or name.
func (a *Account) DeleteDroplet(which string) error {
	return a.do(func(now time.Time) error {
		d, err := a.droplet(which)
		if err != nil {
			return err
		}
		a.account.deleteDroplet(d, now)
		return nil
	})
}

// SetDropletStatus makes the droplet with this ID or name active, off or archive.
func (a *Account) SetDropletStatus(which, status string) error {
	if !slices.Contains([]string{statusActive, statusOff, statusArchive}, status) {
		return fmt.Errorf("status must be active, off or archive, not %q", status)
	}
	return a.do(func(now time.Time) error {
		d, err := a.droplet(which)
		if err != nil {
			return err
		}
		a.account.changeDroplet(d, now, func(d *droplet) { d.power = status })
		return nil
	})
}

// SetDropletNetworks gives the droplet with this ID or name other addresses, visible at once.
func (a *Account) SetDropletNetworks(which string, networks Networks) error {
	return a.do(func(now time.Time) error {
		d, err := a.droplet(which)
		if err != nil {
			return err
		}
		a.account.changeDroplet(d, now, func(d *droplet) { d.networks, d.networksAt = networks, now })
		return nil
	})
}

// SetDropletTags gives the droplet with this ID or name other tags.
func (a *Account) SetDropletTags(which string, tags ...string) error {
	return a.do(func(now time.Time) error {
		d, err := a.droplet(which)
		if err != nil {
			return err
		}
		for _, tag := range tags {
			a.account.ensureTag(tag, now)
		}
		a.account.changeDroplet(d, now, func(d *droplet) { d.tags = sortedUnique(tags) })
		return nil
	})
}

// CreateTag creates a tag, if it is not there.
func (a *Account) CreateTag(name string) {
	_ = a.do(func(now time.Time) error { a.account.ensureTag(name, now); return nil })
}

// DeleteTag removes a tag from everything that carries it.
func (a *Account) DeleteTag(name string) {
	_ = a.do(func(now time.Time) error { a.account.deleteTag(name, now); return nil })
}
