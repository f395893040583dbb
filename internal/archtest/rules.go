// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import "slices"

// pureOutside is what a package that decides may import from outside this repository: values, text, time as a type, and Kubernetes' and
// Calico's types. What is missing is the point: no os, net, net/http, context, sync, logger, metric, client, or unseeded chance.
// That time.Now is not called is the linter's to see (forbidigo).
func pureOutside() []string {
	return []string{
		"bytes", "cmp", "encoding", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "encoding/pem", "errors", "fmt",
		"hash", "hash/fnv", "crypto", "crypto/ecdsa", "crypto/ed25519", "crypto/elliptic", "crypto/sha256", "crypto/x509", "crypto/x509/pkix",
		"io", "iter", "maps", "math", "math/big", "math/bits", "net/netip", "net/url", "path", "regexp", "slices", "sort", "strconv",
		"strings", "text/tabwriter", "time", "unicode", "unicode/utf8",
		"k8s.io/api/...", "k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/api/meta", "k8s.io/apimachinery/pkg/apis/...",
		"k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/runtime/schema", "k8s.io/apimachinery/pkg/types",
		"k8s.io/apimachinery/pkg/util/intstr", "k8s.io/apimachinery/pkg/util/sets", "k8s.io/apimachinery/pkg/util/validation/...", "k8s.io/apimachinery/pkg/util/version",
		"github.com/projectcalico/api/pkg/apis/...", "github.com/projectcalico/api/pkg/lib/numorstring",
		"google.golang.org/protobuf/encoding/protowire",
	}
}

// apiOutside is what API types may import: anyone who imports our types should get apimachinery with them and nothing more.
func apiOutside() []string {
	return []string{"fmt", "time", "strings", "k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/apiextensions-apiserver/pkg/apis/..."}
}

// A component, as the layout sees it.
type component struct {
	name string
	// pure, acting and apps are the patterns of its three layers.
	pure, acting, apps []string
	// adapters names the rooms outside the component that its acting layer may use.
	adapters []string
}

func components() []component {
	return []component{
		{
			name:     "nodesync",
			pure:     []string{"internal/nodesync", "internal/nodesync/doctor", "internal/nodesync/ipamcheck"},
			acting:   []string{"internal/nodesync/controller/...", "internal/nodesync/commands"},
			apps:     []string{"internal/nodesync/app/..."},
			adapters: []string{"calico"},
		},
		{
			name: "routereflector",
			pure: []string{
				"internal/routereflector", "internal/routereflector/reachability", "internal/routereflector/evidence",
				"internal/routereflector/birdtemplates", "internal/routereflector/clusterroutes", "internal/routereflector/doctor",
				"internal/routereflector/predecessor", "internal/routereflector/preview",
				"internal/routereflector/health", "internal/routereflector/rank", "internal/routereflector/design",
				"internal/routereflector/choose", "internal/routereflector/model", "internal/routereflector/refuse",
				"internal/routereflector/next", "internal/routereflector/gate", "internal/routereflector/planner",
			},
			acting:   []string{"internal/routereflector/controller/...", "internal/routereflector/files/...", "internal/routereflector/plancmd"},
			apps:     []string{"internal/routereflector/app/..."},
			adapters: []string{"calico"},
		},
		{
			name: "docloud",
			pure: []string{
				"internal/docloud/annotation", "internal/docloud/providerid", "internal/docloud/instance",
				"internal/docloud/loadbalancer", "internal/docloud/firewall", "internal/docloud/budget",
				"internal/docloud/admission", "internal/docloud/admission/policy", "internal/docloud/volume", "internal/docloud/outofservice",
				"internal/docloud/estate",
			},
			acting: []string{
				"internal/docloud/doapi/...", "internal/docloud/cached", "internal/docloud/machines", "internal/docloud/balancers",
				"internal/docloud/provider/...", "internal/docloud/firewalls/...", "internal/docloud/clustertag/...", "internal/docloud/shutdowns", "internal/docloud/startuptaint", "internal/docloud/leftovers",
				"internal/docloud/defaults", "internal/docloud/csi", "internal/docloud/blockdevice",
			},
			apps: []string{"internal/docloud/app/...", "internal/docloud/admissionapp/...", "internal/docloud/csiapp/..."},
		},
		{
			name: "etcdstorage",
			pure: []string{
				"internal/etcdstorage/pki", "internal/etcdstorage/quota", "internal/etcdstorage/operator",
				"internal/etcdstorage/tenancy", "internal/etcdstorage/tenancy/wire", "internal/etcdstorage/predecessor",
			},
			acting: []string{
				"internal/etcdstorage/controller/...", "internal/etcdstorage/core/...", "internal/etcdstorage/proxy/...", "internal/etcdstorage/transfer/...",
			},
			apps: []string{"internal/etcdstorage/operatorapp/...", "internal/etcdstorage/proxyapp/..."},
		},
	}
}

