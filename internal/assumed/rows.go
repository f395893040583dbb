// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

const (
	createVolume   = "POST /v2/volumes"
	actOnVolume    = "POST /v2/volumes/{volume_id}/actions"
	listActions    = "GET /v2/volumes/{volume_id}/actions"
	createBalancer = "POST /v2/load_balancers"
	listBalancers  = "GET /v2/load_balancers"
	createFirewall = "POST /v2/firewalls"
)

func storageRows() []Assumption {
	return []Assumption{
		said("VolumesPerDroplet", "volumes attached to one droplet, at most", VolumesPerDroplet, actOnVolume, "", "up to {} volumes may be attached to a Droplet"),
		stated("VolumeSizeStated", "largest size of a volume in GiB that is stated; the API decides", VolumeSizeStated, actOnVolume, "request:size_gigabytes", "maximum"),
		from(digitalOcean, "VolumeSizeLeast", "smallest size of a volume in GiB", VolumeSizeLeast,
			"csi-digitalocean 4.18, driver/controller.go: minimumVolumeSizeInBytes; sizes are whole GiB (OpenAPI: size_gigabytes is an integer)", "TestSizesAreRoundedUp"),
		said("VolumeNameLength", "characters of a volume's name, at most", VolumeNameLength, createVolume, "request:name", "up to a limit of {} characters"),
		from(digitalOcean, "VolumeNamePattern", "names of volumes", VolumeNamePattern,
			description+", POST /v2/volumes, name: “Must be lowercase and be composed only of numbers, letters and \"-\" … The name must begin with a letter.”", "TestTheDescriptionSpellsIt"),
		from(digitalOcean, "SnapshotInterval", "time between two snapshots of a volume, at least", SnapshotInterval,
			"issue velero-io/velero#6164: 429 “one request per 10m0s”", "TestOneSnapshotInTenMinutes"),
		from(digitalOcean, "ActionAttach", "action of a volume", ActionAttach, "VolumeActions", StatementTest),
		from(digitalOcean, "ActionDetach", "action of a volume", ActionDetach, "VolumeActions", StatementTest),
		from(digitalOcean, "ActionResize", "action of a volume", ActionResize, "VolumeActions", StatementTest),
		from(digitalOcean, "ActionInProgress", "state of an action", ActionInProgress, "ActionStates", StatementTest),
		from(digitalOcean, "ActionCompleted", "state of an action", ActionCompleted, "ActionStates", StatementTest),
		from(digitalOcean, "ActionErrored", "state of an action", ActionErrored, "ActionStates", StatementTest),
		stated("VolumeActions", "actions of a volume", VolumeActions(), actOnVolume, "request:type", "enum"),
		from(digitalOcean, "ActionsOfAVolume", "what the list of a volume's actions shows", ActionsOfAVolume,
			description+", GET /v2/volumes/{volume_id}/actions: “all actions that have been executed on a volume”", "TestTheDescriptionSpellsIt"),
		stated("ActionStates", "states of an action", ActionStates(), listActions, "response:actions.status", "enum"),
		stated("RequiredOfVolume", "fields that a new volume needs", RequiredOfVolume(), createVolume, "request:", "required"),
		stated("RequiredOfSnapshot", "fields that a snapshot needs", RequiredOfSnapshot(), "POST /v2/volumes/{volume_id}/snapshots", "request:", "required"),
	}
}

func priceRows() []Assumption {
	const test = "TestPrices"
	return []Assumption{
		from(digitalOcean, "PriceBalancerNode", "US cents a month for a node of a regional load balancer", PriceBalancerNode,
			"second hand: project-planton.org/docs/catalog/digitalocean/digitaloceanloadbalancer ($12 a month; "+
				"DigitalOcean's own page was not at hand, and a copy of before July 2022 says $10)", test),
		from(digitalOcean, "PriceVolumeGiB", "US cents a month for a GiB of a volume", PriceVolumeGiB,
			"docs.digitalocean.com/products/volumes/details/pricing, second hand: “$0.10 per GiB per month”", test),
		from(digitalOcean, "PriceSnapshotGiB", "US cents a month for a GiB of a volume's snapshot", PriceSnapshotGiB,
			"docs.digitalocean.com/products/images/snapshots/details/pricing: “$0.06 GiB per month for volumes”", test),
	}
}

