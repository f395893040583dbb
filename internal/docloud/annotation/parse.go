// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Parse reads the annotations of a Service of type LoadBalancer. Every wrong value is found, not only the first; the error is [Errors].
// The warnings are in the order of [Table] and hold whether there is an error or not; there
// are none about what is the cluster's default, which its owner of the Service has not written.
func Parse(annotations map[string]string, o Options) (Settings, []Warning, error) {
	r := &reader{values: o.Defaults.Over(annotations), own: annotations}
	r.identity(o)
	if r.s.Type == TypeRegional {
		r.forwarding()
	}
	r.options()
	r.sticky()
	r.rules()
	r.healthCheck()
	r.s.Disowned = r.boolean(Disown)
	r.unused()
	if len(r.errs) > 0 {
		return r.s, r.warnings, r.errs
	}
	return r.s, r.warnings, nil
}

// IsDisowned reports whether the load balancer of a Service is to be left alone; all that is about to touch one asks it first. The error is
// [Errors].
func IsDisowned(annotations map[string]string) (bool, error) {
	r := &reader{values: annotations, own: annotations}
	disowned := r.boolean(Disown)
	if len(r.errs) > 0 {
		return false, r.errs
	}
	return disowned, nil
}

// IsFirewallManaged reports whether the cluster's firewall opens the ports of a Service. A value that is not a boolean means
// true, as it does for the upstream project, and is warned of. The annotations are with the cluster's defaults ([Defaults.Over]).
func IsFirewallManaged(annotations map[string]string) (bool, []Warning) {
	value, ok := annotations[FirewallManaged]
	if !ok {
		return true, nil
	}
	managed, err := strconv.ParseBool(value)
	if err != nil {
		r := &reader{}
		r.warn(ReasonNoEffect, FirewallManaged, value, "which is neither true nor false: the firewall opens the Service's ports")
		return true, r.warnings
	}
	return managed, nil
}

// reader collects what one Service's annotations say.
type reader struct {
	// values are with the cluster's defaults, own without.
	values, own map[string]string

	s        Settings
	errs     Errors
	warnings []Warning
}

// fail records that a value is refused; problem replaces the table's words about allowed values unless it is empty.
func (r *reader) fail(name, problem string) {
	if problem == "" {
		e, _ := lookup(name)
		problem = "it must be " + e.Values
	}
	r.errs = append(r.errs, &Error{Annotation: name, Value: r.values[name], Problem: problem, Default: IsDefault(name, r.own, r.values)})
}

// warn records a warning; problem completes the sentence "annotation X is "value", …".
func (r *reader) warn(reason, name, value, problem string) {
	if IsDefault(name, r.own, r.values) {
		return
	}
	r.warnings = append(r.warnings, Warning{Reason: reason, Message: fmt.Sprintf("annotation %s is %s, %s", name, Quote(value), problem)})
}

// doubt records that a value is sent although DigitalOcean documents another form.
func (r *reader) doubt(name, problem string) { r.warn(ReasonDoubtful, name, r.values[name], problem) }

// idle records that a value changes nothing.
func (r *reader) idle(name, problem string) { r.warn(ReasonNoEffect, name, r.values[name], problem) }

// choice returns the annotation's value if it is one of its form's choices, the default if it is absent or empty, and else fails.
func (r *reader) choice(name, def string) string {
	value := r.values[name]
	switch {
	case value == "":
		return def
	case !slices.Contains(FormOf(name).Choices, value):
		r.fail(name, "")
		return def
	}
	return value
}

// boolean returns false for an absent annotation. What counts as a boolean is what Go takes for one: 1, t, true and their opposites.
func (r *reader) boolean(name string) bool {
	value, ok := r.values[name]
	if !ok {
		return false
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		r.fail(name, "")
	}
	return b
}

