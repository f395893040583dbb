// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import "slices"

// Entry is one annotation, in words. Values completes the sentence "it must be …" and stands in errors as well as in the reference.
type Entry struct {
	Name    string
	Values  string
	Default string
	Effect  string
	// Regional and RegionalNetwork say which types of load balancer use the annotation.
	Regional, RegionalNetwork bool
	// CreateOnly reports that it is used when the load balancer is made and never afterwards.
	CreateOnly bool
	// Fixed reports that DigitalOcean does not let the field change; a later change of the annotation is answered with a warning.
	Fixed bool
	// Written reports that the controller itself writes the annotation.
	Written bool
	// PerService says why a cluster cannot have a default for it, a part of a sentence; empty if it can.
	PerService string
	// Own reports that it is Mooring's own: the upstream project does not have it.
	Own bool
	// Lenient returns which wrong values are accepted with a warning, empty for none.
	Lenient string
}

// words that several entries share.
const (
	anyBool      = "true or false"
	onePort      = "the number of one port of the Service"
	somePorts    = "port numbers separated by commas, without blanks"
	wholeSeconds = "a whole number of seconds"
	wholeNumber  = "a whole number"
	someDomains  = "domain names separated by commas, without blanks, each such as example.com or *.example.com"
	noReserved   = "left out: DigitalOcean gives reserved IPs to droplets only, and a load balancer its address when it is made"
	firewallForm = "rules of the form ip:ADDRESS or cidr:RANGE, separated by commas"
)

// Table returns every annotation, in the order of the reference page.
func Table() []Entry {
	return slices.Concat(identityEntries(), forwardingEntries(), optionEntries(), healthCheckEntries(), otherEntries())
}

// lookup returns the entry with that name.
func lookup(name string) (Entry, bool) {
	entries := Table()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return Entry{}, false
	}
	return entries[i], true
}

func both(e Entry) Entry         { e.Regional, e.RegionalNetwork = true, true; return e }
func regionalOnly(e Entry) Entry { e.Regional = true; return e }

func identityEntries() []Entry {
	return []Entry{
		both(Entry{
			Name: LoadBalancerID, Values: "the ID of a load balancer", Default: "set by the controller", Written: true,
			Effect:     "The load balancer of this Service. Set it beforehand to hand an existing load balancer to the Service.",
			PerService: "it names the load balancer of one Service",
		}),
		both(Entry{
			Name: Name, Values: "1 to 255 letters, digits, dots and dashes", Default: "a and the first 31 letters and digits of the Service's UID",
			Effect: "The load balancer's name. A change renames it.", Lenient: "any other text, which DigitalOcean may refuse",
			PerService: "names are unique in an account",
		}),
		both(Entry{
			Name: Type, Values: "REGIONAL or REGIONAL_NETWORK", Default: "DEFAULT_LB_TYPE, else REGIONAL_NETWORK", Fixed: true, Written: true,
			Effect: "REGIONAL_NETWORK passes packets on to the droplets (TCP and UDP, the client's address is kept, the target port is the " +
				"Service's port); REGIONAL is a proxy (HTTP, TLS, TCP and UDP, the target port is the node port).",
			PerService: "set DEFAULT_LB_TYPE for that",
		}),
		both(Entry{
			Name: Network, Values: "EXTERNAL or INTERNAL", Default: "EXTERNAL", Fixed: true,
			Effect: "Whether the load balancer has public addresses or one of the VPC.",
		}),
		both(Entry{
			Name: NetworkStack, Values: "IPV4 or DUALSTACK", Fixed: true,
			Default: "IPV4 for INTERNAL; DUALSTACK for REGIONAL; for REGIONAL_NETWORK DUALSTACK if all nodes have a public IPv6 address, else IPV4",
			Effect:  "Whether the load balancer has an IPv6 address too. INTERNAL has none.",
		}),
		both(Entry{
			Name: IP, Values: "an IP address that you brought to DigitalOcean", Default: "an address of DigitalOcean's", CreateOnly: true,
			Effect: "The load balancer's address.", Lenient: "any other text, which DigitalOcean will refuse",
			PerService: "it is the address of one load balancer",
		}),
		both(Entry{
			Name: ReservedIP, Values: noReserved, Default: "none", Own: true,
			Effect:     "None: it is refused, because the address would never be assigned. Use the annotation ip for an address that you brought along.",
			PerService: "no load balancer can have a reserved IP",
		}),
		both(Entry{
			Name: SubnetUUID, Values: "the UUID of a subnet", Default: "the VPC's",
			Effect: "The subnet of the load balancer.", Lenient: "any other text, which DigitalOcean will refuse",
		}),
		both(Entry{
			Name: ProjectID, Values: "the UUID of a project", Default: "the project that the load balancer is in, for a new one the account's default project",
			Own: true, Effect: "The project that the load balancer belongs to.",
		}),
		both(Entry{
			Name: NodeSelector, Values: "labels separated by commas, without blanks, each such as role=edge, role!=edge, edge or !edge", Default: "all nodes", Own: true,
			Effect: "Only nodes with these labels get traffic.",
		}),
		both(Entry{
			Name: LocalTargetsOnly, Values: anyBool, Default: "false", Own: true,
			Effect: "With externalTrafficPolicy: Local, only nodes with a pod of the Service, ready or not yet, are targets; all are while there is none. Without it " +
				"all nodes are, and the health check finds those with pods.",
		}),
	}
}

