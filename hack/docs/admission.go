// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// admissionVariables are all that the admission server reads (internal/docloud/admissionapp/options.go, which a test compares with this).
func admissionVariables() []variable {
	return []variable{
		{"DO_ACCESS_TOKEN", "", "The DigitalOcean token, read once. Without it and without a file, DigitalOcean is not queried; both together are refused."},
		{"DO_ACCESS_TOKEN_FILE", "", "As `--token-file`: a file with the token, which may be replaced at any time. Mooring's own."},
		{"REGION", "that of the droplet, by its metadata service", "The slug of the region in which load balancers are made. Until it is known, DigitalOcean is not queried about new ones."},
		{"DO_CLUSTER_ID", "", "As for the cloud controller manager: the tag of load balancers."},
		{"DO_CLUSTER_VPC_ID", "the region's default VPC", "As for the cloud controller manager: the VPC of load balancers."},
		{"DEFAULT_LB_TYPE", "`REGIONAL_NETWORK`", "Must have the same value as for the cloud controller manager: the type of load balancers of Services without the annotation."},
		{"DO_LOAD_BALANCER_DEFAULTS", "none", "Must have the same value as for the cloud controller manager: defaults for annotations of Services."},
		{"DO_LOAD_BALANCER_DEFAULTS_FILE", "", "As `--load-balancer-defaults-file`: a file with the same, read once. Set only one of them."},
		{"DO_API_RATE_LIMIT_QPS", "no limit", "Maximum number of calls to DigitalOcean per second, a positive number."},
		{"METRICS_ADDR", "", "As `--metrics-bind-address`, which wins."},
		{"DO_OVERRIDE_URL", "`https://api.digitalocean.com/`", "The URL of DigitalOcean's API, for simulators."},
		{"DO_METADATA_URL", "`http://169.254.169.254/`", "The URL of the metadata service, for simulators. Mooring's own."},
	}
}

// admissionEnvironment renders the variables.
func admissionEnvironment() string {
	var b strings.Builder
	b.WriteString("## Environment variables\n\n| variable | default | meaning |\n|---|---|---|\n")
	for _, v := range admissionVariables() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, cell(v.fallback), cell(v.meaning))
	}
	b.WriteString("\n## Flags\n\nThe upstream project has only `-v`; the address and the certificate folder of its webhook are fixed. One dash works as well as two.\n\n")
	return b.String()
}
