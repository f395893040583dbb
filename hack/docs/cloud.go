// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// variable is an environment variable of the cloud component.
type variable struct{ name, fallback, meaning string }

// variables are all that the program reads (internal/docloud/app/environment.go, which a test compares with this).
func variables() []variable {
	return []variable{
		{"DO_ACCESS_TOKEN", "", "The DigitalOcean token, read once. It or a file is needed; both together are refused."},
		{"DO_ACCESS_TOKEN_FILE", "", "As `--token-file`: a file with the token, which may be replaced at any time. Mooring's own."},
		{"REGION", "that of the droplet, by its metadata service", "The slug of the region in which load balancers are created. It must exist at DigitalOcean."},
		{"DO_CLUSTER_ID", "", "Load balancers carry the tag `k8s:<ID>`, which distinguishes the clusters of one account; load balancers without it get it."},
		{"DO_CLUSTER_VPC_ID", "the region's default VPC", "The UUID of the VPC of load balancers."},
		{"DEFAULT_LB_TYPE", "`REGIONAL_NETWORK`", "The type of load balancers of Services without the annotation: `REGIONAL` or `REGIONAL_NETWORK`. Any other value means the default."},
		{"DO_LOAD_BALANCER_DEFAULTS", "none", "Defaults for annotations of Services, one `NAME: VALUE` per line as on a Service; the [reference](digitalocean-annotations.md) lists those that can " +
			"have one. Mooring's own."},
		{"DO_LOAD_BALANCER_DEFAULTS_FILE", "", "As `--load-balancer-defaults-file`: a file with the same, read once. Set only one of them. Mooring's own."},
		{"DO_API_RATE_LIMIT_QPS", "no limit", "Maximum number of calls to DigitalOcean per second, a positive number."},
		{"PUBLIC_ACCESS_FIREWALL_NAME", "no firewall is managed", "The name of the firewall that opens what Services serve, and nothing else. It is created if it does not exist."},
		{"PUBLIC_ACCESS_FIREWALL_TAGS", "", "The tags of the droplets that it covers, separated by commas. Set both or neither."},
		{"DO_NODE_LABELS_FROM_TAGS", "no labels", "Labels of Nodes from their droplets' tags, as `TAG=LABEL,TAG=LABEL`: " +
			"`env=example.com/env` makes the label `example.com/env=prod` from the tag `env:prod`. Mooring's own."},
		{"METRICS_ADDR", "nothing listens", "HOST:PORT where all metrics are served over HTTP, without authentication."},
		{"DEBUG_ADDR", "nothing listens", "HOST:PORT where `/healthz` queries DigitalOcean for the token's account, and returns 500 if that fails."},
		{"DO_OVERRIDE_URL", "`https://api.digitalocean.com/`", "The URL of DigitalOcean's API, for simulators."},
		{"DO_METADATA_URL", "`http://169.254.169.254/`", "The URL of the metadata service, for simulators. Mooring's own."},
	}
}

// environment renders the variables.
func environment() string {
	var b strings.Builder
	b.WriteString("## Environment variables\n\nVariables without a note are those of the upstream project, with the same meaning.\n\n")
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, v := range variables() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, cell(v.fallback), cell(v.meaning))
	}
	b.WriteString("\n## Flags\n\nMooring's own flags are `--allow-certificate-domains`, `--allow-load-balancer-take-over`, `--firewall-allow-reserved-ports`, " +
		"`--firewall-reserved-ports`, `--load-balancer-defaults-file`, `--out-of-service-grace-period`, `--out-of-service-taint`, `--require-cluster-tag`, `--token-file` and `--volume-startup-taint`. All others are those of Kubernetes' framework for cloud controller managers.\n\n")
	return b.String()
}

// annotations renders the reference of annotations.
func annotations(table []annotation.Entry) []byte {
	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("# DigitalOcean: annotations of Services\n\n" +
		"Written by `make generate` from the table that the program itself reads (package annotation); do not edit. " +
		"[Examples](../examples/digitalocean/README.md) show their use, and `kubectl mooring plan loadbalancer` prints their effect on a Service.\n\n" +
		"R and N show which types of load balancer use an annotation: `REGIONAL` and `REGIONAL_NETWORK`. An annotation without effect causes a warning. " +
		"An invalid value is refused with an Event that names the allowed values; a value that is *accepted with a warning* is sent unchanged.\n\n" +
		"`" + annotation.FirewallManaged + "` is for the firewall ([PUBLIC_ACCESS_FIREWALL_NAME](digitalocean-cloud-controller-manager.md)).\n\n" +
		"A cluster may have [defaults](../components/digitalocean-cloud-controller-manager.md#defaults-of-a-cluster) for most of them.\n\n")
	b.WriteString("| annotation | values | default | R | N | effect |\n|---|---|---|---|---|---|\n")
	for _, e := range table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", e.Name, cell(e.Values), cell(e.Default), mark(e.Regional), mark(e.RegionalNetwork), cell(effect(e)))
	}
	return b.Bytes()
}

func mark(yes bool) string {
	if yes {
		return "x"
	}
	return ""
}

// effect is an entry's effect, and what else is to be known of it.
func effect(e annotation.Entry) string {
	text := e.Effect
	if e.CreateOnly {
		text += " Used when the load balancer is made, never afterwards."
	}
	if e.Fixed {
		text += " It does not change afterwards; a change is reported by a warning."
	}
	if e.Written {
		text += " The program writes it itself."
	}
	if e.Own {
		text += " Mooring's own: the upstream project does not have it."
	}
	if e.PerService != "" {
		text += " The cluster cannot have a default: " + e.PerService + "."
	}
	if e.Lenient != "" {
		text += " *Accepted with a warning:* " + e.Lenient + "."
	}
	return text
}