func forwardingEntries() []Entry {
	return []Entry{
		regionalOnly(Entry{
			Name: Protocol, Values: "one of tcp, http, https, http2 and http3", Default: ProtocolTCP,
			Effect:  "The protocol of the TCP ports that no other annotation names. UDP ports are always udp.",
			Lenient: "http3, which DigitalOcean takes for one port only: use http3-port",
		}),
		regionalOnly(Entry{Name: HTTPPorts, Values: somePorts, Default: "none", Effect: "Ports whose protocol is http."}),
		regionalOnly(Entry{
			Name: TLSPorts, Values: somePorts, Default: "443 if there is a certificate or passthrough and 443 is not in http2-ports",
			Effect: "Ports whose protocol is https.",
		}),
		regionalOnly(Entry{Name: HTTP2Ports, Values: somePorts, Default: "none", Effect: "Ports whose protocol is http2."}),
		regionalOnly(Entry{
			Name: HTTP3Port, Values: "one port number", Default: "none", Lenient: "-1, which means none",
			Effect: "A port that also serves HTTP/3. It needs a certificate; it cannot be passed through.",
		}),
		regionalOnly(Entry{
			Name: TLSPassthrough, Values: anyBool, Default: "false", Lenient: "any other text, which means false",
			Effect: "The ports with https and http2 pass TLS on to the droplets instead of ending it.",
		}),
		regionalOnly(Entry{
			Name: CertificateID, Values: "the ID of a certificate", Default: "none", Written: true,
			Effect: "The certificate of the ports with https, http2 and http3. The controller writes the new ID when DigitalOcean renews a " +
				"Let's Encrypt certificate.",
			PerService: "the ID of a Let's Encrypt certificate changes whenever it is renewed, use certificate-name or certificate-domains",
		}),
		regionalOnly(Entry{
			Name: CertificateName, Values: "the name of a certificate of the account", Default: "none",
			Effect: "The same by name; certificate-id wins.",
		}),
		regionalOnly(Entry{
			Name: CertificateDomains, Values: someDomains, Default: "none", Own: true,
			Effect: "The same by domains: a certificate of Let's Encrypt for exactly these names, which is created if the account has none. DigitalOcean " +
				"issues it if its DNS serves the domains for this account, and renews it. Not together with certificate-id or certificate-name.",
		}),
		regionalOnly(Entry{
			Name: TLSCipherPolicy, Values: "one of DEFAULT and STRONG", Default: "that of the load balancer, for a new one DEFAULT", Own: true,
			Effect: "The cipher suites with which the load balancer ends TLS.",
		}),
	}
}

