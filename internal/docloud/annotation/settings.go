// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

// Settings is what the annotations of a Service ask for, defaults filled in. A field of an annotation that the load balancer's type does not
// use has its zero value.
type Settings struct {
	// ID is the load balancer that the Service has, or was handed; empty for none.
	ID string
	// Name is the name asked for, empty for the default one.
	Name string
	// Type is the effective type: that of the load balancer there is, else the one asked for, else the default. TypeAsked is the
	// annotation's own value, empty for none.
	Type, TypeAsked string
	// Network is the network asked for, the default filled in.
	Network string
	// NetworkStack is the stack asked for, empty for the default, which depends on the nodes.
	NetworkStack string
	// IP and Subnet are without surrounding blanks, empty for none.
	IP, Subnet string
	// Project is the project asked for, in lower case, empty for none.
	Project string
	// NodeSelector selects the Nodes that get traffic by labels (k8s.io/apimachinery, labels.Parse), empty for all.
	NodeSelector string
	// LocalTargetsOnly asks for targets only where endpoints of the Service are.
	LocalTargetsOnly bool
	// Hostname is in lower case, empty for none.
	Hostname string

	// Protocol is the protocol of TCP ports that no list names.
	Protocol string
	// HTTPPorts, TLSPorts and HTTP2Ports are the lists as written, duplicates between them refused.
	HTTPPorts, TLSPorts, HTTP2Ports []int
	// HTTP3Port is nil for none.
	HTTP3Port *int
	// TLSPassthrough asks for TLS to be passed on.
	TLSPassthrough bool
	// CertificateID wins over CertificateName; both are empty for none.
	CertificateID, CertificateName string
	// CertificateDomains are in lower case, sorted and each once; there are none alongside the other two.
	CertificateDomains []string
	// TLSCipherPolicy is empty for the one that the load balancer has.
	TLSCipherPolicy string

	// Algorithm is one that the API knows.
	Algorithm string
	// SizeSlug and SizeUnit are empty and 0 when not asked for; at most one of them is.
	SizeSlug string
	SizeUnit uint32
	// Sticky holds the sticky sessions.
	Sticky Sticky
	// These four are as named.
	RedirectHTTPToHTTPS, ProxyProtocol, BackendKeepalive, DisableLetsEncryptDNSRecords bool
	// HTTPIdleTimeout is in seconds, nil for DigitalOcean's default.
	HTTPIdleTimeout *uint64
	// Allow and Deny are firewall rules as written, without surrounding blanks.
	Allow, Deny []string
	// HealthCheck holds the health check.
	HealthCheck HealthCheck

	// Disowned reports that the load balancer is to be left alone.
	Disowned bool
}

// Sticky is how clients are kept on one droplet. Cookie and TTL (seconds) are set if and only if Type is [StickyCookies].
type Sticky struct {
	Type   string
	Cookie string
	TTL    int
}

// HealthCheck is how droplets are checked. Port, Path and Protocol count only with Override.
type HealthCheck struct {
	Override bool
	// Port is a port of the Service, nil for its first TCP port.
	Port     *int
	Path     string
	Protocol string
	// Interval and Timeout are in seconds.
	Interval, Timeout                    int
	UnhealthyThreshold, HealthyThreshold int
}

// Options are what the reading depends on in addition to the annotations.
type Options struct {
	// DefaultType is the type of load balancers that do not ask for one; empty and unknown ones mean [DefaultType].
	DefaultType string
	// FixedType is the type of the load balancer that exists, empty for none. A type cannot change, so that it wins over the annotation,
	// which the controller overwrites with it.
	FixedType string
	// Defaults are the cluster's, nil for none.
	Defaults Defaults
}
