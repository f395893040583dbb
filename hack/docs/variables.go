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
		folder: "internal/routereflector/predecessor", title: "calico-route-reflector-operator: its predecessor's",
		about: "Read once in the life of a cluster, to make a topology of them ([migration](../migration/calico-route-reflector-operator.md)). " +
			"The defaults are the predecessor's.",
	}
	becomes := map[string]string{
		predecessor.ClusterID: "Becomes `spec.clusterID`.", predecessor.Min: "Bounds `spec.redundancy`, or `spec.sizing`.",
		predecessor.Max: "Bounds the same from above.", predecessor.Ratio: "Reflectors for each node, of which the same is counted.",
		predecessor.NodeLabel: "Becomes `spec.adopt.nodes`: by which label old reflectors are known.", predecessor.ZoneLabel: "Becomes `spec.topologyKeys`.",
		predecessor.IncompatibleLabels: "Becomes `spec.reflectors.required`: labels that a reflector must not have.",
		predecessor.TopologyName:       "`simple` or `multi`: both become a flat topology.", predecessor.WaitTimeout: "Means nothing: sessions are looked at.",
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
			about: "Of calico-node-sync, calico-route-reflector-operator, and kubectl-mooring where it reads Calico: the names that calico-node and calicoctl read. " +
				"Each may begin with `CALICO_`, as in `CALICO_ETCD_ENDPOINTS`; both must not contradict each other.",
			all: []variable{
				{"DATASTORE_TYPE", "", "As `--datastore-type`: `etcdv3` or `kubernetes`."},
				{"ETCD_ENDPOINTS", "", "URLs of Calico's etcd, separated by commas. They mean `etcdv3`."},
				{"ETCD_CA_CERT_FILE", "", "The file with the CA of that etcd."},
				{"ETCD_CERT_FILE", "", "The file with the certificate that is shown to it."},
				{"ETCD_KEY_FILE", "", "The file with the key of that certificate."},
				{"ETCD_USERNAME", "", "The user of that etcd."},
				{"ETCD_PASSWORD", "", "The user's password."},
				{"ETCD_DISCOVERY_SRV", "", "Refused: list the endpoints."},
			},
		},
		old,
		{
			folder: "internal/etcdstorage/proxyapp", title: "etcd-storage-proxy",
			about: "Go's own. Where neither is set, the proxy chooses what fits its memory.",
			all: []variable{
				{"GOGC", "", "How much garbage Go lets grow, in percent of what lives."},
				{"GOMEMLIMIT", "", "The memory from which on Go collects garbage more often, such as `200MiB`."},
			},
		},
		{
			folder: "internal/plugin", title: "kubectl-mooring",
			about: "Beside `KUBECONFIG`, which is kubectl's. The other programs do not read that.",
			all: []variable{
				{"DO_ACCESS_TOKEN", "", "The DigitalOcean token of commands that look at droplets. Without it they do without."},
				{"DO_ACCESS_TOKEN_FILE", "", "A file with the same."},
				{"DO_OVERRIDE_URL", "", "The URL of DigitalOcean's API, for simulators."},
			},
		},
		{
			folder: "internal/platform/screen", title: "On a terminal",
			about: "Of kubectl-mooring, and of commands that it shares with the other programs.",
			all: []variable{
				{"NO_COLOR", "", "Anything: no colors."},
				{"TERM", "", "`dumb`: no colors."},
			},
		},
		{
			folder: "internal/platform/manager", title: "In a Pod",
			about: "Set by the kubelet. They are where the API server is, unless a flag says so.",
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
		"Those of the cloud programs are beside their flags: [digitalocean-cloud-controller-manager](digitalocean-cloud-controller-manager.md), " +
		"[its admission server](digitalocean-cloud-controller-manager-admission-server.md). The others are configured by flags, and by what is listed here.\n")
	for _, g := range variableGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| variable | default | meaning |\n|---|---|---|\n", g.title, wrap(g.about, ""))
		for _, v := range g.all {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, cmp.Or(cell(v.fallback), "none"), cell(v.meaning))
		}
	}
	return b.Bytes(), nil
}
