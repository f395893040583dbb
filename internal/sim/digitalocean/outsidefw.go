// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"slices"
	"time"
)

// CreateFirewall adds a firewall of somebody else's. It is checked as a request would be.
func (a *Account) CreateFirewall(f Firewall) (Firewall, error) {
	return under(a, func(now time.Time) (Firewall, error) {
		planned, refused := a.account.planFirewall(requestFor(f), nil, now)
		if refused != nil {
			return Firewall{}, fmt.Errorf("creating firewall %q: %w", f.Name, refused)
		}
		planned.id = a.sim.newUUID()
		a.account.firewalls.put(planned.id, planned, now)
		return a.account.showFirewall(planned, now), nil
	})
}

func requestFor(f Firewall) *firewallRequest {
	request := &firewallRequest{Name: f.Name, InboundRules: f.InboundRules, OutboundRules: f.OutboundRules}
	if f.DropletIDs != nil {
		request.DropletIDs = *f.DropletIDs
	}
	if f.Tags != nil {
		request.Tags = *f.Tags
	}
	return request
}

// Firewalls returns all firewalls in the order of their creation.
func (a *Account) Firewalls() []Firewall {
	all, _ := under(a, func(now time.Time) ([]Firewall, error) {
		var all []Firewall
		for f := range a.account.firewalls.values() {
			all = append(all, a.account.showFirewall(f.clone(), now))
		}
		return all, nil
	})
	return all
}

func (a *Account) firewall(which string) (*firewall, error) {
	for f := range a.account.firewalls.values() {
		if f.id == which || f.name == which {
			return f, nil
		}
	}
	return nil, fmt.Errorf("firewall %q does not exist", which)
}

// EditFirewall changes the firewall with this ID or name behind the client's back: name, rules, droplets and tags. It is
// checked as a request would be.
func (a *Account) EditFirewall(which string, edit func(*Firewall)) error {
	return a.do(func(now time.Time) error {
		f, err := a.firewall(which)
		if err != nil {
			return err
		}
		shown := a.account.showFirewall(f.clone(), now)
		edit(&shown)
		planned, refused := a.account.planFirewall(requestFor(shown), f, now)
		if refused != nil {
			return fmt.Errorf("editing firewall %q: %w", f.name, refused)
		}
		a.account.firewalls.put(f.id, planned, now)
		return nil
	})
}

// SetFirewallStatus makes the firewall with this ID or name waiting, succeeded or failed until its next change.
func (a *Account) SetFirewallStatus(which, status string) error {
	if !slices.Contains([]string{"waiting", "succeeded", "failed"}, status) {
		return fmt.Errorf("status must be waiting, succeeded or failed, not %q", status)
	}
	return a.do(func(now time.Time) error {
		f, err := a.firewall(which)
		if err != nil {
			return err
		}
		changed := f.clone()
		changed.forced = status
		a.account.firewalls.put(f.id, changed, now)
		return nil
	})
}

// DeleteFirewall removes the firewall with this ID or name.
func (a *Account) DeleteFirewall(which string) error {
	return a.do(func(now time.Time) error {
		f, err := a.firewall(which)
		if err != nil {
			return err
		}
		a.account.firewalls.remove(f.id, now)
		return nil
	})
}
