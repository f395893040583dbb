// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Field names what differs, as the API spells it. Each kind of difference has one of its own.
type Field string

// The fields that are compared. The algorithm is not: DigitalOcean ignores what is sent.
const (
	FieldName           Field = "name"
	FieldType           Field = "type"
	FieldNetwork        Field = "network"
	FieldNetworkStack   Field = "network_stack"
	FieldRegion         Field = "region"
	FieldVPC            Field = "vpc_uuid"
	FieldSubnet         Field = "subnet_uuid"
	FieldProject        Field = "project_id"
	FieldCipherPolicy   Field = "tls_cipher_policy"
	FieldSize           Field = "size_unit"
	FieldForwardingRule Field = "forwarding_rules"
	FieldHealthCheck    Field = "health_check"
	FieldStickySessions Field = "sticky_sessions"
	FieldDroplets       Field = "droplet_ids"
	FieldDropletTag     Field = "tag"
	FieldTags           Field = "tags"
	FieldRedirect       Field = "redirect_http_to_https"
	FieldProxyProtocol  Field = "enable_proxy_protocol"
	FieldKeepalive      Field = "enable_backend_keepalive"
	FieldDNSRecords     Field = "disable_lets_encrypt_dns_records"
	FieldIdleTimeout    Field = "http_idle_timeout_seconds"
	FieldAllow          Field = "firewall.allow"
	FieldDeny           Field = "firewall.deny"
)

// Remedy is what makes a difference go away.
type Remedy string

// The remedies.
const (
	// RemedyUpdate is a PUT.
	RemedyUpdate Remedy = "update"
	// RemedyTag is a POST of the cluster's tag: the API takes a load balancer's tags only when it is made.
	RemedyTag Remedy = "tag"
	// RemedyNone means that DigitalOcean does not let the field change.
	RemedyNone Remedy = "none"
)

// Difference is one thing in which a load balancer is not what it must be. Message says it in words, without the load balancer's name.
type Difference struct {
	Field   Field
	Remedy  Remedy
	Message string
	// Missing and Unwanted are the droplets of a difference of [FieldDroplets]; Rule is the rule of one of [FieldForwardingRule], missing if
	// RuleMissing and else unwanted.
	Missing, Unwanted []int
	Rule              ForwardingRule
	RuleMissing       bool
}

func (d Difference) String() string { return d.Message }

// Diff compares a load balancer with what it must be, and returns the differences in a fixed order. It knows what DigitalOcean fills in for
// what is left out, so that a load balancer that a request made does not differ from that request; lists that the API treats as sets are
// compared as sets; and what a scoped token is not shown (tags, VPC, …) is unknown and not different.
func Diff(o Observed, r Request) []Difference {
	var d differences
	d.fixed(o, r)
	if o.Name != "" {
		d.text(FieldName, RemedyUpdate, "name", o.Name, r.Name)
	}
	if r.Subnet != "" && o.Subnet != "" {
		d.text(FieldSubnet, RemedyUpdate, "subnet", o.Subnet, r.Subnet)
	}
	if r.Project != "" && o.Project != "" && !strings.EqualFold(o.Project, r.Project) {
		d.text(FieldProject, RemedyUpdate, "project", o.Project, r.Project)
	}
	if r.TLSCipherPolicy != "" {
		d.text(FieldCipherPolicy, RemedyUpdate, "policy of cipher suites", cmp.Or(o.TLSCipherPolicy, annotation.CipherDefault), r.TLSCipherPolicy)
	}
	d.text(FieldSize, RemedyUpdate, "size", fmt.Sprint(units(o.SizeSlug, o.SizeUnit)), fmt.Sprint(units(r.SizeSlug, r.SizeUnit)))
	d.rules(o.ForwardingRules, r.ForwardingRules)
	if o.HealthCheck != nil {
		d.healthCheck(*o.HealthCheck, r.HealthCheck)
	}
	d.text(FieldStickySessions, RemedyUpdate, "stickiness of sessions", sticky(cmp.Or(o.StickySessions, &StickySessions{})), sticky(&r.StickySessions))
	d.droplets(o, r)
	d.tags(o, r)
	d.flag(FieldRedirect, "the redirection of HTTP to HTTPS", o.RedirectHTTPToHTTPS, r.RedirectHTTPToHTTPS)
	d.flag(FieldProxyProtocol, "the PROXY protocol", o.EnableProxyProtocol, r.EnableProxyProtocol)
	d.flag(FieldKeepalive, "keeping connections to droplets open", o.EnableBackendKeepalive, r.EnableBackendKeepalive)
	d.flag(FieldDNSRecords, "leaving out DNS records for Let's Encrypt", o.DisableLetsEncryptDNSRecords, r.DisableLetsEncryptDNSRecords)
	d.text(FieldIdleTimeout, RemedyUpdate, "idle timeout of HTTP in seconds",
		fmt.Sprint(idle(o.HTTPIdleTimeoutSeconds)), fmt.Sprint(idle(r.HTTPIdleTimeoutSeconds)))
	firewall := cmp.Or(o.Firewall, &Firewall{})
	d.set(FieldAllow, "allow rule", firewall.Allow, r.Firewall.Allow)
	d.set(FieldDeny, "deny rule", firewall.Deny, r.Firewall.Deny)
	return d.all
}

