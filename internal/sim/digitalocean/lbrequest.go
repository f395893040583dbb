// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import "github.com/mooring-dev/mooring/internal/assumed"

// balancerRequest is the body of POST and PUT. A pointer tells what was sent from what was left out.
type balancerRequest struct {
	Name                         string              `json:"name"`
	ProjectID                    string              `json:"project_id"`
	Region                       string              `json:"region"`
	Size                         string              `json:"size"`
	SizeUnit                     *int                `json:"size_unit"`
	Type                         string              `json:"type"`
	ForwardingRules              []ForwardingRule    `json:"forwarding_rules"`
	HealthCheck                  *healthCheckRequest `json:"health_check"`
	StickySessions               *StickySessions     `json:"sticky_sessions"`
	DropletIDs                   []int               `json:"droplet_ids"`
	Tag                          string              `json:"tag"`
	Tags                         *[]string           `json:"tags"` // not in the description
	RedirectHTTPToHTTPS          bool                `json:"redirect_http_to_https"`
	EnableProxyProtocol          bool                `json:"enable_proxy_protocol"`
	EnableBackendKeepalive       bool                `json:"enable_backend_keepalive"`
	HTTPIdleTimeoutSeconds       *int                `json:"http_idle_timeout_seconds"`
	VPCUUID                      string              `json:"vpc_uuid"`
	SubnetUUID                   string              `json:"subnet_uuid"` // not in the description
	DisableLetsEncryptDNSRecords bool                `json:"disable_lets_encrypt_dns_records"`
	Firewall                     LBFirewall          `json:"firewall"`
	Network                      string              `json:"network"`
	NetworkStack                 string              `json:"network_stack"`
	TLSCipherPolicy              string              `json:"tls_cipher_policy"`
	IP                           string              `json:"ip"`            // POST only; read-only in the description
	ValidateOnly                 bool                `json:"validate_only"` // not in the description
}

type healthCheckRequest struct {
	Protocol               string `json:"protocol"`
	Port                   *int   `json:"port"`
	Path                   string `json:"path"`
	CheckIntervalSeconds   *int   `json:"check_interval_seconds"`
	ResponseTimeoutSeconds *int   `json:"response_timeout_seconds"`
	UnhealthyThreshold     *int   `json:"unhealthy_threshold"`
	HealthyThreshold       *int   `json:"healthy_threshold"`
	ProxyProtocol          *bool  `json:"proxy_protocol"` // not in the description
}

// The defaults of the OpenAPI description, to which PUT resets what is left out.
const (
	defaultIdleTimeout     = assumed.IdleTimeoutDefault
	defaultCheckPort       = assumed.CheckPortDefault
	defaultCheckInterval   = assumed.CheckIntervalDefault
	defaultCheckTimeout    = assumed.CheckTimeoutDefault
	defaultUnhealthy       = assumed.CheckUnhealthyDefault
	defaultHealthy         = assumed.CheckHealthyDefault
	defaultTLSCipherPolicy = assumed.CipherDefault
)

// sizeUnits are the numbers of nodes that the old names of sizes stand for (OpenAPI: load_balancer.size).
func sizeUnits(slug string) (int, bool) {
	units := map[string]int{assumed.SizeSmall: 1, assumed.SizeMedium: 3, assumed.SizeLarge: 6}
	n, known := units[slug]
	return n, known
}

func sizeSlug(units int) string {
	for _, slug := range []string{"lb-small", "lb-medium", "lb-large"} {
		if n, _ := sizeUnits(slug); n == units {
			return slug
		}
	}
	return ""
}

// desired returns the load balancer that a request asks for, with defaults for what is left out. What cannot change after the
// creation stays as it is if it is left out, and so do the project and the tags (assumed: both are associations that other
// calls manage).
func (r *balancerRequest) desired(old *LoadBalancer) LoadBalancer {
	lb := LoadBalancer{
		Name: r.Name, ProjectID: r.ProjectID, SizeUnit: r.units(),
		Algorithm:       "round_robin", // whatever was asked for: OpenAPI, "You can no longer specify an algorithm"
		ForwardingRules: append([]ForwardingRule{}, r.ForwardingRules...),
		HealthCheck:     r.HealthCheck.desired(),
		StickySessions:  StickySessions{Type: "none"},
		Tag:             r.Tag, DropletIDs: sortedUnique(r.DropletIDs),
		RedirectHTTPToHTTPS: r.RedirectHTTPToHTTPS, EnableProxyProtocol: r.EnableProxyProtocol,
		EnableBackendKeepalive: r.EnableBackendKeepalive, HTTPIdleTimeoutSeconds: intOr(r.HTTPIdleTimeoutSeconds, defaultIdleTimeout),
		DisableLetsEncryptDNSRecords: r.DisableLetsEncryptDNSRecords,
		Firewall: LBFirewall{
			Allow: append([]string{}, r.Firewall.Allow...), Deny: append([]string{}, r.Firewall.Deny...),
		},
		TLSCipherPolicy: textOr(r.TLSCipherPolicy, defaultTLSCipherPolicy),
	}
	lb.Size = sizeSlug(lb.SizeUnit)
	if r.StickySessions != nil && r.StickySessions.Type != "" {
		lb.StickySessions = *r.StickySessions
	}
	if r.Tags != nil {
		lb.Tags = sortedUnique(*r.Tags)
	}
	if old == nil {
		old = &LoadBalancer{ProjectID: DefaultProject, Type: typeRegional, Network: networkExternal, NetworkStack: stackIPv4, IP: r.IP}
	}
	lb.ID, lb.CreatedAt, lb.IP, lb.IPv6, lb.Region = old.ID, old.CreatedAt, old.IP, old.IPv6, old.Region
	lb.Type = textOr(r.Type, old.Type)
	lb.Network = textOr(r.Network, old.Network)
	lb.NetworkStack = textOr(r.NetworkStack, old.NetworkStack)
	lb.VPCUUID = textOr(r.VPCUUID, old.VPCUUID)
	lb.SubnetUUID = textOr(r.SubnetUUID, old.SubnetUUID)
	lb.ProjectID = textOr(r.ProjectID, old.ProjectID)
	if r.Tags == nil {
		lb.Tags = old.Tags
	}
	return lb
}

// units returns the number of nodes, 1 if neither size_unit nor size was sent.
func (r *balancerRequest) units() int {
	if r.SizeUnit != nil {
		return *r.SizeUnit
	}
	if n, known := sizeUnits(r.Size); known {
		return n
	}
	return 1
}

func (r *healthCheckRequest) desired() HealthCheck {
	if r == nil {
		r = &healthCheckRequest{}
	}
	check := HealthCheck{
		Protocol: textOr(r.Protocol, "http"), Port: intOr(r.Port, defaultCheckPort), Path: r.Path,
		CheckIntervalSeconds:   intOr(r.CheckIntervalSeconds, defaultCheckInterval),
		ResponseTimeoutSeconds: intOr(r.ResponseTimeoutSeconds, defaultCheckTimeout),
		UnhealthyThreshold:     intOr(r.UnhealthyThreshold, defaultUnhealthy),
		HealthyThreshold:       intOr(r.HealthyThreshold, defaultHealthy),
		ProxyProtocol:          r.ProxyProtocol,
	}
	if check.Path == "" && check.Protocol != "tcp" {
		check.Path = "/"
	}
	return check
}

func intOr(value *int, otherwise int) int {
	if value != nil {
		return *value
	}
	return otherwise
}

func textOr(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}
