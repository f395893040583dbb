// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

// The types of this file are what DigitalOcean's API sends. Names and order of fields are those of its OpenAPI description;
// what the description lacks is marked and listed in the package openapi.

// Region is a place and what it offers.
type Region struct {
	Name      string   `json:"name"`
	Slug      string   `json:"slug"`
	Features  []string `json:"features"`
	Available bool     `json:"available"`
	Sizes     []string `json:"sizes"`
}

// Size is a kind of droplet.
type Size struct {
	Slug         string   `json:"slug"`
	Memory       int      `json:"memory"`
	VCPUs        int      `json:"vcpus"`
	Disk         int      `json:"disk"`
	Transfer     float64  `json:"transfer"`
	PriceMonthly float64  `json:"price_monthly"`
	PriceHourly  float64  `json:"price_hourly"`
	Regions      []string `json:"regions"`
	Available    bool     `json:"available"`
	Description  string   `json:"description"`
	GPUInfo      *GPUInfo `json:"gpu_info,omitempty"`
}

// GPUInfo describes the GPUs of a size.
type GPUInfo struct {
	Count int    `json:"count"`
	Model string `json:"model"`
}

// Image is what a droplet was made from.
type Image struct {
	ID            int      `json:"id"`
	Name          string   `json:"name"`
	Type          string   `json:"type"`
	Distribution  string   `json:"distribution"`
	Slug          string   `json:"slug"`
	Public        bool     `json:"public"`
	Regions       []string `json:"regions"`
	CreatedAt     string   `json:"created_at"`
	MinDiskSize   int      `json:"min_disk_size"`
	SizeGigabytes float64  `json:"size_gigabytes"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	Status        string   `json:"status"`
	ErrorMessage  string   `json:"error_message"`
}

// Networks are a droplet's addresses.
type Networks struct {
	V4 []NetworkV4 `json:"v4"`
	V6 []NetworkV6 `json:"v6"`
}

// NetworkV4 is one IPv4 address; Type is public or private.
type NetworkV4 struct {
	IPAddress string `json:"ip_address"`
	Netmask   string `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

// NetworkV6 is one IPv6 address; Type is public.
type NetworkV6 struct {
	IPAddress string `json:"ip_address"`
	Netmask   int    `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

// Droplet is a machine. Status is new, active, off or archive.
type Droplet struct {
	ID               int       `json:"id"`
	Name             string    `json:"name"`
	Memory           int       `json:"memory"`
	VCPUs            int       `json:"vcpus"`
	Disk             int       `json:"disk"`
	Locked           bool      `json:"locked"`
	Status           string    `json:"status"`
	Kernel           *struct{} `json:"kernel"`
	CreatedAt        string    `json:"created_at"`
	Features         []string  `json:"features"`
	BackupIDs        []int     `json:"backup_ids"`
	NextBackupWindow *struct{} `json:"next_backup_window"`
	SnapshotIDs      []int     `json:"snapshot_ids"`
	Image            *Image    `json:"image,omitempty"`      // absent without image:read
	VolumeIDs        *[]string `json:"volume_ids,omitempty"` // absent without block_storage:read
	Size             *Size     `json:"size"`
	SizeSlug         string    `json:"size_slug"`
	Networks         Networks  `json:"networks"`
	Region           *Region   `json:"region"`
	Tags             *[]string `json:"tags,omitempty"`     // absent without tag:read
	VPCUUID          string    `json:"vpc_uuid,omitempty"` // absent without vpc:read
}

// Action is a change of a droplet or a volume that somebody asked for. Status is in-progress, completed or errored.
type Action struct {
	ID           int     `json:"id"`
	Status       string  `json:"status"`
	Type         string  `json:"type"`
	StartedAt    string  `json:"started_at"`
	CompletedAt  *string `json:"completed_at"` // null while it is in progress
	ResourceID   *int    `json:"resource_id"`  // null for a volume, whose ID is text
	ResourceType string  `json:"resource_type"`
	Region       *Region `json:"region"`
	RegionSlug   string  `json:"region_slug"`
}

// Volume is a disk of block storage. DropletIDs has at most one entry.
type Volume struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Region          *Region  `json:"region"`
	SizeGigabytes   int      `json:"size_gigabytes"`
	Description     string   `json:"description"`
	DropletIDs      []int    `json:"droplet_ids"`
	CreatedAt       string   `json:"created_at"`
	Tags            []string `json:"tags,omitzero"` // absent without tag:read
	FilesystemType  string   `json:"filesystem_type"`
	FilesystemLabel string   `json:"filesystem_label"`
}

// Snapshot is a copy of a volume. A volume made of it has at least MinDiskSize gigabytes.
type Snapshot struct {
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	CreatedAt     string   `json:"created_at"`
	Regions       []string `json:"regions"`
	MinDiskSize   int      `json:"min_disk_size"`
	SizeGigabytes float64  `json:"size_gigabytes"`
	ResourceID    string   `json:"resource_id"`
	ResourceType  string   `json:"resource_type"`
	Tags          []string `json:"tags,omitzero"` // absent without tag:read
}

// LoadBalancer is a load balancer as the API shows it. Status is new, active or errored.
type LoadBalancer struct {
	ID                           string           `json:"id,omitempty"` // absent in answers to validate_only
	Name                         string           `json:"name"`
	ProjectID                    string           `json:"project_id"`
	IP                           string           `json:"ip"`
	IPv6                         string           `json:"ipv6,omitempty"`
	SizeUnit                     int              `json:"size_unit"`
	Size                         string           `json:"size,omitempty"`
	Algorithm                    string           `json:"algorithm"`
	Status                       string           `json:"status"`
	CreatedAt                    string           `json:"created_at,omitempty"` // absent in answers to validate_only
	ForwardingRules              []ForwardingRule `json:"forwarding_rules"`
	HealthCheck                  HealthCheck      `json:"health_check"`
	StickySessions               StickySessions   `json:"sticky_sessions"`
	Region                       *Region          `json:"region"`
	Tag                          string           `json:"tag"`
	Tags                         []string         `json:"tags,omitempty"` // not in the description
	DropletIDs                   []int            `json:"droplet_ids"`
	RedirectHTTPToHTTPS          bool             `json:"redirect_http_to_https"`
	EnableProxyProtocol          bool             `json:"enable_proxy_protocol"`
	EnableBackendKeepalive       bool             `json:"enable_backend_keepalive"`
	HTTPIdleTimeoutSeconds       int              `json:"http_idle_timeout_seconds"`
	VPCUUID                      string           `json:"vpc_uuid"`
	SubnetUUID                   string           `json:"subnet_uuid,omitempty"` // not in the description
	DisableLetsEncryptDNSRecords bool             `json:"disable_lets_encrypt_dns_records"`
	Firewall                     LBFirewall       `json:"firewall"`
	Network                      string           `json:"network"`
	NetworkStack                 string           `json:"network_stack"`
	Type                         string           `json:"type"`
	TLSCipherPolicy              string           `json:"tls_cipher_policy"`
}

// ForwardingRule is one port of a load balancer.
type ForwardingRule struct {
	EntryProtocol  string `json:"entry_protocol"`
	EntryPort      int    `json:"entry_port"`
	TargetProtocol string `json:"target_protocol"`
	TargetPort     int    `json:"target_port"`
	CertificateID  string `json:"certificate_id"`
	TLSPassthrough bool   `json:"tls_passthrough"`
}

// HealthCheck is how a load balancer finds out which droplets answer.
type HealthCheck struct {
	Protocol               string `json:"protocol"`
	Port                   int    `json:"port"`
	Path                   string `json:"path"`
	CheckIntervalSeconds   int    `json:"check_interval_seconds"`
	ResponseTimeoutSeconds int    `json:"response_timeout_seconds"`
	UnhealthyThreshold     int    `json:"unhealthy_threshold"`
	HealthyThreshold       int    `json:"healthy_threshold"`
	ProxyProtocol          *bool  `json:"proxy_protocol,omitempty"` // not in the description
}

// StickySessions ties clients to droplets. Type is none or cookies.
type StickySessions struct {
	Type             string `json:"type"`
	CookieName       string `json:"cookie_name,omitempty"`
	CookieTTLSeconds int    `json:"cookie_ttl_seconds,omitempty"`
}

// LBFirewall says who may reach a load balancer, as "ip:1.2.3.4" or "cidr:1.2.0.0/16".
type LBFirewall struct {
	Deny  []string `json:"deny"`
	Allow []string `json:"allow"`
}

// Certificate is a TLS certificate. Type is custom or lets_encrypt, State pending, verified or error.
type Certificate struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	NotAfter        string   `json:"not_after,omitempty"`
	SHA1Fingerprint string   `json:"sha1_fingerprint,omitempty"`
	CreatedAt       string   `json:"created_at"`
	DNSNames        []string `json:"dns_names"`
	State           string   `json:"state"`
	Type            string   `json:"type"`
}

// Firewall is a cloud firewall. Status is waiting, succeeded or failed.
type Firewall struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Status         string          `json:"status"`
	InboundRules   []InboundRule   `json:"inbound_rules"`
	OutboundRules  []OutboundRule  `json:"outbound_rules"`
	CreatedAt      string          `json:"created_at"`
	DropletIDs     *[]int          `json:"droplet_ids,omitempty"` // absent without droplet:read
	Tags           *[]string       `json:"tags,omitempty"`        // absent without tag:read
	PendingChanges []PendingChange `json:"pending_changes"`
}

// InboundRule lets sources in.
type InboundRule struct {
	Protocol string `json:"protocol"`
	Ports    string `json:"ports"`
	Sources  Peers  `json:"sources"`
}

// OutboundRule lets droplets out.
type OutboundRule struct {
	Protocol     string `json:"protocol"`
	Ports        string `json:"ports"`
	Destinations Peers  `json:"destinations"`
}

// Peers are the far ends of a firewall rule.
type Peers struct {
	Addresses        []string `json:"addresses,omitempty"`
	DropletIDs       []int    `json:"droplet_ids,omitempty"`
	LoadBalancerUIDs []string `json:"load_balancer_uids,omitempty"`
	KubernetesIDs    []string `json:"kubernetes_ids,omitempty"`
	Tags             []string `json:"tags,omitempty"`
}

// PendingChange is a droplet to which a firewall is not applied yet.
type PendingChange struct {
	DropletID int    `json:"droplet_id"`
	Removing  bool   `json:"removing"`
	Status    string `json:"status"`
}

// Tag is a tag and what carries it.
type Tag struct {
	Name      string       `json:"name"`
	Resources TagResources `json:"resources"`
}

// TagResources counts what carries a tag.
type TagResources struct {
	Count           int       `json:"count"`
	LastTaggedURI   string    `json:"last_tagged_uri,omitempty"`
	Droplets        *TagCount `json:"droplets,omitempty"` // absent without droplet:read
	Images          TagCount  `json:"images"`
	Volumes         TagCount  `json:"volumes"`
	VolumeSnapshots TagCount  `json:"volume_snapshots"`
	Databases       TagCount  `json:"databases"`
}

// TagCount counts what carries a tag, of one kind.
type TagCount struct {
	Count         int    `json:"count"`
	LastTaggedURI string `json:"last_tagged_uri,omitempty"`
}

// VPC is a private network of one region.
type VPC struct {
	ID          string `json:"id"`
	URN         string `json:"urn"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Region      string `json:"region"`
	IPRange     string `json:"ip_range"`
	Default     bool   `json:"default"`
	CreatedAt   string `json:"created_at"`
}

// AccountInfo is what GET /v2/account shows. Status is active, warning or locked.
type AccountInfo struct {
	DropletLimit    *int     `json:"droplet_limit,omitempty"`     // absent without droplet:read
	FloatingIPLimit *int     `json:"floating_ip_limit,omitempty"` // absent without reserved_ip:read
	Email           string   `json:"email"`
	Name            string   `json:"name"`
	UUID            string   `json:"uuid"`
	EmailVerified   bool     `json:"email_verified"`
	Status          string   `json:"status"`
	StatusMessage   string   `json:"status_message"`
	Team            TeamInfo `json:"team"`
}

// TeamInfo is the team of an account.
type TeamInfo struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
}