// Curable returns the differences that have the given remedy.
func Curable(all []Difference, by Remedy) []Difference {
	var out []Difference
	for _, d := range all {
		if d.Remedy == by {
			out = append(out, d)
		}
	}
	return out
}

// Except returns the differences that are not among known. After a PUT that was accepted, what still differs is what DigitalOcean does not
// keep; anyone who remembers that does not send the same request again and again.
func Except(all, known []Difference) []Difference {
	var out []Difference
	for _, d := range all {
		if !slices.ContainsFunc(known, func(k Difference) bool { return k.Field == d.Field && k.Message == d.Message }) {
			out = append(out, d)
		}
	}
	return out
}

// OnlyTargets returns the droplets to add and to remove if nothing else differs, for which the API has cheaper calls than a PUT.
func OnlyTargets(all []Difference) (add, remove []int, ok bool) {
	for _, d := range Curable(all, RemedyUpdate) {
		if d.Field != FieldDroplets {
			return nil, nil, false
		}
		add, remove = append(add, d.Missing...), append(remove, d.Unwanted...)
	}
	return add, remove, len(add)+len(remove) > 0
}

// differences collects.
type differences struct{ all []Difference }

func (d *differences) add(field Field, remedy Remedy, format string, args ...any) {
	d.all = append(d.all, Difference{Field: field, Remedy: remedy, Message: fmt.Sprintf(format, args...)})
}

// text compares one value.
func (d *differences) text(field Field, remedy Remedy, what, is, must string) {
	if is != must {
		d.add(field, remedy, "the %s is %s instead of %s", what, quote(is), quote(must))
	}
}