// PlannerParts are the packages that the plan of route reflectors is made in, in the order in which they make it. Each
// takes the results of those before it and knows nothing of those after it.
func PlannerParts() []string {
	return []string{"health", "rank", "design", "choose", "model", "refuse", "next", "gate", "planner"}
}

// Pure reports whether the package in a folder of this repository decides by values alone: it imports none of what starts goroutines, waits
// or shares state.
func Pure(folder string) bool {
	room, ok := roomOf(Rooms(), folder)
	return ok && slices.Equal(room.Outside, pureOutside())
}

// pluginCommands are the packages below internal/plugin that are commands. None imports another.
func pluginCommands() []string {
	return []string{
		"agreement", "birdtemplates", "confirm", "doctor", "estate", "etcd", "explain", "migrate", "node", "plan", "report", "status", "topology", "ui", "version", "volumes",
	}
}

// Rooms returns the directions of the whole repository.
func Rooms() []Room {
	tests := []string{"testkit", "sim"}
	rooms := []Room{{
		Name: "api", Packages: []string{"api/..."}, Outside: apiOutside(), TestsMayImport: tests,
		Reason: "API types are imported by other people's programs, so they bring apimachinery and nothing else",
	}}
	var pure, acting, apps []string
	for _, c := range components() {
		rooms = append(rooms, c.rooms(tests)...)
		pure, acting, apps = append(pure, c.name), append(acting, c.name+" acting"), append(apps, c.name+" app")
	}
	adapters := []string{"calico"}
	everything := slices.Concat([]string{"api", "assumed", "rights", "prose", "finding", "people", "explain", "doctor", "platform"}, pure, adapters, acting)
	rooms = slices.Concat(rooms, pluginRooms(everything, tests), tables(tests))
	return append(rooms,
		Room{
			Name: "calico", Packages: []string{"internal/calico/..."},
			MayImport: []string{"api", "assumed", "platform", "nodesync", "routereflector"}, TestsMayImport: tests,
			Reason: "an adapter speaks the words of the components that use it and knows nothing of who runs them",
		},
		Room{
			Name: "prose", Packages: []string{"internal/platform/prose"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "pure packages write text for people, so that what they write it with is pure as well",
		},
		Room{
			Name: "finding", Packages: []string{"internal/platform/finding"}, MayImport: []string{"prose"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what doctors say is decided in pure packages, so that what they say it with is pure as well",
		},
		Room{
			Name: "people", Packages: []string{"internal/agreement", "internal/tenants", "internal/topology", "internal/ui", "internal/volumes"},
			MayImport: []string{"api", "assumed", "finding", "prose", "docloud"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what people are shown of several components is decided and drawn from values, so that it can be tested without a cluster",
		},
		Room{
			Name: "explain", Packages: []string{"internal/explain", "internal/waiting"}, MayImport: []string{"api", "people", "finding", "prose", "nodesync", "routereflector", "docloud"},
			Outside: pureOutside(), TestsMayImport: tests,
			Reason: "why an object is as it is follows from what the planners say, and they say it to nobody but a function of values",
		},
		Room{
			Name: "doctor", Packages: []string{"internal/doctor"}, MayImport: []string{"api", "finding", "prose", "rights"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what is wrong between programs is judged from values, so that each judgment can be tested without a cluster",
		},
		Room{
			Name: "platform", Packages: []string{"internal/platform/..."}, MayImport: []string{"api", "finding", "prose"}, TestsMayImport: tests,
			Reason: "shared plumbing that knew a component would tie all components together",
		},
		Room{
			Name: "cmd", Packages: []string{"cmd/..."}, MayImport: slices.Concat(apps, []string{"plugin", "platform"}), TestsMayImport: tests,
			Reason: "main is a page: it parses nothing, decides nothing and wires nothing, the app does",
		},
		Room{
			Name: "sim", Packages: []string{"internal/sim/..."}, MayImport: []string{"api", "assumed"}, TestsMayImport: []string{"testkit"},
			Reason: "a simulator that shares code with what it tests agrees with its bugs; only tests and the lab may import it",
		},
		Room{
			Name: "testkit", Packages: []string{"internal/testkit/..."},
			MayImport: slices.Concat([]string{"sim"}, everything), TestsMayImport: tests,
			Reason: "only tests import the kit, so it may build the values of every component but starts none",
		},
		Room{
			Name: "archtest", Packages: []string{"internal/archtest"},
			Reason: "it reads the code from outside",
		},
		Room{
			Name: "test", Packages: []string{"test/...", "config/..."}, MayImport: slices.Concat(everything, apps, tests),
			TestsMayImport: []string{"plugin"},
			Reason:         "scenarios see everything but the lab, which they only run",
		},
		Room{
			Name: "hack", Packages: []string{"hack/..."}, MayImport: slices.Concat(apps, pure, []string{"assumed", "rights", "plugin", "archtest", "testkit"}),
			Reason: "scripts read files, run tools and tests, and ask commands for their flags and pure packages for their tables",
		},
		Room{
			Name: "lab", Packages: []string{"lab/..."}, MayImport: slices.Concat([]string{"sim"}, everything, apps), TestsMayImport: []string{"testkit"},
			Reason: "the lab sees every component, and nothing imports the lab",
		},
	)
}

// tables returns the rooms of tables of values, which several components share.
func tables(tests []string) []Room {
	return []Room{
		{
			Name: "assumed", Packages: []string{"internal/assumed"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what is assumed of other systems is a table of values; product and simulators take it from there, and a test compares it with the outside",
		},
		{
			Name: "rights", Packages: []string{"internal/rights"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what programs may do is a table of values; the programs, their manifests and the doctor take it from there, without one program's code in another",
		},
	}
}

// pluginRooms returns a room for each command of the plugin, and for what they share.
func pluginRooms(everything, tests []string) []Room {
	var commands []string
	var rooms []Room
	for _, name := range pluginCommands() {
		room := "command " + name
		commands = append(commands, room)
		rooms = append(rooms, Room{
			Name: room, Packages: []string{"internal/plugin/" + name}, MayImport: append([]string{"observe", "page"}, everything...), TestsMayImport: tests,
			Reason: "a command reads by observe, judges by pure packages and prints by platform/screen: it knows no other command, and starts no component",
		})
	}
	return append(rooms,
		Room{
			Name: "observe", Packages: []string{"internal/plugin/observe/...", "internal/plugin/annotate"}, MayImport: everything, TestsMayImport: tests,
			Reason: "the plugin reads every component; what reads does not know which command shows it",
		},
		Room{
			Name: "page", Packages: []string{"internal/plugin/page"}, MayImport: []string{"people", "finding", "platform"}, TestsMayImport: tests,
			Reason: "it serves what a function reads, and does not know who reads",
		},
		Room{
			Name: "plugin", Packages: []string{"internal/plugin"}, MayImport: append([]string{"observe", "platform"}, commands...), TestsMayImport: append(everything, tests...),
			Reason: "it wires the commands: one list of them, and nothing else",
		},
	)
}

// rooms returns the three layers of one component. No layer names another component, so components cannot import each other.
func (c component) rooms(tests []string) []Room {
	return []Room{
		{
			Name: c.name, Packages: c.pure, MayImport: []string{"api", "assumed", "rights", "finding", "prose", "doctor"}, Outside: pureOutside(), TestsMayImport: tests,
			Reason: "what decides is a function of values: no clock, client, context, logger, metric or chance, and nothing of other components; a component's doctor has the judges of all",
		},
		{
			Name: c.name + " acting", Packages: c.acting,
			MayImport: slices.Concat([]string{"api", "assumed", "rights", "finding", "prose", "doctor", "platform", c.name}, c.adapters), TestsMayImport: tests,
			Reason: "it observes and applies for its own component through adapters, and does not know how it is started",
		},
		{
			Name: c.name + " app", Packages: c.apps,
			MayImport: slices.Concat([]string{"api", "assumed", "rights", "finding", "prose", "doctor", "platform", c.name, c.name + " acting"}, c.adapters), TestsMayImport: tests,
			Reason: "it wires its own component and no other",
		},
	}
}

// Bans returns what binaries must never link.
func Bans() []Ban {
	return []Ban{
		{
			Binaries: []string{"cmd/..."},
			Packages: []string{"k8s.io/kubernetes/...", "go.etcd.io/etcd/server/...", "lab/..."},
			Reason:   "servers belong to the lab; in a product they are weight and CVEs, and need replaces that break go install",
		},
		{
			Binaries: []string{"cmd/..."},
			Packages: []string{
				"internal/sim/...", "internal/testkit/...", "internal/archtest", "pgregory.net/rapid/...", "go.uber.org/goleak/...",
				"net/http/httptest", "testing",
			},
			Reason: "what pretends or tests never ships",
		},
		{
			Binaries: []string{"cmd/etcd-storage-proxy"},
			Packages: []string{"k8s.io/...", "sigs.k8s.io/..."},
			Reason:   "the proxy never talks to the Kubernetes API, so that a stolen proxy holds nothing of it; of its libraries it needs none",
		},
		{
			Binaries: []string{"cmd/etcd-storage-proxy"},
			Packages: []string{"go.etcd.io/etcd/client/...", "go.uber.org/zap/..."},
			Reason:   "a client library that tries again, balances and logs by itself has no place between a tenant and the core",
		},
		{
			Binaries: []string{"cmd/calico-node-sync", "cmd/calico-route-reflector-operator", "cmd/etcd-storage-operator", "cmd/etcd-storage-proxy"},
			Packages: []string{"github.com/digitalocean/godo/...", "internal/docloud/..."},
			Reason:   "the cloud's token stays with the cloud's code",
		},
		{
			Binaries: []string{"cmd/digitalocean-cloud-controller-manager", "cmd/digitalocean-cloud-controller-manager-admission-server", "cmd/digitalocean-csi-driver"},
			Packages: []string{"github.com/projectcalico/...", "internal/calico/...", "internal/nodesync/...", "internal/routereflector/..."},
			Reason:   "a drop-in cloud controller manager knows nothing of the network's datastore",
		},
		{
			Binaries: []string{"cmd/etcd-storage-operator", "cmd/etcd-storage-proxy", "cmd/kubectl-mooring"},
			Packages: []string{"internal/platform/publicroots", "golang.org/x/crypto/x509roots/..."},
			Reason:   "their servers' authorities are named to them, or the machine has a store; a list to keep up to date is for images that meet public servers",
		},
	}
}