func callRows() []Assumption {
	return []Assumption{
		said("RequestsPerHour", "calls with one token in an hour", RequestsPerHour, listBalancers, "header:ratelimit-limit", "{} requests per hour"),
		said("RequestsPerMinute", "calls with one token in a minute", RequestsPerMinute, listBalancers, "header:ratelimit-limit", "{} requests per minute"),
		stated("PageSize", "items on a page of a list, at most", PageSize, "GET /v2/volumes", "query:per_page", "maximum"),
		stated("PageSizeDefault", "items on a page of a list without per_page", PageSizeDefault, "GET /v2/volumes", "query:per_page", "default"),
		stated("TagLength", "characters of a tag, at most", TagLength, "POST /v2/tags", "request:name", "maxLength"),
		stated("TagPattern", "tags", TagPattern, "POST /v2/tags", "request:name", "pattern"),
	}
}

func refusalRows() []Assumption {
	return []Assumption{
		from(digitalOcean, "RefusedPending", "words of a refusal (422)", RefusedPending, "csi-digitalocean issue 67: “Droplet already has a pending event”", "TestRefusalsHaveTheirCodes"),
		from(digitalOcean, "RefusedTooSoon", "words of a refusal (429)", RefusedTooSoon, "issue velero-io/velero#6164: “one request per 10m0s”", "TestRefusalsHaveTheirCodes"),
		from(digitalOcean, "RefusedBusy", "words of a refusal (403)", RefusedBusy,
			"issue digitalocean/openapi#1173: “Load Balancer can't be updated while it processes previous actions”", "TestErrors"),
		from(digitalOcean, "RefusedLimit", "words of a refusal (403, 422)", RefusedLimit, "csi-digitalocean, driver/controller.go: “volume/snapshot capacity limit exceeded”", "TestRefusalsHaveTheirCodes"),
		from(digitalOcean, "RefusedAttachMore", "words of a refusal (422)", RefusedAttachMore,
			"csi-digitalocean, driver/controller.go: “cannot attach more than … volumes to a single Droplet”, “cannot attach more volumes to the Droplet”", "TestRefusalsHaveTheirCodes"),
		from(digitalOcean, "RefusedSize", "words of a refusal (422)", RefusedSize, "csi-digitalocean 4.18, driver/controller.go: “invalid size” becomes OutOfRange", "TestRefusalsHaveTheirCodes"),
	}
}

