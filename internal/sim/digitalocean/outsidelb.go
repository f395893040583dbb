// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"slices"
	"time"
)

// CreateLoadBalancer adds a load balancer of somebody else's, active at once. What is empty gets DigitalOcean's default; nothing
// is checked but the region.
func (a *Account) CreateLoadBalancer(lb LoadBalancer) (LoadBalancer, error) {
	return under(a, func(now time.Time) (LoadBalancer, error) {
		region := "nyc1"
		if lb.Region != nil {
			region = lb.Region.Slug
		}
		vpc, refused := a.account.vpcFor(lb.VPCUUID, region, now)
		if refused != nil {
			return LoadBalancer{}, fmt.Errorf("creating load balancer %q: %w", lb.Name, refused)
		}
		request := balancerRequest{
			Name: lb.Name, ProjectID: lb.ProjectID, Type: lb.Type, ForwardingRules: lb.ForwardingRules, DropletIDs: lb.DropletIDs,
			Tag: lb.Tag, Tags: &lb.Tags, Network: lb.Network, NetworkStack: lb.NetworkStack, IP: lb.IP, SubnetUUID: lb.SubnetUUID,
			Firewall: lb.Firewall, RedirectHTTPToHTTPS: lb.RedirectHTTPToHTTPS, EnableProxyProtocol: lb.EnableProxyProtocol,
			EnableBackendKeepalive: lb.EnableBackendKeepalive, DisableLetsEncryptDNSRecords: lb.DisableLetsEncryptDNSRecords,
		}
		if lb.SizeUnit > 0 {
			request.SizeUnit = &lb.SizeUnit
		}
		desired := request.desired(nil)
		desired.Region, desired.VPCUUID = a.sim.catalog.byRegion[region], vpc.ID
		if lb.HealthCheck.Protocol != "" {
			desired.HealthCheck = lb.HealthCheck
		}
		if lb.StickySessions.Type != "" {
			desired.StickySessions = lb.StickySessions
		}
		added, refused := a.account.addBalancer(desired, now)
		if refused != nil {
			return LoadBalancer{}, fmt.Errorf("creating load balancer %q: %w", lb.Name, refused)
		}
		added.progress.forced = statusActive
		a.sim.changed()
		return a.account.showBalancer(added.clone(), now), nil
	})
}

// RefuseTarget makes a droplet one that no load balancer takes as a target. The refusal does not say which one it is.
func (a *Account) RefuseTarget(droplet int) {
	_ = a.do(func(time.Time) error {
		if a.account.unfit == nil {
			a.account.unfit = map[int]bool{}
		}
		a.account.unfit[droplet] = true
		return nil
	})
}

// LoadBalancers returns all load balancers in the order of their creation, as they are now.
func (a *Account) LoadBalancers() []LoadBalancer {
	all, _ := under(a, func(now time.Time) ([]LoadBalancer, error) {
		var all []LoadBalancer
		for lb := range a.account.balancers.values() {
			all = append(all, a.account.showBalancer(lb.clone(), now))
		}
		return all, nil
	})
	return all
}

// LoadBalancer returns the load balancer with this ID or name, as it is now.
func (a *Account) LoadBalancer(which string) (LoadBalancer, error) {
	return under(a, func(now time.Time) (LoadBalancer, error) {
		lb, err := a.balancer(which)
		if err != nil {
			return LoadBalancer{}, err
		}
		return a.account.showBalancer(lb.clone(), now), nil
	})
}

func (a *Account) balancer(which string) (*loadBalancer, error) {
	if lb, found := a.account.balancers.get(which); found {
		return lb, nil
	}
	if lb, found := a.account.balancerNamed(which); found {
		return lb, nil
	}
	return nil, fmt.Errorf("load balancer %q does not exist", which)
}

