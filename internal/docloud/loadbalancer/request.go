// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"strings"
	"time"
)

// Request is the body of the POST that makes a load balancer, and of the PUT that changes one. Its JSON form is, byte for byte, what the
// upstream project sends: the order of the fields, and which of them are left out when empty, MUST not be changed. A PUT resets what it leaves out
// to DigitalOcean's defaults, so that a request is always whole.
type Request struct {
	Name                         string           `json:"name,omitempty"`
	Algorithm                    string           `json:"algorithm,omitempty"`
	Region                       string           `json:"region,omitempty"`
	SizeSlug                     string           `json:"size,omitempty"`
	SizeUnit                     uint32           `json:"size_unit,omitempty"`
	Type                         string           `json:"type,omitempty"`
	ForwardingRules              []ForwardingRule `json:"forwarding_rules,omitempty"`
	HealthCheck                  HealthCheck      `json:"health_check"`
	StickySessions               StickySessions   `json:"sticky_sessions"`
	DropletIDs                   []int            `json:"droplet_ids,omitempty"`
	Tags                         []string         `json:"tags,omitempty"`
	RedirectHTTPToHTTPS          bool             `json:"redirect_http_to_https,omitempty"`
	EnableProxyProtocol          bool             `json:"enable_proxy_protocol,omitempty"`
	EnableBackendKeepalive       bool             `json:"enable_backend_keepalive,omitempty"`
	VPC                          string           `json:"vpc_uuid,omitempty"`
	Subnet                       string           `json:"subnet_uuid,omitempty"`
	DisableLetsEncryptDNSRecords bool             `json:"disable_lets_encrypt_dns_records"`
	HTTPIdleTimeoutSeconds       *uint64          `json:"http_idle_timeout_seconds,omitempty"`
	Firewall                     Firewall         `json:"firewall"`
	Network                      string           `json:"network,omitempty"`
	NetworkStack                 string           `json:"network_stack,omitempty"`
	// Project is Mooring's own, so that it comes last: the upstream project sends none.
	Project string `json:"project_id,omitempty"`
	// TLSCipherPolicy is Mooring's own as well.
	TLSCipherPolicy string `json:"tls_cipher_policy,omitempty"`
}

// CreateOnly is what only the POST carries in addition to the [Request].
type CreateOnly struct {
	// IP is an address that the user brought to DigitalOcean.
	IP string `json:"ip,omitempty"`
}

// ForwardingRule is one port of a load balancer and where it leads.
type ForwardingRule struct {
	EntryProtocol  string `json:"entry_protocol,omitempty"`
	EntryPort      int    `json:"entry_port,omitempty"`
	TargetProtocol string `json:"target_protocol,omitempty"`
	TargetPort     int    `json:"target_port,omitempty"`
	CertificateID  string `json:"certificate_id,omitempty"`
	TLSPassthrough bool   `json:"tls_passthrough,omitempty"`
}

func (f ForwardingRule) String() string {
	s := fmt.Sprintf("%s:%d → %s:%d", f.EntryProtocol, f.EntryPort, f.TargetProtocol, f.TargetPort)
	if f.CertificateID != "" {
		s += " with certificate " + f.CertificateID
	}
	if f.TLSPassthrough {
		s += " with TLS passed through"
	}
	return s
}

// HealthCheck is how a load balancer checks its droplets. Times are in seconds.
type HealthCheck struct {
	Protocol           string `json:"protocol,omitempty"`
	Port               int    `json:"port,omitempty"`
	Path               string `json:"path,omitempty"`
	Interval           int    `json:"check_interval_seconds,omitempty"`
	Timeout            int    `json:"response_timeout_seconds,omitempty"`
	HealthyThreshold   int    `json:"healthy_threshold,omitempty"`
	UnhealthyThreshold int    `json:"unhealthy_threshold,omitempty"`
	// ProxyProtocol reports whether health checks speak the PROXY protocol; nil leaves it to the load balancer's own setting.
	ProxyProtocol *bool `json:"proxy_protocol,omitempty"`
}

func (h HealthCheck) String() string {
	return fmt.Sprintf("%s:%d%s every %d s, timeout %d s, healthy after %d, unhealthy after %d",
		h.Protocol, h.Port, h.Path, h.Interval, h.Timeout, h.HealthyThreshold, h.UnhealthyThreshold)
}

// StickySessions keep a client on one droplet.
type StickySessions struct {
	Type       string `json:"type,omitempty"`
	CookieName string `json:"cookie_name,omitempty"`
	CookieTTL  int    `json:"cookie_ttl_seconds,omitempty"`
}

func (s StickySessions) String() string {
	if s.CookieName == "" {
		return s.Type
	}
	return fmt.Sprintf("%s %q for %d s", s.Type, s.CookieName, s.CookieTTL)
}

// Firewall is who may connect to a load balancer. Rules have the form ip:ADDRESS or cidr:RANGE.
type Firewall struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Observed is a load balancer as the API returns it. Fields that it does not return, be it for a scoped token, are empty, and empty means
// unknown wherever a field of that value could not be.
type Observed struct {
	ID     string
	Name   string
	Status Status
	// CreatedAt is when DigitalOcean made it, the zero time if that was not returned.
	CreatedAt time.Time
	// IP and IPv6 are empty until the load balancer is active.
	IP, IPv6 string
	// Region is the slug.
	Region, Type, Network, NetworkStack, VPC, Subnet string
	// Project is the ID of its project.
	Project         string
	TLSCipherPolicy string
	SizeSlug        string
	SizeUnit        uint32
	ForwardingRules []ForwardingRule
	// HealthCheck and StickySessions are nil if they were not returned.
	HealthCheck    *HealthCheck
	StickySessions *StickySessions
	DropletIDs     []int
	// DropletTag is the tag by which droplets are assigned, empty for none; it excludes DropletIDs.
	DropletTag string
	// Tags are the load balancer's own tags, nil if they were not returned.
	Tags                                                             []string
	RedirectHTTPToHTTPS, EnableProxyProtocol, EnableBackendKeepalive bool
	DisableLetsEncryptDNSRecords                                     bool
	HTTPIdleTimeoutSeconds                                           *uint64
	// Firewall is nil if it was not returned, which is the same as one without rules.
	Firewall *Firewall
}

// Status is a load balancer's state as the API spells it.
type Status string

// The states of a load balancer. One that is new is still being made and takes no change.
const (
	StatusNew     Status = "new"
	StatusActive  Status = "active"
	StatusErrored Status = "errored"
)

func (o Observed) String() string { return fmt.Sprintf("load balancer %q (%s)", o.Name, o.ID) }

// ClusterTagPrefix begins the tag that says which cluster a load balancer belongs to. It MUST not be changed: existing load balancers carry it.
const ClusterTagPrefix = "k8s:"

// ClusterTag is the tag of a cluster's load balancers, empty for a cluster without an ID (DO_CLUSTER_ID).
func ClusterTag(clusterID string) string {
	if clusterID == "" {
		return ""
	}
	return ClusterTagPrefix + clusterID
}

// ClusterTags returns the tags of clusters among tags.
func ClusterTags(tags []string) []string {
	var out []string
	for _, tag := range tags {
		if strings.HasPrefix(tag, ClusterTagPrefix) {
			out = append(out, tag)
		}
	}
	return out
}