// balancerRows are of words. Those that stand in a list have the list's source.
func balancerRows() []Assumption {
	rows := []Assumption{
		stated("LoadBalancerTypes", "types of load balancers", LoadBalancerTypes(), createBalancer, "request:type", "enum"),
		stated("LoadBalancerNetworks", "networks of load balancers", LoadBalancerNetworks(), createBalancer, "request:network", "enum"),
		stated("LoadBalancerStacks", "address families of load balancers", LoadBalancerStacks(), createBalancer, "request:network_stack", "enum"),
		stated("LoadBalancerAlgorithms", "algorithms of load balancers", LoadBalancerAlgorithms(), createBalancer, "request:algorithm", "enum"),
		stated("LoadBalancerSizes", "old names of sizes", LoadBalancerSizes(), createBalancer, "request:size", "enum"),
		stated("EntryProtocols", "protocols to a load balancer", EntryProtocols(), createBalancer, "request:forwarding_rules.entry_protocol", "enum"),
		stated("TargetProtocols", "protocols from a load balancer", TargetProtocols(), createBalancer, "request:forwarding_rules.target_protocol", "enum"),
		stated("HealthProtocols", "protocols of health checks", HealthProtocols(), createBalancer, "request:health_check.protocol", "enum"),
		stated("StickyTypes", "types of sticky sessions", StickyTypes(), createBalancer, "request:sticky_sessions.type", "enum"),
		stated("CipherPolicies", "policies for TLS ciphers", CipherPolicies(), createBalancer, "request:tls_cipher_policy", "enum"),
		stated("FirewallProtocols", "protocols of firewall rules", FirewallProtocols(), createFirewall, "request:inbound_rules.protocol", "enum"),
		stated("RequiredOfForwardingRule", "fields that a forwarding rule needs", RequiredOfForwardingRule(), createBalancer, "request:forwarding_rules", "required"),
	}
	for _, word := range []struct{ name, value, list string }{
		{"TypeRegional", TypeRegional, "LoadBalancerTypes"}, {"TypeRegionalNetwork", TypeRegionalNetwork, "LoadBalancerTypes"},
		{"TypeGlobal", TypeGlobal, "LoadBalancerTypes"}, {"NetworkExternal", NetworkExternal, "LoadBalancerNetworks"},
		{"NetworkInternal", NetworkInternal, "LoadBalancerNetworks"}, {"StackIPv4", StackIPv4, "LoadBalancerStacks"}, {"StackDual", StackDual, "LoadBalancerStacks"},
		{"ProtocolTCP", ProtocolTCP, "EntryProtocols"}, {"ProtocolUDP", ProtocolUDP, "EntryProtocols"}, {"ProtocolICMP", ProtocolICMP, "FirewallProtocols"},
		{"ProtocolHTTP", ProtocolHTTP, "EntryProtocols"}, {"ProtocolHTTPS", ProtocolHTTPS, "EntryProtocols"}, {"ProtocolHTTP2", ProtocolHTTP2, "EntryProtocols"},
		{"ProtocolHTTP3", ProtocolHTTP3, "EntryProtocols"}, {"AlgorithmRoundRobin", AlgorithmRoundRobin, "LoadBalancerAlgorithms"},
		{"AlgorithmLeastConnections", AlgorithmLeastConnections, "LoadBalancerAlgorithms"}, {"StickyNone", StickyNone, "StickyTypes"},
		{"StickyCookies", StickyCookies, "StickyTypes"}, {"SizeSmall", SizeSmall, "LoadBalancerSizes"}, {"SizeMedium", SizeMedium, "LoadBalancerSizes"},
		{"SizeLarge", SizeLarge, "LoadBalancerSizes"}, {"CipherDefault", CipherDefault, "CipherPolicies"}, {"CipherStrong", CipherStrong, "CipherPolicies"},
	} {
		rows = append(rows, from(digitalOcean, word.name, "word of the API", word.value, word.list, StatementTest))
	}
	return rows
}

func numberRows() []Assumption {
	return []Assumption{
		stated("SizeUnitMost", "nodes of a load balancer, at most", SizeUnitMost, createBalancer, "request:size_unit", "maximum"),
		stated("IdleTimeoutLeast", "idle timeout of HTTP in seconds, at least", IdleTimeoutLeast, createBalancer, "request:http_idle_timeout_seconds", "minimum"),
		stated("IdleTimeoutMost", "idle timeout of HTTP in seconds, at most", IdleTimeoutMost, createBalancer, "request:http_idle_timeout_seconds", "maximum"),
		stated("IdleTimeoutDefault", "idle timeout of HTTP in seconds by default", IdleTimeoutDefault, createBalancer, "request:http_idle_timeout_seconds", "default"),
		stated("CheckIntervalDefault", "seconds between health checks by default", CheckIntervalDefault, createBalancer, "request:health_check.check_interval_seconds", "default"),
		stated("CheckTimeoutDefault", "seconds that a health check takes at most, by default", CheckTimeoutDefault, createBalancer, "request:health_check.response_timeout_seconds", "default"),
		stated("CheckUnhealthyDefault", "failed checks until a droplet is unhealthy, by default", CheckUnhealthyDefault, createBalancer, "request:health_check.unhealthy_threshold", "default"),
		stated("CheckHealthyDefault", "checks until a droplet is healthy, by default", CheckHealthyDefault, createBalancer, "request:health_check.healthy_threshold", "default"),
		stated("CheckPortDefault", "port of health checks by default", CheckPortDefault, createBalancer, "request:health_check.port", "default"),
		from(digitalOcean, "ResizeInterval", "time between two changes of a load balancer's size, at least", ResizeInterval,
			description+", POST /v2/load_balancers, size: “up to once per hour. You cannot resize a load balancer within the first hour of its creation.”", "TestTheDescriptionSpellsIt"),
		from(digitalOcean, "ReservedPortFirst", "first reserved entry port", ReservedPortFirst, "docs.digitalocean.com, load balancers, limits: ports 50053 to 50055", "TestReservedPorts"),
		from(digitalOcean, "ReservedPortLast", "last reserved entry port", ReservedPortLast, "docs.digitalocean.com, load balancers, limits: ports 50053 to 50055", "TestReservedPorts"),
		stated("FirewallNamePattern", "names of firewalls", FirewallNamePattern, createFirewall, "request:name", "pattern"),
	}
}

