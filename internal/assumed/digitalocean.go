// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import "time"

// Block storage of DigitalOcean.
const (
	// VolumesPerDroplet is how many volumes one droplet can have attached. The API refuses one more with 422; the driver does not refuse it itself.
	VolumesPerDroplet = 15
	// VolumeSizeStated is the largest size of a volume that the description states, in GiB. Only the API refuses a larger one.
	VolumeSizeStated = 16384
	// VolumeSizeLeast is the smallest size of a volume, in GiB.
	VolumeSizeLeast = 1
	// VolumeNameLength bounds a volume's name, in characters, which VolumeNamePattern matches.
	VolumeNameLength  = 64
	VolumeNamePattern = `^[a-z][a-z0-9-]*$`
	// SnapshotInterval is the least time between two snapshots of one volume: an earlier one is refused with 429 and the words of RefusedTooSoon.
	SnapshotInterval = 10 * time.Minute
)

// Actions of volumes: their types and states.
const (
	ActionAttach     = "attach"
	ActionDetach     = "detach"
	ActionResize     = "resize"
	ActionInProgress = "in-progress"
	ActionCompleted  = "completed"
	ActionErrored    = "errored"
)

// ActionsOfAVolume is what the list of a volume's actions shows: the driver knows by it whether a volume was attached before.
const ActionsOfAVolume = "all actions"

// VolumeActions are the actions of a volume.
func VolumeActions() []string { return []string{ActionAttach, ActionDetach, ActionResize} }

// ActionStates are the states of an action.
func ActionStates() []string { return []string{ActionInProgress, ActionCompleted, ActionErrored} }

// Prices in US cents a month. Those of droplets are read (GET /v2/sizes); what is not here has no price.
const (
	// PriceBalancerNode is that of each node of a regional load balancer (TypeRegional).
	PriceBalancerNode = 1200
	// PriceVolumeGiB is that of each GiB of a volume, PriceSnapshotGiB of each GiB of the billed size of its snapshot.
	PriceVolumeGiB   = 10
	PriceSnapshotGiB = 6
)

// Calls and lists.
const (
	// RequestsPerHour and RequestsPerMinute are the API's rate limits for one token.
	RequestsPerHour   = 5000
	RequestsPerMinute = 250
	// PageSize is the largest page of a list, PageSizeDefault the one without per_page.
	PageSize        = 200
	PageSizeDefault = 20
)

// Tags.
const (
	// TagLength bounds a tag, in characters, which TagPattern matches.
	TagLength  = 255
	TagPattern = `^[a-zA-Z0-9_\-\:]+$`
)

// Parts of the messages with which the API refuses a request. Statuses alone do not tell these refusals apart.
const (
	// RefusedPending is in the refusal (422) of an action while the volume or its droplet has another one.
	RefusedPending = "pending event"
	// RefusedTooSoon is in the refusal (429) of a second snapshot within SnapshotInterval.
	RefusedTooSoon = "one request per"
	// RefusedBusy is in the refusal (403) of a change while a load balancer processes an earlier one.
	RefusedBusy = "processes previous actions"
	// RefusedLimit is in the refusal (403 or 422) of one more object than the account can have.
	RefusedLimit = "limit"
	// RefusedAttachMore is in the refusal (422) of one more volume than the droplet can have.
	RefusedAttachMore = "cannot attach more"
	// RefusedSize is in the refusal (422) of a size that the API does not offer.
	RefusedSize = "invalid size"
)

// Load balancers: types, networks, protocols and sizes.
const (
	TypeRegional        = "REGIONAL"
	TypeRegionalNetwork = "REGIONAL_NETWORK"
	TypeGlobal          = "GLOBAL"

	NetworkExternal = "EXTERNAL"
	NetworkInternal = "INTERNAL"

	StackIPv4 = "IPV4"
	StackDual = "DUALSTACK"

	ProtocolTCP   = "tcp"
	ProtocolUDP   = "udp"
	ProtocolICMP  = "icmp"
	ProtocolHTTP  = "http"
	ProtocolHTTPS = "https"
	ProtocolHTTP2 = "http2"
	ProtocolHTTP3 = "http3"

	AlgorithmRoundRobin       = "round_robin"
	AlgorithmLeastConnections = "least_connections"

	StickyNone    = "none"
	StickyCookies = "cookies"

	SizeSmall  = "lb-small"
	SizeMedium = "lb-medium"
	SizeLarge  = "lb-large"

	CipherDefault = "DEFAULT"
	CipherStrong  = "STRONG"
)

