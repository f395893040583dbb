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

	"github.com/mooring-dev/mooring/internal/assumed"
)

// balancerCheck is one request that is looked at: what is there, what was sent, and what would come of it.
type balancerCheck struct {
	account *account
	now     time.Time
	old     *loadBalancer // nil for POST
	request *balancerRequest
	desired *LoadBalancer
}

// balancerRules returns the rules in the order in which they are asked. Each is one thing that DigitalOcean refuses.
func balancerRules() []func(*balancerCheck) *refusal {
	return []func(*balancerCheck) *refusal{
		nameIsValid, nameIsUnique, wordsAreKnown, stackFitsNetwork, sizeIsValid, resizeIsAllowed,
		rulesAreThere, rulesAreValid, portsAreDistinct, certificatesExist, certificatesAreReady,
		checkIsValid, udpHasCheck, stickinessIsValid, timeoutIsValid, firewallIsValid,
		targetsAreExclusive, targetsExist, tagsAreValid, projectExists, limitIsKept,
	}
}

// balancerName is what DigitalOcean's documentation allows as a name; at most 255 characters.
var balancerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]*$`)

func nameIsValid(c *balancerCheck) *refusal {
	if len(c.desired.Name) > 255 || !balancerName.MatchString(c.desired.Name) {
		return invalid("name %q is not valid: use at most 255 letters, digits, dots and dashes", c.desired.Name)
	}
	return nil
}

func nameIsUnique(c *balancerCheck) *refusal {
	other, taken := c.account.balancerNamed(c.desired.Name)
	if taken && (c.old == nil || other.shown.ID != c.old.shown.ID) {
		return invalid("name is not unique")
	}
	return nil
}

func wordsAreKnown(c *balancerCheck) *refusal {
	for _, word := range []struct {
		field, value string
		allowed      []string
	}{
		{"type", c.desired.Type, []string{typeRegional, typeNetwork}}, // GLOBAL is not simulated
		{"network", c.desired.Network, assumed.LoadBalancerNetworks()},
		{"network_stack", c.desired.NetworkStack, assumed.LoadBalancerStacks()},
		{"tls_cipher_policy", c.desired.TLSCipherPolicy, assumed.CipherPolicies()},
	} {
		if !slices.Contains(word.allowed, word.value) {
			return invalid("%s must be one of %s, not %q", word.field, strings.Join(word.allowed, ", "), word.value)
		}
	}
	return nil
}

func stackFitsNetwork(c *balancerCheck) *refusal {
	if c.desired.Network == networkInternal && c.desired.NetworkStack == stackDual {
		return invalid("network_stack DUALSTACK is not available for network INTERNAL")
	}
	return nil
}

func sizeIsValid(c *balancerCheck) *refusal {
	units, known := sizeUnits(c.request.Size)
	switch {
	case c.request.Size != "" && !known:
		return invalid("size must be one of lb-small, lb-medium, lb-large, not %q", c.request.Size)
	case c.request.Size != "" && c.request.SizeUnit != nil && *c.request.SizeUnit != units:
		return invalid("only one of size and size_unit may be given")
	case c.desired.SizeUnit < 1 || c.desired.SizeUnit > assumed.SizeUnitMost:
		return invalid("size_unit must be between 1 and %d, not %d", assumed.SizeUnitMost, c.desired.SizeUnit)
	}
	return nil
}

func resizeIsAllowed(c *balancerCheck) *refusal {
	if c.old == nil || c.desired.SizeUnit == c.old.shown.SizeUnit {
		return nil
	}
	cooldown := c.account.sim.options.LoadBalancers.ResizeCooldown
	if c.now.Before(c.old.resizedAt.Add(cooldown)) {
		return invalid("a load balancer can be resized once per hour and not in its first hour; last: %s", rfc3339(c.old.resizedAt))
	}
	return nil
}

func rulesAreThere(c *balancerCheck) *refusal {
	if len(c.desired.ForwardingRules) == 0 {
		return invalid("at least one forwarding rule is needed")
	}
	return nil
}

func rulesAreValid(c *balancerCheck) *refusal {
	for _, rule := range c.desired.ForwardingRules {
		for _, check := range []func(ForwardingRule, string) *refusal{portIsValid, protocolIsValid, encryptionIsValid} {
			if refused := check(rule, c.desired.Type); refused != nil {
				return refused
			}
		}
	}
	return nil
}

// portIsValid: DigitalOcean keeps 50053 to 50055 for itself.
func portIsValid(rule ForwardingRule, _ string) *refusal {
	for _, port := range []struct {
		field string
		value int
	}{{"entry_port", rule.EntryPort}, {"target_port", rule.TargetPort}} {
		if port.value < 1 || port.value > 65535 {
			return invalid("%s must be between 1 and 65535, not %d", port.field, port.value)
		}
	}
	if rule.EntryPort >= assumed.ReservedPortFirst && rule.EntryPort <= assumed.ReservedPortLast {
		return invalid("entry_port %d is reserved", rule.EntryPort)
	}
	return nil
}

// protocolIsValid: UDP goes with UDP only, HTTP/3 is for entries only, and a network load balancer speaks TCP and UDP.
func protocolIsValid(rule ForwardingRule, kind string) *refusal {
	entries, targets := assumed.EntryProtocols(), assumed.TargetProtocols()
	if kind == typeNetwork {
		entries = []string{assumed.ProtocolTCP, assumed.ProtocolUDP}
		targets = entries
	}
	switch {
	case !slices.Contains(entries, rule.EntryProtocol):
		return invalid("entry_protocol must be one of %s, not %q", strings.Join(entries, ", "), rule.EntryProtocol)
	case !slices.Contains(targets, rule.TargetProtocol):
		return invalid("target_protocol must be one of %s, not %q", strings.Join(targets, ", "), rule.TargetProtocol)
	case (rule.EntryProtocol == "udp") != (rule.TargetProtocol == "udp"):
		return invalid("entry_protocol %s cannot be forwarded as %s", rule.EntryProtocol, rule.TargetProtocol)
	}
	return nil
}

// encryptionIsValid: what is encrypted is either terminated with a certificate or passed through.
func encryptionIsValid(rule ForwardingRule, _ string) *refusal {
	encrypted := slices.Contains([]string{"https", "http2", "http3"}, rule.EntryProtocol)
	switch {
	case encrypted && (rule.CertificateID == "") != rule.TLSPassthrough:
		return invalid("entry_protocol %s on port %d needs one of certificate_id and tls_passthrough", rule.EntryProtocol, rule.EntryPort)
	case !encrypted && (rule.CertificateID != "" || rule.TLSPassthrough):
		return invalid("entry_protocol %s on port %d takes no certificate_id and no tls_passthrough", rule.EntryProtocol, rule.EntryPort)
	}
	return nil
}

// portsAreDistinct: a port may be used once over TCP and once over UDP, which HTTP/3 uses too.
func portsAreDistinct(c *balancerCheck) *refusal {
	type entry struct {
		udp  bool
		port int
	}
	seen := map[entry]bool{}
	for _, rule := range c.desired.ForwardingRules {
		e := entry{udp: rule.EntryProtocol == "udp" || rule.EntryProtocol == "http3", port: rule.EntryPort}
		if seen[e] {
			return invalid("entry_port %d is used twice", rule.EntryPort)
		}
		seen[e] = true
	}
	return nil
}

func certificatesExist(c *balancerCheck) *refusal {
	for _, rule := range c.desired.ForwardingRules {
		if rule.CertificateID == "" {
			continue
		}
		if _, found := c.account.certificates.get(rule.CertificateID); !found {
			return refuse(http.StatusNotFound, "certificate %q could not be found", rule.CertificateID)
		}
	}
	return nil
}

// certificatesAreReady: one of Let's Encrypt is ready for use when it is verified (OpenAPI: certificates_create); what happens before is assumed. One
// that a load balancer has already may be in any state.
func certificatesAreReady(c *balancerCheck) *refusal {
	for _, rule := range c.desired.ForwardingRules {
		crt, found := c.account.certificates.get(rule.CertificateID)
		if !found || crt.show(c.now).State == certificateVerified || c.old != nil && slices.ContainsFunc(c.old.shown.ForwardingRules, func(r ForwardingRule) bool {
			return r.CertificateID == rule.CertificateID
		}) {
			continue
		}
		return invalid("certificate %q is not ready for use", rule.CertificateID)
	}
	return nil
}

// projectExists: with another project the load balancer is not made (OpenAPI: load_balancer.project_id); for a change the same is assumed.
func projectExists(c *balancerCheck) *refusal {
	if !slices.Contains(c.account.projects, c.desired.ProjectID) {
		return invalid("project %q could not be found", c.desired.ProjectID)
	}
	return nil
}

// checkIsValid: the bounds are those of DigitalOcean's documentation of health checks.
func checkIsValid(c *balancerCheck) *refusal {
	check := c.desired.HealthCheck
	if !slices.Contains([]string{"http", "https", "tcp"}, check.Protocol) {
		return invalid("health_check.protocol must be one of http, https, tcp, not %q", check.Protocol)
	}
	for _, number := range []struct {
		field              string
		value, least, most int
	}{
		{"port", check.Port, 1, 65535},
		{"check_interval_seconds", check.CheckIntervalSeconds, 3, 300},
		{"response_timeout_seconds", check.ResponseTimeoutSeconds, 3, 300},
		{"unhealthy_threshold", check.UnhealthyThreshold, 2, 10},
		{"healthy_threshold", check.HealthyThreshold, 2, 10},
	} {
		if number.value < number.least || number.value > number.most {
			return invalid("health_check.%s must be between %d and %d, not %d", number.field, number.least, number.most, number.value)
		}
	}
	return nil
}

// udpHasCheck: nothing can be asked over UDP, so a check over TCP or HTTP must be given (OpenAPI: entry_protocol).
func udpHasCheck(c *balancerCheck) *refusal {
	udp := slices.ContainsFunc(c.desired.ForwardingRules, func(rule ForwardingRule) bool { return rule.EntryProtocol == "udp" })
	if udp && c.old == nil && c.request.HealthCheck == nil {
		return invalid("a load balancer with UDP needs a health check over tcp, http or https")
	}
	return nil
}

func stickinessIsValid(c *balancerCheck) *refusal {
	sticky := c.desired.StickySessions
	switch {
	case sticky.Type != "none" && sticky.Type != "cookies":
		return invalid("sticky_sessions.type must be none or cookies, not %q", sticky.Type)
	case sticky.Type == "cookies" && (sticky.CookieName == "" || sticky.CookieTTLSeconds < 1):
		return invalid("sticky_sessions with cookies needs cookie_name and cookie_ttl_seconds")
	}
	return nil
}

func timeoutIsValid(c *balancerCheck) *refusal {
	if seconds := c.desired.HTTPIdleTimeoutSeconds; seconds < 30 || seconds > 600 {
		return invalid("http_idle_timeout_seconds must be between 30 and 600, not %d", seconds)
	}
	return nil
}

func firewallIsValid(c *balancerCheck) *refusal {
	for _, source := range slices.Concat(c.desired.Firewall.Allow, c.desired.Firewall.Deny) {
		var err error
		if address, found := strings.CutPrefix(source, "ip:"); found {
			_, err = netip.ParseAddr(address)
		} else if prefix, found := strings.CutPrefix(source, "cidr:"); found {
			_, err = netip.ParsePrefix(prefix)
		} else {
			return invalid("firewall rule %q must begin with ip: or cidr:", source)
		}
		if err != nil {
			return invalid("firewall rule %q is not valid", source)
		}
	}
	return nil
}

func targetsAreExclusive(c *balancerCheck) *refusal {
	if c.desired.Tag != "" && len(c.desired.DropletIDs) > 0 {
		return invalid("only one of tag and droplet_ids may be given")
	}
	return nil
}

// targetsExist: droplets must be in the load balancer's region and network.
func targetsExist(c *balancerCheck) *refusal {
	return c.account.targetsFit(c.desired, c.desired.DropletIDs)
}

func (a *account) targetsFit(lb *LoadBalancer, ids []int) *refusal {
	for _, id := range ids {
		d, found := a.droplets.get(id)
		switch {
		case !found:
			return invalid("droplet %d does not exist", id)
		case d.region.Slug != lb.Region.Slug:
			return invalid("droplet %d is in region %s, the load balancer in %s", id, d.region.Slug, lb.Region.Slug)
		case d.vpc != lb.VPCUUID:
			return invalid("droplet %d is not in VPC %s", id, lb.VPCUUID)
		case a.unfit[id]:
			return invalid("the request is not valid")
		}
	}
	return nil
}

func tagsAreValid(c *balancerCheck) *refusal {
	tags := c.desired.Tags
	if c.desired.Tag != "" {
		tags = append(slices.Clone(tags), c.desired.Tag)
	}
	for _, tag := range tags {
		if len(tag) > assumed.TagLength || !tagName.MatchString(tag) {
			return invalid("tag %q contains invalid characters", tag)
		}
	}
	return nil
}

func limitIsKept(c *balancerCheck) *refusal {
	o := c.account.sim.options.LoadBalancers
	if c.old == nil && o.Limit > 0 && c.account.balancers.len() >= o.Limit {
		return refuse(o.LimitStatus, "the limit of %d load balancers is reached", o.Limit)
	}
	return nil
}