func optionEntries() []Entry {
	return []Entry{
		both(Entry{
			Name: Hostname, Values: "a DNS name", Default: "none", Lenient: "any other text, in whose place the addresses are published",
			PerService: "it would be the name of every load balancer",
			Effect:     "The Service's status shows this name, in lower case, instead of the load balancer's addresses.",
		}),
		both(Entry{
			Name: Algorithm, Values: "round_robin or least_connections", Default: AlgorithmRoundRobin, Lenient: "any other text, which means round_robin",
			Effect: "None: DigitalOcean ignores the algorithm.",
		}),
		both(Entry{
			Name: SizeSlug, Values: "one of lb-small, lb-medium and lb-large", Default: "none",
			Effect: "The size, in the three regions that know no size units. Not together with size-unit.",
		}),
		both(Entry{
			Name: SizeUnit, Values: "a whole number, not negative", Default: "1", Lenient: "0, which means 1, and numbers above 100, which DigitalOcean will refuse",
			Effect: "The number of the load balancer's own nodes. It can be changed once an hour.",
		}),
		both(Entry{
			Name: StickySessionsType, Values: "none or cookies", Default: StickyNone, Lenient: "any other text, which means none",
			Effect: "Whether a client stays with one droplet.",
		}),
		both(Entry{Name: StickySessionsCookieName, Values: "the name of a cookie", Default: "none", Effect: "The cookie of the sticky sessions, which need it."}),
		both(Entry{
			Name: StickySessionsCookieTTL, Values: wholeSeconds, Default: "none", Lenient: "numbers below 1, which DigitalOcean will refuse",
			Effect: "How long that cookie holds; sticky sessions need it.",
		}),
		both(Entry{Name: RedirectHTTPToHTTPS, Values: anyBool, Default: "false", Effect: "Port 80 redirects to port 443."}),
		both(Entry{
			Name: EnableProxyProtocol, Values: anyBool, Default: "false",
			Effect: "The load balancer sends the client's address to the droplets with the PROXY protocol.",
		}),
		both(Entry{Name: EnableBackendKeepalive, Values: anyBool, Default: "false", Effect: "Connections to the droplets are kept open."}),
		both(Entry{
			Name: DisableLetsEncryptDNSRecord, Values: anyBool, Default: "false",
			Effect: "DigitalOcean makes no DNS records for a Let's Encrypt certificate.",
		}),
		both(Entry{
			Name: HTTPIdleTimeout, Values: "a whole number of seconds, not negative", Default: "60, which is DigitalOcean's",
			Lenient: "numbers that are not in 30 to 600, which DigitalOcean will refuse", Effect: "How long an idle HTTP connection is kept.",
		}),
		both(Entry{
			Name: AllowRules, Values: firewallForm, Default: "everybody", Lenient: "any other text, which DigitalOcean will refuse",
			Effect: "Who may connect. spec.loadBalancerSourceRanges wins.",
		}),
		both(Entry{
			Name: DenyRules, Values: firewallForm, Default: "nobody", Lenient: "any other text, which DigitalOcean will refuse",
			Effect: "Who may not connect.",
		}),
	}
}

func healthCheckEntries() []Entry {
	return []Entry{
		both(Entry{
			Name: OverrideHealthCheck, Values: "present or absent", Default: "absent", Lenient: "false, which means present",
			Effect:     "The health check follows healthcheck-port, -path and -protocol. Without it kube-proxy answers the health check.",
			PerService: "its presence counts, so that no Service could turn it off",
		}),
		both(Entry{
			Name: HealthCheckPort, Values: onePort, Default: "the first TCP port",
			Effect: "With override-health-check: the port whose node port is checked. It must not be a UDP port.",
		}),
		both(Entry{Name: HealthCheckPath, Values: "a path", Default: "none", Effect: "With override-health-check: the path of the request."}),
		both(Entry{
			Name: HealthCheckProtocol, Values: "one of tcp, http and https", Default: "http if there is a healthcheck-path, else tcp",
			Effect: "With override-health-check: how to check.",
		}),
		both(Entry{
			Name: HealthCheckInterval, Values: wholeSeconds, Default: "3", Lenient: "numbers that are not in 3 to 300, which DigitalOcean may refuse",
			Effect: "How often a droplet is checked.",
		}),
		both(Entry{
			Name: HealthCheckTimeout, Values: wholeSeconds, Default: "5", Lenient: "numbers that are not in 3 to 300, which DigitalOcean may refuse",
			Effect: "How long a response may take.",
		}),
		both(Entry{
			Name: HealthCheckUnhealthyThreshold, Values: wholeNumber, Default: "3",
			Lenient: "numbers that are not in 2 to 10, which DigitalOcean may refuse", Effect: "Failed checks until a droplet gets no more traffic.",
		}),
		both(Entry{
			Name: HealthCheckHealthyThreshold, Values: wholeNumber, Default: "5",
			Lenient: "numbers that are not in 2 to 10, which DigitalOcean may refuse", Effect: "Successful checks until it gets traffic again.",
		}),
	}
}

func otherEntries() []Entry {
	return []Entry{
		both(Entry{
			Name: Disown, Values: anyBool, Default: "false",
			Effect:     "The load balancer is left alone: it is neither made, changed nor deleted.",
			PerService: "no load balancer would be managed",
		}),
		{
			Name: FirewallManaged, Values: anyBool, Default: "true", Lenient: "any other text, which means true",
			Effect: "Whether the cluster's firewall opens the ports of the Service, of type NodePort or LoadBalancer.",
		},
	}
}