// EditLoadBalancer changes a load balancer behind the client's back: anything but its ID, nothing is checked, and it is not busy
// afterwards.
func (a *Account) EditLoadBalancer(which string, edit func(*LoadBalancer)) error {
	return a.do(func(now time.Time) error {
		lb, err := a.balancer(which)
		if err != nil {
			return err
		}
		a.account.changeBalancer(lb, now, func(lb *loadBalancer) {
			id := lb.shown.ID
			edit(&lb.shown)
			lb.shown.ID = id
			slices.Sort(lb.shown.DropletIDs)
		})
		return nil
	})
}

// SetLoadBalancerStatus makes a load balancer new, active or errored, whatever it was and until it is set again.
func (a *Account) SetLoadBalancerStatus(which, status string) error {
	if !slices.Contains([]string{statusNew, statusActive, statusErrored}, status) {
		return fmt.Errorf("status must be new, active or errored, not %q", status)
	}
	return a.do(func(time.Time) error {
		lb, err := a.balancer(which)
		if err != nil {
			return err
		}
		lb.progress.forced = status
		a.sim.changed()
		return nil
	})
}

// MakeBusy makes a load balancer refuse changes for a while, as it does after a change.
func (a *Account) MakeBusy(which string, during time.Duration) error {
	return a.do(func(now time.Time) error {
		lb, err := a.balancer(which)
		if err != nil {
			return err
		}
		a.account.changeBalancer(lb, now, func(lb *loadBalancer) { lb.busyUntil = now.Add(during) })
		return nil
	})
}

// DeleteLoadBalancer removes a load balancer, even one that is busy.
func (a *Account) DeleteLoadBalancer(which string) error {
	return a.do(func(now time.Time) error {
		lb, err := a.balancer(which)
		if err != nil {
			return err
		}
		a.account.deleteBalancer(lb, now)
		return nil
	})
}

// CreateCertificate adds a certificate.
func (a *Account) CreateCertificate(spec CertificateSpec) (Certificate, error) {
	return under(a, func(now time.Time) (Certificate, error) {
		crt, refused := a.account.createCertificate(spec, "", now)
		if refused != nil {
			return Certificate{}, fmt.Errorf("creating certificate %q: %w", spec.Name, refused)
		}
		return crt.show(now), nil
	})
}

// Certificates returns all certificates in the order of their creation.
func (a *Account) Certificates() []Certificate {
	all, _ := under(a, func(now time.Time) ([]Certificate, error) {
		var all []Certificate
		for crt := range a.account.certificates.values() {
			all = append(all, crt.show(now))
		}
		return all, nil
	})
	return all
}

func (a *Account) certificate(id string) (*certificate, error) {
	crt, found := a.account.certificates.get(id)
	if !found {
		return nil, fmt.Errorf("certificate %q does not exist", id)
	}
	return crt, nil
}

// RotateCertificate renews a certificate as DigitalOcean does: same name, new ID, in the rules of load balancers too.
func (a *Account) RotateCertificate(id string) (Certificate, error) {
	return under(a, func(now time.Time) (Certificate, error) {
		old, err := a.certificate(id)
		if err != nil {
			return Certificate{}, err
		}
		renewed, refused := a.account.rotateCertificate(old, now)
		if refused != nil {
			return Certificate{}, fmt.Errorf("rotating certificate %q: %w", old.shown.Name, refused)
		}
		return renewed.show(now), nil
	})
}

// SetCertificateState makes a certificate pending, verified or error until it is set again.
func (a *Account) SetCertificateState(id, state string) error {
	if !slices.Contains([]string{"pending", "verified", "error"}, state) {
		return fmt.Errorf("state must be pending, verified or error, not %q", state)
	}
	return a.do(func(now time.Time) error {
		crt, err := a.certificate(id)
		if err != nil {
			return err
		}
		changed := *crt
		changed.forced = state
		a.account.certificates.put(id, &changed, now)
		return nil
	})
}

// DeleteCertificate removes a certificate, even one that is in use.
func (a *Account) DeleteCertificate(id string) error {
	return a.do(func(now time.Time) error {
		if _, err := a.certificate(id); err != nil {
			return err
		}
		a.account.certificates.remove(id, now)
		return nil
	})
}
