// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import "github.com/mooring-dev/mooring/internal/assumed"

// Prefix begins most of the annotations. Like every name in this file it MUST not be changed: manifests of existing clusters hold it.
const Prefix = "service.beta.kubernetes.io/do-loadbalancer-"

// The annotations, in the order of [Table], which says what each of them does.
const (
	LoadBalancerID = "kubernetes.digitalocean.com/load-balancer-id"

	Name         = Prefix + "name"
	Type         = Prefix + "type"
	Network      = Prefix + "network"
	NetworkStack = Prefix + "network-stack"
	IP           = Prefix + "ip"
	SubnetUUID   = Prefix + "subnet-uuid"
	// ProjectID is Mooring's own, and so are ReservedIP and CertificateDomains: the upstream project knows none of them.
	ProjectID  = Prefix + "project-id"
	ReservedIP = Prefix + "reserved-ip"

	Protocol        = Prefix + "protocol"
	HTTPPorts       = Prefix + "http-ports"
	TLSPorts        = Prefix + "tls-ports"
	HTTP2Ports      = Prefix + "http2-ports"
	HTTP3Port       = Prefix + "http3-port"
	TLSPassthrough  = Prefix + "tls-passthrough"
	CertificateID   = Prefix + "certificate-id"
	CertificateName = Prefix + "certificate-name"

	CertificateDomains = Prefix + "certificate-domains"
	// TLSCipherPolicy, NodeSelector and LocalTargetsOnly are Mooring's own too.
	TLSCipherPolicy  = Prefix + "tls-cipher-policy"
	NodeSelector     = Prefix + "node-selector"
	LocalTargetsOnly = Prefix + "local-targets-only"

	Hostname  = Prefix + "hostname"
	Algorithm = Prefix + "algorithm"
	SizeSlug  = Prefix + "size-slug"
	SizeUnit  = Prefix + "size-unit"

	StickySessionsType       = Prefix + "sticky-sessions-type"
	StickySessionsCookieName = Prefix + "sticky-sessions-cookie-name"
	StickySessionsCookieTTL  = Prefix + "sticky-sessions-cookie-ttl"

	RedirectHTTPToHTTPS         = Prefix + "redirect-http-to-https"
	EnableProxyProtocol         = Prefix + "enable-proxy-protocol"
	EnableBackendKeepalive      = Prefix + "enable-backend-keepalive"
	DisableLetsEncryptDNSRecord = Prefix + "disable-lets-encrypt-dns-records"
	HTTPIdleTimeout             = Prefix + "http-idle-timeout-seconds"

	AllowRules = Prefix + "allow-rules"
	DenyRules  = Prefix + "deny-rules"

	OverrideHealthCheck           = Prefix + "override-health-check"
	HealthCheckPort               = Prefix + "healthcheck-port"
	HealthCheckPath               = Prefix + "healthcheck-path"
	HealthCheckProtocol           = Prefix + "healthcheck-protocol"
	HealthCheckInterval           = Prefix + "healthcheck-check-interval-seconds"
	HealthCheckTimeout            = Prefix + "healthcheck-response-timeout-seconds"
	HealthCheckUnhealthyThreshold = Prefix + "healthcheck-unhealthy-threshold"
	HealthCheckHealthyThreshold   = Prefix + "healthcheck-healthy-threshold"

	Disown          = "service.kubernetes.io/do-loadbalancer-disown"
	FirewallManaged = "kubernetes.digitalocean.com/firewall-managed"
)

// Values that DigitalOcean's API knows.
const (
	TypeRegional        = assumed.TypeRegional
	TypeRegionalNetwork = assumed.TypeRegionalNetwork
	// DefaultType is the type of a load balancer when neither annotation nor configuration names one.
	DefaultType = TypeRegionalNetwork

	NetworkExternal = assumed.NetworkExternal
	NetworkInternal = assumed.NetworkInternal

	StackIPv4 = assumed.StackIPv4
	StackDual = assumed.StackDual

	ProtocolTCP   = assumed.ProtocolTCP
	ProtocolUDP   = assumed.ProtocolUDP
	ProtocolHTTP  = assumed.ProtocolHTTP
	ProtocolHTTPS = assumed.ProtocolHTTPS
	ProtocolHTTP2 = assumed.ProtocolHTTP2
	ProtocolHTTP3 = assumed.ProtocolHTTP3

	AlgorithmRoundRobin       = assumed.AlgorithmRoundRobin
	AlgorithmLeastConnections = assumed.AlgorithmLeastConnections

	StickyNone    = assumed.StickyNone
	StickyCookies = assumed.StickyCookies

	SizeSmall  = assumed.SizeSmall
	SizeMedium = assumed.SizeMedium
	SizeLarge  = assumed.SizeLarge

	CipherDefault = assumed.CipherDefault
	CipherStrong  = assumed.CipherStrong
)

// What the upstream project writes into the health check of every load balancer unless an annotation says otherwise. They differ from the
// defaults of the API, so that they MUST always be sent.
const (
	DefaultHealthCheckInterval           = 3
	DefaultHealthCheckTimeout            = 5
	DefaultHealthCheckUnhealthyThreshold = 3
	DefaultHealthCheckHealthyThreshold   = 5
)