// quote makes an empty value visible.
func quote(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

func (d *differences) flag(field Field, what string, is, must bool) {
	if is != must {
		d.add(field, RemedyUpdate, "%s is %s instead of %s", what, onOff(is), onOff(must))
	}
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// set compares two lists as sets and says one by one what is missing and what is not wanted.
func (d *differences) set(field Field, what string, is, must []string) {
	for _, value := range sorted(must) {
		if !slices.Contains(is, value) {
			d.add(field, RemedyUpdate, "%s %s is missing", what, quote(value))
		}
	}
	for _, value := range sorted(is) {
		if !slices.Contains(must, value) {
			d.add(field, RemedyUpdate, "%s %s is not wanted", what, quote(value))
		}
	}
}

func sorted(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }

// fixed compares what cannot change. A field that is not asked for, or not shown, does not differ.
func (d *differences) fixed(o Observed, r Request) {
	for _, f := range []struct {
		field    Field
		what     string
		is, must string
	}{
		{FieldType, "type", o.Type, r.Type},
		{FieldNetwork, "network", o.Network, r.Network},
		{FieldNetworkStack, "network stack", o.NetworkStack, r.NetworkStack},
		{FieldRegion, "region", o.Region, r.Region},
		{FieldVPC, "VPC", o.VPC, r.VPC},
	} {
		if f.is != "" && f.must != "" {
			d.text(f.field, RemedyNone, f.what, f.is, f.must)
		}
	}
}

// Units is the size of a load balancer, in nodes.
func (o Observed) Units() int { return int(units(o.SizeSlug, o.SizeUnit)) }

// units returns a size in units. The slugs are those of the API's description: lb-small is 1 unit, lb-medium 3, lb-large 6; nothing is 1.
func units(slug string, unit uint32) uint32 {
	switch {
	case unit > 0:
		return unit
	case slug == annotation.SizeMedium:
		return 3
	case slug == annotation.SizeLarge:
		return 6
	}
	return 1
}

// idle returns the timeout that DigitalOcean uses; 60 is its default (API, http_idle_timeout_seconds).
func idle(seconds *uint64) uint64 {
	if seconds == nil || *seconds == 0 {
		return 60
	}
	return *seconds
}

// sticky writes sessions as they are kept: without cookies, a name and a time mean nothing.
func sticky(s *StickySessions) string {
	if s.Type != annotation.StickyCookies {
		return annotation.StickyNone
	}
	return s.String()
}

// rules compares forwarding rules as a set.
func (d *differences) rules(is, must []ForwardingRule) {
	have, want := map[ForwardingRule]bool{}, map[ForwardingRule]bool{}
	for _, r := range is {
		have[r] = true
	}
	for _, r := range must {
		want[r] = true
	}
	say := func(rules, other map[ForwardingRule]bool, missing bool, end string) {
		for _, r := range slices.SortedFunc(maps.Keys(rules), compareRules) {
			if !other[r] {
				d.all = append(d.all, Difference{
					Field: FieldForwardingRule, Remedy: RemedyUpdate, Rule: r, RuleMissing: missing, Message: fmt.Sprintf("forwarding rule %s is %s", r, end),
				})
			}
		}
	}
	say(want, have, true, "missing")
	say(have, want, false, "not wanted")
}

func compareRules(a, b ForwardingRule) int {
	return cmp.Or(a.EntryPort-b.EntryPort, strings.Compare(a.String(), b.String()))
}

// Defaults of the API's description for a health check that does not say. They are not those that are always sent.
const (
	apiInterval           = assumed.CheckIntervalDefault
	apiTimeout            = assumed.CheckTimeoutDefault
	apiHealthyThreshold   = assumed.CheckHealthyDefault
	apiUnhealthyThreshold = assumed.CheckUnhealthyDefault
	apiHealthPort         = assumed.CheckPortDefault
)

// filled returns a health check as DigitalOcean keeps it.
func (h HealthCheck) filled() HealthCheck {
	h.Protocol = cmp.Or(h.Protocol, annotation.ProtocolHTTP)
	h.Port = cmp.Or(h.Port, apiHealthPort)
	h.Interval, h.Timeout = cmp.Or(h.Interval, apiInterval), cmp.Or(h.Timeout, apiTimeout)
	h.HealthyThreshold = cmp.Or(h.HealthyThreshold, apiHealthyThreshold)
	h.UnhealthyThreshold = cmp.Or(h.UnhealthyThreshold, apiUnhealthyThreshold)
	h.Path = cmp.Or(h.Path, "/")
	if h.Protocol == annotation.ProtocolTCP {
		h.Path = "" // nothing is asked for
	}
	return h
}

// healthCheck compares health checks; one difference names all that differs. Whether they speak the PROXY protocol is compared only if both
// say so: the API's description does not know the field.
func (d *differences) healthCheck(is, must HealthCheck) {
	proxy := is.ProxyProtocol != nil && must.ProxyProtocol != nil && *is.ProxyProtocol != *must.ProxyProtocol
	a, b := is.filled(), must.filled()
	if a.String() != b.String() {
		d.add(FieldHealthCheck, RemedyUpdate, "the health check is %s instead of %s", a, b)
	} else if proxy {
		d.add(FieldHealthCheck, RemedyUpdate, "the PROXY protocol in health checks is %s instead of %s", onOff(*is.ProxyProtocol), onOff(*must.ProxyProtocol))
	}
}

// droplets compares the targets as sets. A load balancer whose droplets are assigned by tag has no targets of ours.
func (d *differences) droplets(o Observed, r Request) {
	if o.DropletTag != "" {
		d.add(FieldDropletTag, RemedyUpdate, "droplets are assigned by tag %s instead of by ID", o.DropletTag)
	}
	if missing := without(r.DropletIDs, o.DropletIDs); len(missing) > 0 {
		d.all = append(d.all, Difference{Field: FieldDroplets, Remedy: RemedyUpdate, Missing: missing, Message: say(missing, "missing")})
	}
	if unwanted := without(o.DropletIDs, r.DropletIDs); len(unwanted) > 0 {
		d.all = append(d.all, Difference{Field: FieldDroplets, Remedy: RemedyUpdate, Unwanted: unwanted, Message: say(unwanted, "not wanted")})
	}
}

// say names droplets, the first few of them.
func say(ids []int, what string) string {
	const shown = 10
	switch {
	case len(ids) == 1:
		return fmt.Sprintf("droplet %d is %s", ids[0], what)
	case len(ids) > shown:
		return fmt.Sprintf("droplets %s and %d more are %s", join(ids[:shown]), len(ids)-shown, what)
	}
	return fmt.Sprintf("droplets %s are %s", join(ids), what)
}

// without returns the elements of a that are not in b, each once, in ascending order.
func without(a, b []int) []int {
	other := make(map[int]bool, len(b))
	for _, id := range b {
		other[id] = true
	}
	var out []int
	for _, id := range a {
		if !other[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tags looks for our tags only: others are somebody else's, and a token may not be shown any.
func (d *differences) tags(o Observed, r Request) {
	if o.Tags == nil {
		return
	}
	for _, tag := range sorted(r.Tags) {
		if !slices.Contains(o.Tags, tag) {
			d.add(FieldTags, RemedyTag, "tag %s is missing", tag)
		}
	}
}