// number returns def for an absent annotation; an empty one is not a number.
func (r *reader) number(name string, def int) int {
	value, ok := r.values[name]
	if !ok {
		return def
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		r.fail(name, "")
		return def
	}
	return n
}

// ports returns a list of ports, nil for an absent annotation. Blanks and empty elements are refused, as the upstream project does.
func (r *reader) ports(name string) []int {
	value, ok := r.values[name]
	if !ok {
		return nil
	}
	words := strings.Split(value, ",")
	ports := make([]int, 0, len(words))
	for _, word := range words {
		port, err := strconv.Atoi(word)
		if err != nil {
			r.fail(name, "")
			return nil
		}
		ports = append(ports, port)
	}
	return ports
}

// list returns the elements of a list without surrounding blanks, nil for an absent or empty annotation.
func (r *reader) list(name string) []string {
	if r.values[name] == "" {
		return nil
	}
	words := strings.Split(r.values[name], ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// nameForm and uuidForm are what DigitalOcean documents for names of load balancers and for UUIDs; domainForm is one domain name.
var (
	domainForm = regexp.MustCompile(domainPattern)
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9.-]{1,255}$`)
	uuidForm   = regexp.MustCompile(uuidPattern)
)

func (r *reader) identity(o Options) {
	r.s.ID = r.values[LoadBalancerID]
	if r.s.Name = r.values[Name]; r.s.Name != "" && !nameForm.MatchString(r.s.Name) {
		r.doubt(Name, "which DigitalOcean may refuse: a name is 1 to 255 letters, digits, dots and dashes")
	}
	def := DefaultType
	if o.DefaultType == TypeRegional {
		def = TypeRegional
	}
	r.s.TypeAsked = r.choice(Type, "")
	r.s.Type = cmp.Or(o.FixedType, r.s.TypeAsked, def)
	r.s.Network = r.choice(Network, NetworkExternal)
	r.s.NetworkStack = r.choice(NetworkStack, "")
	if r.s.IP = strings.TrimSpace(r.values[IP]); r.s.IP != "" {
		if _, err := netip.ParseAddr(r.s.IP); err != nil {
			r.doubt(IP, "which is not an IP address and will be refused by DigitalOcean")
		}
	}
	if r.s.Subnet = strings.TrimSpace(r.values[SubnetUUID]); r.s.Subnet != "" && !uuidForm.MatchString(r.s.Subnet) {
		r.doubt(SubnetUUID, "which is not a UUID and will be refused by DigitalOcean")
	}
	if r.s.Project = strings.ToLower(r.values[ProjectID]); r.s.Project != "" && !uuidForm.MatchString(r.s.Project) {
		r.fail(ProjectID, "")
		r.s.Project = ""
	}
	r.choice(ReservedIP, "")
	r.s.NodeSelector, r.s.LocalTargetsOnly = r.values[NodeSelector], r.boolean(LocalTargetsOnly)
}

func (r *reader) forwarding() {
	r.s.Protocol = ProtocolTCP
	if protocol, ok := r.values[Protocol]; ok {
		switch protocol {
		case ProtocolTCP, ProtocolHTTP, ProtocolHTTPS, ProtocolHTTP2:
			r.s.Protocol = protocol
		case ProtocolHTTP3:
			r.s.Protocol = protocol
			r.doubt(Protocol, "which DigitalOcean takes for one port only and not towards droplets: use "+HTTP3Port)
		default: // the empty value too
			r.fail(Protocol, "")
		}
	}
	r.s.HTTPPorts, r.s.TLSPorts, r.s.HTTP2Ports = r.ports(HTTPPorts), r.ports(TLSPorts), r.ports(HTTP2Ports)
	r.sharedPorts()
	r.http3()
	if value, ok := r.values[TLSPassthrough]; ok {
		passthrough, err := strconv.ParseBool(value)
		if err != nil {
			r.idle(TLSPassthrough, "which is neither true nor false: TLS is not passed through")
		}
		r.s.TLSPassthrough = passthrough && err == nil
	}
	r.s.CertificateID, r.s.CertificateName = r.values[CertificateID], r.values[CertificateName]
	if r.s.CertificateID != "" && r.s.CertificateName != "" {
		r.idle(CertificateName, "which has no effect alongside "+CertificateID)
	}
	r.s.CertificateDomains = r.domains()
	r.s.TLSCipherPolicy = r.choice(TLSCipherPolicy, "")
}

// domains returns the names of a managed certificate. They are written in one way, so that the same names are always the same certificate.
func (r *reader) domains() []string {
	value := r.values[CertificateDomains]
	if value == "" {
		return nil
	}
	words := strings.Split(strings.ToLower(value), ",")
	if slices.ContainsFunc(words, func(word string) bool { return len(word) > LongestDomain || !domainForm.MatchString(word) }) {
		r.fail(CertificateDomains, "")
		return nil
	}
	for _, other := range []string{CertificateID, CertificateName} {
		if r.values[other] != "" {
			r.fail(CertificateDomains, fmt.Sprintf("but %s is %s: give one of them", other, Quote(r.values[other])))
			return nil
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// sharedPorts refuses a port that stands twice in the three lists, be it in one of them. Of several it names the one that stands first.
func (r *reader) sharedPorts() {
	type place struct {
		name string
		at   int
	}
	seen, at := map[int]place{}, 0
	var first, again place
	port := 0
	for _, list := range []struct {
		name  string
		ports []int
	}{{HTTPPorts, r.s.HTTPPorts}, {TLSPorts, r.s.TLSPorts}, {HTTP2Ports, r.s.HTTP2Ports}} {
		for _, p := range list.ports {
			at++
			before, twice := seen[p]
			switch {
			case !twice:
				seen[p] = place{list.name, at}
			case again.name == "" || before.at < first.at:
				port, first, again = p, before, place{list.name, at}
			}
		}
	}
	switch {
	case again.name == "":
	case again.name == first.name:
		r.fail(again.name, fmt.Sprintf("where port %d is listed twice", port))
	default:
		r.fail(again.name, fmt.Sprintf("but port %d is in %s as well: it can have one protocol only", port, first.name))
	}
}

func (r *reader) http3() {
	value, ok := r.values[HTTP3Port]
	if !ok {
		return
	}
	port, err := strconv.Atoi(value)
	switch {
	case err != nil:
		r.fail(HTTP3Port, "")
	case port == -1: // the upstream project's own mark for "none"
		r.idle(HTTP3Port, "which means that no port serves HTTP/3")
	default:
		r.s.HTTP3Port = &port
	}
}

func (r *reader) options() {
	if r.s.Hostname = strings.ToLower(r.values[Hostname]); r.s.Hostname != "" && !validHostname(r.s.Hostname) {
		r.idle(Hostname, "which is not a DNS name: the load balancer's addresses are published instead")
		r.s.Hostname = ""
	}
	r.s.Algorithm = AlgorithmRoundRobin
	switch r.values[Algorithm] {
	case "", AlgorithmRoundRobin:
	case AlgorithmLeastConnections:
		r.s.Algorithm = AlgorithmLeastConnections
		r.idle(Algorithm, "which DigitalOcean ignores: the algorithm can no longer be chosen")
	default:
		r.idle(Algorithm, "which is not an algorithm: round_robin is asked for, and DigitalOcean ignores it")
	}
	r.size()
	r.s.RedirectHTTPToHTTPS = r.boolean(RedirectHTTPToHTTPS)
	r.s.ProxyProtocol = r.boolean(EnableProxyProtocol)
	r.s.BackendKeepalive = r.boolean(EnableBackendKeepalive)
	r.s.DisableLetsEncryptDNSRecords = r.boolean(DisableLetsEncryptDNSRecord)
	if value, ok := r.values[HTTPIdleTimeout]; ok {
		seconds, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
			r.fail(HTTPIdleTimeout, "")
			return
		case seconds > math.MaxInt64 || FormOf(HTTPIdleTimeout).outside(int64(seconds)):
			r.doubt(HTTPIdleTimeout, FormOf(HTTPIdleTimeout).Doubt)
		}
		r.s.HTTPIdleTimeout = &seconds
	}
}

// validHostname reports whether the API server takes a name as the hostname of a load balancer: a DNS name and no address.
func validHostname(name string) bool {
	_, err := netip.ParseAddr(name)
	return err != nil && len(validation.IsDNS1123Subdomain(name)) == 0
}

func (r *reader) size() {
	r.s.SizeSlug = r.choice(SizeSlug, "")
	value := r.values[SizeUnit]
	if value == "" {
		return
	}
	unit, err := strconv.Atoi(value)
	if err != nil || unit < 0 {
		r.fail(SizeUnit, "")
		return
	}
	r.s.SizeUnit = uint32(unit) // the upstream project cuts off what does not fit, and sends what is left
	switch {
	case r.s.SizeUnit > 0 && r.s.SizeSlug != "":
		r.fail(SizeUnit, fmt.Sprintf("but %s is %q: give one of them", SizeSlug, r.s.SizeSlug))
	case unit == 0:
		r.idle(SizeUnit, "which means the smallest size, 1")
	case FormOf(SizeUnit).outside(int64(unit)):
		r.doubt(SizeUnit, FormOf(SizeUnit).Doubt)
	}
}

func (r *reader) sticky() {
	r.s.Sticky.Type = StickyNone
	switch r.values[StickySessionsType] {
	case StickyCookies:
		r.s.Sticky.Type = StickyCookies
	case "", StickyNone:
	default:
		r.idle(StickySessionsType, "which is neither none nor cookies: sessions are not sticky")
	}
	if r.s.Sticky.Type == StickyNone {
		for _, name := range []string{StickySessionsCookieName, StickySessionsCookieTTL} {
			if _, ok := r.values[name]; ok {
				r.idle(name, "which has no effect without "+StickySessionsType+": "+StickyCookies)
			}
		}
		return
	}
	if r.s.Sticky.Cookie = r.values[StickySessionsCookieName]; r.s.Sticky.Cookie == "" {
		r.fail(StickySessionsCookieName, "it must be the name of a cookie, since "+StickySessionsType+" is "+StickyCookies)
	}
	ttl, err := strconv.Atoi(r.values[StickySessionsCookieTTL])
	switch {
	case err != nil:
		r.fail(StickySessionsCookieTTL, "it must be a whole number of seconds, since "+StickySessionsType+" is "+StickyCookies)
	case ttl < 1:
		r.doubt(StickySessionsCookieTTL, "which DigitalOcean will refuse: a cookie holds for one second or more")
	}
	r.s.Sticky.TTL = ttl
}

func (r *reader) rules() {
	r.s.Allow, r.s.Deny = r.list(AllowRules), r.list(DenyRules)
	for _, list := range []struct {
		name  string
		rules []string
	}{{AllowRules, r.s.Allow}, {DenyRules, r.s.Deny}} {
		for _, rule := range list.rules {
			if !validRule(rule) {
				r.doubt(list.name, fmt.Sprintf("where %s is neither ip:ADDRESS nor cidr:RANGE and will be refused by DigitalOcean", Quote(rule)))
			}
		}
	}
}

// validRule reports whether a firewall rule has the form of the API's description: ip:1.2.3.4 or cidr:1.2.0.0/16.
func validRule(rule string) bool {
	kind, source, _ := strings.Cut(rule, ":")
	var err error
	switch kind {
	case "ip":
		_, err = netip.ParseAddr(source)
	case "cidr":
		_, err = netip.ParsePrefix(source)
	default:
		return false
	}
	return err == nil
}