func otherRows() []Assumption {
	const model = "libcalico-go, lib/backend/model"
	return []Assumption{
		from(disk, "DiskVendor", "vendor of disks that are volumes", DiskVendor, "the link /dev/disk/by-id/scsi-0DO_Volume_…, which udev's scsi_id makes of vendor, model and name", "TestAStaleLinkIsNotFollowed"),
		from(disk, "DiskLink", "beginning of a volume's link", DiskLink, "docs.digitalocean.com, volumes, mount: /dev/disk/by-id/scsi-0DO_Volume_…", "TestAStaleLinkIsNotFollowed"),
		from(csi, "CSITextLength", "bytes of a text, at most", CSITextLength, "CSI specification, “Size Limits”: 128 bytes for strings", "TestSanityWithoutRoot"),
		from(calico, "CalicoResources", "keys of resources in etcd", CalicoResources, model, "TestKeysAreCalicos"),
		from(calico, "CalicoAffinities", "keys of block affinities in etcd", CalicoAffinities, model, "TestKeysAreCalicos"),
		from(calico, "CalicoBlocks", "keys of address blocks in etcd", CalicoBlocks, model, "TestKeysAreCalicos"),
		from(calico, "CalicoHandles", "keys of address handles in etcd", CalicoHandles, model, "TestKeysAreCalicos"),
		from(calico, "CalicoReports", "keys of Felix' reports in etcd", CalicoReports, model, "TestKeysAreCalicos"),
		from(calico, "CalicoASNumber", "AS number of nodes by default", CalicoASNumber, "Calico's reference, BGPConfiguration, asNumber: “64512”", "TestWhatTheTemplatesOfferAgainstSilence"),
		from(bird, "HoldTime", "time that a session with a silent neighbor lasts", HoldTime,
			"BIRD's documentation, BGP, hold time: “default: 240 seconds”; Calico's templates set none", "TestWhatTheTemplatesOfferAgainstSilence"),
		from(bird, "BGPPort", "TCP port of BGP", BGPPort, "RFC 4271, section 3", "TestWhatTheTemplatesOfferAgainstSilence"),
	}
}

// unknownRows are those with variants: the source says why the value is not known.
func unknownRows() []Assumption {
	unknown := func(system, name, meaning string, variants any, source, test string) Assumption {
		row := from(system, name, meaning, variants, source, test)
		row.Unknown = true
		return row
	}
	return []Assumption{
		unknown(disk, "DiskSerialBytes", "bytes of a volume's name in VPD page 0x80 (unit serial number)", DiskSerialBytes(),
			"QEMU, hw/scsi/scsi-disk.c: the page is cut after 36 bytes; DigitalOcean documents only the link in /dev/disk/by-id",
			"TestEveryIdentityOfADisk"),
		unknown(disk, "DiskDesignatorBytes", "bytes of a volume's name in VPD page 0x83 (device identification)",
			DiskDesignatorBytes(), "udev's scsi_id makes the link of this page; whether the kernel shows it in /sys is not documented",
			"TestEveryIdentityOfADisk"),
		unknown(digitalOcean, "ListLags", "how far a list lags behind a GET by ID", ListLags(),
			"no document states whether or how far; a driver that believes a list reports attachments that did not happen", "TestListsThatLag"),
		unknown(digitalOcean, "NewerActions", "newer actions of other resources in the account's list of actions",
			NewerActions(), description+", GET /v2/actions: the list is of the whole account, with at most 200 on a page",
			"TestForeignActionsHideOurs"),
		unknown(digitalOcean, "AttachTypes", "type of the action of an attachment in responses", AttachTypes(),
			description+", GET /v2/volumes/{volume_id}/actions, type: “this could be \"attach_volume\"”; requests have attach",
			"TestHistoryOfAVolume"),
		unknown(digitalOcean, "TagsLeftOut", "responses leave out the tags of volumes and snapshots", TagsLeftOut(),
			description+", GET /v2/volumes/{volume_id}, tags: “Requires `tag:read` scope”, which a token may have or not",
			"TestTagsThatResponsesLeaveOut"),
	}
}