// LoadBalancerTypes are the types of a load balancer.
func LoadBalancerTypes() []string {
	return []string{TypeRegional, TypeRegionalNetwork, TypeGlobal}
}

// LoadBalancerNetworks are the networks that a load balancer can serve.
func LoadBalancerNetworks() []string { return []string{NetworkExternal, NetworkInternal} }

// LoadBalancerStacks are the address families of a load balancer.
func LoadBalancerStacks() []string { return []string{StackIPv4, StackDual} }

// LoadBalancerAlgorithms are the algorithms, which the API ignores by now.
func LoadBalancerAlgorithms() []string {
	return []string{AlgorithmRoundRobin, AlgorithmLeastConnections}
}

// LoadBalancerSizes are the old names of sizes.
func LoadBalancerSizes() []string { return []string{SizeSmall, SizeMedium, SizeLarge} }

// EntryProtocols are the protocols between a client and a load balancer.
func EntryProtocols() []string {
	return []string{ProtocolHTTP, ProtocolHTTPS, ProtocolHTTP2, ProtocolHTTP3, ProtocolTCP, ProtocolUDP}
}

// TargetProtocols are the protocols between a load balancer and a droplet.
func TargetProtocols() []string {
	return []string{ProtocolHTTP, ProtocolHTTPS, ProtocolHTTP2, ProtocolTCP, ProtocolUDP}
}

// HealthProtocols are the protocols of health checks.
func HealthProtocols() []string { return []string{ProtocolHTTP, ProtocolHTTPS, ProtocolTCP} }

// StickyTypes are the types of sticky sessions.
func StickyTypes() []string { return []string{StickyNone, StickyCookies} }

// CipherPolicies are the policies for TLS ciphers.
func CipherPolicies() []string { return []string{CipherDefault, CipherStrong} }

// FirewallProtocols are the protocols of firewall rules.
func FirewallProtocols() []string { return []string{ProtocolTCP, ProtocolUDP, ProtocolICMP} }

// Load balancers: numbers.
const (
	// SizeUnitMost is the largest number of nodes of a load balancer.
	SizeUnitMost = 100
	// IdleTimeoutLeast and IdleTimeoutMost bound the idle timeout of HTTP, in seconds; IdleTimeoutDefault is the API's.
	IdleTimeoutLeast   = 30
	IdleTimeoutMost    = 600
	IdleTimeoutDefault = 60
	// The API's defaults of health checks, in seconds or in checks, and the port.
	CheckIntervalDefault  = 10
	CheckTimeoutDefault   = 5
	CheckUnhealthyDefault = 5
	CheckHealthyDefault   = 3
	CheckPortDefault      = 80
	// ResizeInterval is the least time between two changes of a load balancer's size, and between its creation and the first.
	ResizeInterval = time.Hour
	// ReservedPortFirst to ReservedPortLast are entry ports that a network load balancer cannot have.
	ReservedPortFirst = 50053
	ReservedPortLast  = 50055
)

// FirewallNamePattern matches the name of a firewall.
const FirewallNamePattern = `^[a-zA-Z0-9][a-zA-Z0-9\.-]+$`

// Fields that the API requires of requests that Mooring sends.

// RequiredOfVolume are those of a new volume.
func RequiredOfVolume() []string { return []string{"name", "size_gigabytes", "region"} }

// RequiredOfForwardingRule are those of each rule of a load balancer.
func RequiredOfForwardingRule() []string {
	return []string{"entry_protocol", "entry_port", "target_protocol", "target_port"}
}

// RequiredOfSnapshot are those of a snapshot of a volume.
func RequiredOfSnapshot() []string { return []string{"name"} }
