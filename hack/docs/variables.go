// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/mooring-dev/mooring/internal/routereflector/predecessor"
)

// variableGroup are variables that one package reads.
type variableGroup struct {
	// folder is the package, by which a test compares them with what it reads.
	folder, title, about string
	all                  []variable
}

// variableGroups are all variables but those of the cloud programs, which are on the pages of these.
func variableGroups() []variableGroup {
	old := variableGroup{
		folder: "internal/routereflector/predecessor", title: "calico-route-reflector-operator: variables of the upstream project",
		about: "Read once in the life of a cluster, to create a topology from them ([migration](../migration/calico-route-reflector-operator.md)). " +
			"The defaults are those of the upstream project.",
	}
	becomes := map[string]string{
		predecessor.ClusterID: "Becomes `spec.clusterID`.", predecessor.Min: "Lower limit of `spec.redundancy`, or of `spec.sizing`.",
		predecessor.Max: "Upper limit of the same field.", predecessor.Ratio: "Reflectors per node, from which the same field is computed.",
		predecessor.NodeLabel: "Becomes `spec.adopt.nodes`: the label that identifies old reflectors.", predecessor.ZoneLabel: "Becomes `spec.topologyKeys`.",
		predecessor.IncompatibleLabels: "Becomes `spec.reflectors.required`: labels that a reflector must not have.",
		predecessor.TopologyName:       "`simple` or `multi`: both become a flat topology.", predecessor.WaitTimeout: "Ignored: sessions are checked instead.",
	}
	for _, v := range predecessor.Variables() {
		fallback := ""
		if v.Default != "" {
			fallback = "`" + v.Default + "`"
		}
		old.all = append(old.all, variable{v.Name, fallback, becomes[v.Name]})
	}
	return []variableGroup{
		{
			folder: "internal/calico", title: "Where Calico's datastore is",
			about: "Used by calico-node-sync, calico-route-reflector-operator, and kubectl-mooring where it reads Calico. The names are those of calico-node " +
				"and calicoctl. Each may begin with `CALICO_`, as in `CALICO_ETCD_ENDPOINTS`; if both are set they must be equal.",
			all: []variable{
				{"DATASTORE_TYPE", "", "As `--datastore-type`: `etcdv3` or `kubernetes`."},
				{"ETCD_ENDPOINTS", "", "URLs of Calico's etcd, separated by commas. They mean `etcdv3`."},
				{"ETCD_CA_CERT_FILE", "", "The file with the CA of that etcd."},
				{"ETCD_CERT_FILE", "", "The file with the client certificate for that etcd."},
				{"ETCD_KEY_FILE", "", "The file with the key of that certificate."},
				{"ETCD_USERNAME", "", "The user of that etcd."},
				{"ETCD_PASSWORD", "", "The user's password."},
				{"ETCD_AUTHORITY", "", "Not read, as by Calico since version 3: the refusal without `ETCD_ENDPOINTS` says so."},
				{"ETCD_DISCOVERY_SRV", "", "Refused: list the endpoints."},
			},
		},
		old,
		{
			folder: "internal/etcdstorage/proxyapp", title: "etcd-storage-proxy",
			about: "Read by the Go runtime. If neither is set, the proxy chooses values that fit its memory.",
			all: []variable{
				{"GOGC", "", "Growth of the heap before a garbage collection, in percent of live memory."},
				{"GOMEMLIMIT", "", "Soft memory limit of the Go runtime, such as `200MiB`."},
			},
		},
		{
			folder: "internal/plugin/observe", title: "kubectl-mooring",
			about: "Beside `KUBECONFIG`, which is kubectl's. The other programs do not read that.",
			all: []variable{
				{"DO_ACCESS_TOKEN", "", "The DigitalOcean token for commands that read droplets. Without it droplets are not read."},
				{"DO_ACCESS_TOKEN_FILE", "", "A file with the same."},
				{"DO_OVERRIDE_URL", "", "The URL of DigitalOcean's API, for simulators."},
			},
		},
		{
			folder: "internal/platform/screen", title: "On a terminal",
			about: "Used by kubectl-mooring, and by commands that it shares with the other programs.",
			all: []variable{
				{"NO_COLOR", "", "Anything: no colors."},
				{"TERM", "", "`dumb`: no colors."},
			},
		},
		{
			folder: "internal/platform/manager", title: "In a Pod",
			about: "Set by the kubelet. They are the address of the API server, unless a flag names it.",
			all: []variable{
				{"KUBERNETES_SERVICE_HOST", "", "Its address."},
				{"KUBERNETES_SERVICE_PORT", "", "Its port."},
			},
		},
	}
}

// variablesPage renders them.
func variablesPage(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "# Environment variables\n\nWritten by `make generate`, and compared with what the code reads; do not edit.\n\n" +
		"Variables of the cloud programs are listed with their flags: [digitalocean-cloud-controller-manager](digitalocean-cloud-controller-manager.md), " +
		"[its admission server](digitalocean-cloud-controller-manager-admission-server.md). The other programs are configured by flags and by the variables below.\n")
	for _, g := range variableGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| variable | default | meaning |\n|---|---|---|\n", g.title, wrap(g.about, ""))
		for _, v := range g.all {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, cmp.Or(cell(v.fallback), "none"), cell(v.meaning))
		}
	}
	return b.Bytes(), nil
}
