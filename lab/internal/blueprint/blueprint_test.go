// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func options(change func(*blueprint.Options)) blueprint.Options {
	o := blueprint.Options{
		Dir: "/lab", Datastore: blueprint.DatastoreEtcd, NodeCount: 3, ZoneCount: 1, PodsPerNode: 2,
		NodeMonitorGracePeriod: 20 * time.Second, CalicoNodeSyncGrace: 10 * time.Second,
		CalicoNodeSyncProgram: "/bin/calico-node-sync", CalicoNodeSyncManifests: "/config/calico-node-sync",
		CloudProgram: "/bin/digitalocean-cloud-controller-manager", CloudManifests: "/config/digitalocean-cloud-controller-manager",
		BGPTemplates: "/templates", Bird: "/usr/sbin/bird", Bird6: "/usr/sbin/bird6",
	}
	change(&o)
	return o
}

func cases() map[string]blueprint.Options {
	return map[string]blueprint.Options{
		"etcdv3":     options(func(*blueprint.Options) {}),
		"kubernetes": options(func(o *blueprint.Options) { o.Datastore = blueprint.DatastoreKubernetes }),
		"none":       options(func(o *blueprint.Options) { o.Datastore = blueprint.DatastoreNone }),
		"bgp":        options(func(o *blueprint.Options) { o.Network, o.Datastore = blueprint.NetworkBGP, "" }),
		"bgp-etcd":   options(func(o *blueprint.Options) { o.Network, o.Datastore = blueprint.NetworkBGP, blueprint.DatastoreEtcd }),
		"bgp-cloud": options(func(o *blueprint.Options) {
			o.Network, o.Datastore, o.Cloud, o.NodeCount = blueprint.NetworkBGP, blueprint.DatastoreKubernetes, blueprint.CloudDigitalOcean, blueprint.MaxBGPNodes
		}),
		"cloud": options(func(o *blueprint.Options) { o.Cloud, o.NodeCount = blueprint.CloudDigitalOcean, 1000 }),
		"demo": options(func(o *blueprint.Options) {
			o.Cloud, o.With, o.NodeMonitorGracePeriod = blueprint.CloudDigitalOcean, []string{blueprint.CalicoNodeSync}, 8*time.Second
		}),
		"cloud-without-nodes": options(func(o *blueprint.Options) {
			o.Cloud, o.Components, o.Datastore = blueprint.CloudDigitalOcean, []string{blueprint.Etcd, blueprint.APIServer}, blueprint.DatastoreNone
		}),
		"page": options(func(o *blueprint.Options) {
			o.Page, o.PageProgram, o.Cloud = true, "/bin/kubectl-mooring", blueprint.CloudDigitalOcean
		}),
		"page-kubernetes": options(func(o *blueprint.Options) {
			o.Page, o.PageProgram, o.Datastore = true, "/bin/kubectl-mooring", blueprint.DatastoreKubernetes
		}),
		"real-nodes": options(func(o *blueprint.Options) {
			o.RealNodes, o.Bin, o.Cloud, o.ImageArchives = 2, "/bin", blueprint.CloudDigitalOcean, []string{"/images/calico-node-sync.tar"}
			o.Images = []string{"quay.io/coreos/etcd:v3.7.3"}
		}),
		"cloud-as-a-pod": options(func(o *blueprint.Options) {
			o.RealNodes, o.Bin, o.Cloud, o.Datastore = 3, "/bin", blueprint.CloudDigitalOcean, blueprint.DatastoreKubernetes
			o.Without, o.NodeMonitorGracePeriod = []string{blueprint.CloudControllerManager}, 50*time.Second
		}),
		"volumes": options(func(o *blueprint.Options) {
			o.RealNodes, o.Bin, o.Cloud, o.With, o.CSIManifest = 2, "/bin", blueprint.CloudDigitalOcean, []string{blueprint.CSIDriver}, "/dist/digitalocean-csi-driver.yaml"
		}),
		"small": options(func(o *blueprint.Options) {
			o.Components, o.APIServerPort = []string{blueprint.APIServer, blueprint.Etcd}, 6443
		}),
		"another-kube-apiserver": options(func(o *blueprint.Options) {
			o.Components, o.Datastore, o.APIServerProgram = []string{blueprint.APIServer, blueprint.Etcd}, blueprint.DatastoreNone, "/bin/another-kube-apiserver"
		}),
		"etcd-only": options(func(o *blueprint.Options) { o.Components = []string{blueprint.Etcd} }),
	}
}

func design(t *testing.T, o blueprint.Options) blueprint.Blueprint {
	t.Helper()
	resolved := must.Get(blueprint.Resolve(o)).Or(t)
	made := must.Get(blueprint.Make(resolved, blueprint.PlaceholderPorts(resolved))).Or(t)
	return made
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(design(t, o).YAML()).Or(t)
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				must.Do(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want := must.Get(os.ReadFile(path)).Or(t)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run `go test ./internal/blueprint -update` if this is meant:\n%s", diff)
			}
		})
	}
}

// What must hold for every lab, whatever its options.
func TestLaws(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		made := design(t, o)
		if again := design(t, o); !cmp.Equal(made, again) {
			t.Errorf("%s: the same options give another blueprint", name)
		}
		var before []string
		for _, p := range made.Processes {
			for _, dependency := range p.DependsOn {
				if !slices.Contains(before, dependency) {
					t.Errorf("%s: %s depends on %s, which does not start before it", name, p.Name, dependency)
				}
			}
			before = append(before, p.Name)
			for _, word := range slices.Concat(p.Args, p.Env) {
				if o.Enclosed() && p.Name == blueprint.APIServer && word == "--bind-address=0.0.0.0" {
					continue // of a namespace of its own, where pods come to another address
				}
				if strings.Contains(word, "0.0.0.0") || strings.Contains(word, "//:") || strings.Contains(word, "[::]") {
					t.Errorf("%s: %s listens or talks beyond loopback: %s", name, p.Name, word)
				}
				checkPath(t, name, p.Name, word)
			}
			if p.Ready.URL != "" && p.Ready.CAFile == "" {
				t.Errorf("%s: %s could be impersonated: its readiness is not proved by a certificate", name, p.Name)
			}
		}
		for _, certificate := range made.PKI.Certificates {
			if !slices.Contains(made.PKI.Authorities, certificate.Authority) {
				t.Errorf("%s: certificate %s has no authority", name, certificate.Name)
			}
		}
	}
}

// Where there is a cloud, machines wait for the component, which alone may delete Nodes; where there is none, nobody waits for it.
func TestCloud(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		made := design(t, o)
		_, manager := made.Process(blueprint.CloudControllerManager)
		_, simulator := made.Process(blueprint.DigitalOcean)
		wanted, asPod := o.Cloud == blueprint.CloudDigitalOcean, len(o.Without) > 0
		if manager != (wanted && !asPod) || simulator != wanted {
			t.Errorf("%s: manager %t, simulator %t, want %t of both, but for a manager that is a pod: %t", name, manager, simulator, wanted, asPod)
		}
		for _, c := range []struct {
			process, word string
			wanted        bool
		}{
			{blueprint.ControllerManager, "--cloud-provider=external", wanted},
			{blueprint.Nodes, "--cloud=digitalocean", wanted},
			{blueprint.Nodes, "--uninitialized", asPod},
			{blueprint.RealNodes, "--uninitialized", asPod},
			{blueprint.Setup, "--foreign-node-removal", asPod},
			{blueprint.Setup, "--cloud-controller-manager-manifests=/config/digitalocean-cloud-controller-manager", wanted && !asPod},
		} {
			if p, runs := made.Process(c.process); runs && slices.Contains(p.Args, c.word) != c.wanted {
				t.Errorf("%s: %s has %s: %t, want %t", name, c.process, c.word, !c.wanted, c.wanted)
			}
		}
		for _, p := range made.Processes {
			for _, word := range slices.Concat(p.Args, p.Env) {
				if strings.Contains(word, "dop_v1") || strings.HasPrefix(word, "DO_ACCESS_TOKEN=") {
					t.Errorf("%s: the token is in what everybody can see of %s: %s", name, p.Name, word)
				}
			}
		}
	}
}

// Where there is a BGP network, machines and pools know that there are no tunnels; where there is none, nobody speaks of it.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		made := design(t, o)
		network, runs := made.Process(blueprint.BGPNetwork)
		wanted := o.Network == blueprint.NetworkBGP
		if runs != wanted {
			t.Errorf("%s: the network runs: %t, want %t", name, runs, wanted)
		}
		for _, process := range []string{blueprint.Nodes, blueprint.Setup} {
			if p, runs := made.Process(process); runs && slices.Contains(p.Args, "--network=bgp") != wanted {
				t.Errorf("%s: %s is told of the BGP network: %t, want %t", name, process, !wanted, wanted)
			}
		}
		datastore, inEtcd := blueprint.DatastoreKubernetes, o.Datastore == blueprint.DatastoreEtcd
		if inEtcd {
			datastore = o.Datastore
		}
		if wanted && (slices.Contains(network.Args, "--calico-datastore=etcdv3") != inEtcd || slices.Contains(network.DependsOn, blueprint.CalicoEtcd) != inEtcd) {
			t.Errorf("%s: the network is told of etcd: %t, want %t", name, !inEtcd, inEtcd)
		}
		if wanted && (made.Options.Datastore != datastore || network.Ready.File == "" || !slices.Contains(network.DependsOn, blueprint.Nodes)) {
			t.Errorf("%s: datastore %s, %+v", name, made.Options.Datastore, network)
		}
	}
}

// Where machines are real the API server has an address that they reach, with a certificate for it, and kube-proxies have their user.
func TestEnclosed(t *testing.T) {
	t.Parallel()
	for name, o := range cases() {
		made := design(t, o)
		for _, word := range []string{"--bind-address=0.0.0.0", "--advertise-address=172.30.0.1", "--endpoint-reconciler-type=lease"} {
			if p, runs := made.Process(blueprint.APIServer); runs && slices.Contains(p.Args, word) != o.Enclosed() {
				t.Errorf("%s: the API server has %s: %t, want %t", name, word, !o.Enclosed(), o.Enclosed())
			}
		}
		proxies := false
		for _, certificate := range made.PKI.Certificates {
			if certificate.Name == blueprint.APIServer && slices.Contains(certificate.IPs, blueprint.ControlPlaneAddress) != o.Enclosed() {
				t.Errorf("%s: the API server's certificate is for %v", name, certificate.IPs)
			}
			proxies = proxies || certificate.CommonName == blueprint.KubeProxyUser
		}
		if proxies != o.Enclosed() {
			t.Errorf("%s: there is a certificate for kube-proxies: %t", name, proxies)
		}
	}
}

// The addresses that the lab takes for itself are in the ranges that they must be in, and nobody else's.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct{ within, but netip.Prefix }{
		blueprint.ControlPlaneAddress: {machines.Network(), netip.PrefixFrom(machines.Seed(1, 1, 0).Machines[0].Address, 32)},
		blueprint.APIServerService:    {netip.MustParsePrefix(blueprint.ServiceCIDR), netip.MustParsePrefix(blueprint.PodCIDR)},
		blueprint.NamesService:        {netip.MustParsePrefix(blueprint.ServiceCIDR), netip.MustParsePrefix(blueprint.PodCIDR)},
	} {
		if address := netip.MustParseAddr(text); !c.within.Contains(address) || c.but.Contains(address) {
			t.Errorf("%v is not in %v, or in %v", address, c.within, c.but)
		}
	}
}

// checkPath makes sure that every path is below the lab's folder, apart from programs and manifests.
func checkPath(t *testing.T, name, process, word string) {
	t.Helper()
	option, value, _ := strings.Cut(word, "=")
	if process == blueprint.BGPNetwork && slices.Contains([]string{"--templates", "--bird", "--bird6", "PATH"}, option) {
		return // what others have installed, and only read
	}
	if process == blueprint.RealNodes && slices.Contains([]string{"--lab-dir", "--bin", "--image", "--image-archive"}, option) {
		return // the folder itself, and what others have built, and only read
	}
	if process == blueprint.Setup && slices.Contains([]string{"--volumes-manifest", "--volumes-kinds"}, option) {
		return // what others have built, and only read
	}
	if filepath.IsAbs(value) && !strings.HasPrefix(value, "/lab/") && !strings.HasPrefix(value, "/config/") {
		t.Errorf("%s: %s uses a path outside of the lab's folder: %s", name, process, word)
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*blueprint.Options)
		want   string
	}{
		"negative nodes":     {func(o *blueprint.Options) { o.NodeCount = -1 }, "--nodes -1 is negative; use 0 or more"},
		"too many nodes":     {func(o *blueprint.Options) { o.NodeCount = 1e6 }, "use at most"},
		"no zones":           {func(o *blueprint.Options) { o.ZoneCount = 0 }, "use 1 to 26"},
		"negative pods":      {func(o *blueprint.Options) { o.PodsPerNode = -1 }, "use 0 to 100"},
		"no grace":           {func(o *blueprint.Options) { o.NodeMonitorGracePeriod = 0 }, "use 5s or more"},
		"no such port":       {func(o *blueprint.Options) { o.APIServerPort = 70000 }, "use 1 to 65535"},
		"relative folder":    {func(o *blueprint.Options) { o.Dir = "lab" }, "not absolute"},
		"unknown datastore":  {func(o *blueprint.Options) { o.Datastore = "etcdv2" }, "use etcdv3, kubernetes or none"},
		"unknown component":  {func(o *blueprint.Options) { o.Components = []string{"kube-proxy"} }, "use a subset of etcd,"},
		"component twice":    {func(o *blueprint.Options) { o.Components = []string{"etcd", "etcd"} }, "name it once"},
		"API without etcd":   {func(o *blueprint.Options) { o.Components = []string{"kube-apiserver"} }, "add etcd to --components"},
		"nodes without etcd": {func(o *blueprint.Options) { o.Components = []string{"etcd", "kube-apiserver", "nodes"} }, "add calico-etcd to --components or choose"},
		"unneeded etcd": {func(o *blueprint.Options) {
			o.Datastore, o.Components = blueprint.DatastoreNone, []string{"calico-etcd"}
		}, "leave calico-etcd out"},
		"unknown cloud": {func(o *blueprint.Options) { o.Cloud = "aws" }, `--cloud "aws" is unknown; use digitalocean or none`},
		"cloud without program": {func(o *blueprint.Options) { o.Cloud, o.CloudProgram = blueprint.CloudDigitalOcean, "" },
			"build it with `make build`, or use --cloud none"},
		"cloud without manifests": {func(o *blueprint.Options) { o.Cloud, o.CloudManifests = blueprint.CloudDigitalOcean, "" },
			"run the lab from the repository's bin folder"},
		"cloud without API": {func(o *blueprint.Options) {
			o.Cloud, o.Components, o.Datastore = blueprint.CloudDigitalOcean, []string{blueprint.Etcd}, blueprint.DatastoreNone
		}, "digitalocean-cloud-controller-manager cannot run without kube-apiserver"},
		"unknown network": {func(o *blueprint.Options) { o.Network = "vxlan" }, `--network "vxlan" is unknown; use bgp or loopback`},
		"network without Calico": {func(o *blueprint.Options) { o.Network, o.Datastore = blueprint.NetworkBGP, blueprint.DatastoreNone },
			"--network bgp needs a datastore that Calico's confd reads; use --calico-datastore kubernetes or etcdv3, or leave it out"},
		"too many nodes for the network": {func(o *blueprint.Options) { o.Network, o.Datastore, o.NodeCount = blueprint.NetworkBGP, "", 51 },
			"--nodes 51 is more than the BGP network can hold; use at most 50, or --network loopback"},
		"network without pods": {func(o *blueprint.Options) { o.Network, o.Datastore, o.PodsPerNode = blueprint.NetworkBGP, "", 0 },
			"--pods-per-node 0 leaves the BGP network nothing to send packets between; use 1 or more"},
		"network without nodes": {func(o *blueprint.Options) {
			o.Network, o.Datastore, o.Components = blueprint.NetworkBGP, "", []string{blueprint.Etcd, blueprint.APIServer}
		}, "bgp-network cannot run without nodes; add nodes to --components"},
		"network without bird": {func(o *blueprint.Options) { o.Network, o.Datastore, o.Bird = blueprint.NetworkBGP, "", "" },
			"--network bgp needs the paths of confd's templates, of bird and of bird6"},
		"unknown families": {func(o *blueprint.Options) {
			o.Network, o.Datastore, o.IPFamilies = blueprint.NetworkBGP, "", "ipv6,ipv4"
		},
			`--ip-families "ipv6,ipv4" is unknown; use ipv4, ipv6, or ipv4,ipv6 for dual stack`},
		"unknown templates": {func(o *blueprint.Options) {
			o.Network, o.Datastore, o.BIRDTemplates = blueprint.NetworkBGP, "", "own"
		}, `--bird-templates "own" is unknown; use calico, or mooring for those that kubectl mooring bird-templates patches`},
		"templates without BIRD": {func(o *blueprint.Options) { o.BIRDTemplates = blueprint.PatchedTemplates },
			"--bird-templates mooring is for BIRD, and no BIRD runs; add --network bgp"},
		"IPv6 that is only said": {func(o *blueprint.Options) { o.IPFamilies = blueprint.FamilyIPv6 },
			"--ip-families ipv6 is for addresses that packets reach, and there are none; add --network bgp"},
		"more real machines than machines": {func(o *blueprint.Options) { o.RealNodes = 4 }, "use 1 to the number of --nodes, which is 3"},
		"real machines on the BGP network": {func(o *blueprint.Options) { o.RealNodes, o.Network, o.Datastore = 1, blueprint.NetworkBGP, "" },
			"--network bgp and --real-nodes exclude each other"},
		"an archive without real machines": {func(o *blueprint.Options) { o.ImageArchives = []string{"/a.tar"} },
			"--image and --image-archive are for real machines; add --real-nodes"},
		"an image without real machines": {func(o *blueprint.Options) { o.Images = []string{"a:b=/c"} },
			"--image and --image-archive are for real machines; add --real-nodes"},
		"without what does not run": {func(o *blueprint.Options) {
			o.Cloud, o.Without = blueprint.CloudDigitalOcean, []string{blueprint.CalicoNodeSync}
		},
			`--without "calico-node-sync" is unknown; the only choice is digitalocean-cloud-controller-manager`},
		"without a component of no cloud": {func(o *blueprint.Options) { o.Without = []string{blueprint.CloudControllerManager} },
			"is for a lab with a cloud; leave it out, or use --cloud digitalocean"},
		"with and without": {func(o *blueprint.Options) {
			o.With, o.Without = []string{blueprint.CalicoNodeSync}, []string{blueprint.CalicoNodeSync}
		},
			"--with and --without both name calico-node-sync"},
		"unknown companion": {func(o *blueprint.Options) { o.With = []string{"x"} }, "the choices are calico-node-sync and digitalocean-csi-driver"},
		"volumes on simulated machines": {func(o *blueprint.Options) {
			o.With, o.Cloud = []string{blueprint.CSIDriver}, blueprint.CloudDigitalOcean
		}, "add --real-nodes 2"},
		"volumes without a cloud": {func(o *blueprint.Options) {
			o.With, o.RealNodes, o.Bin, o.CSIManifest = []string{blueprint.CSIDriver}, 1, "/bin", "/dist/x.yaml"
		}, "use --cloud digitalocean"},
		"volumes without a manifest": {func(o *blueprint.Options) {
			o.With, o.RealNodes, o.Bin, o.Cloud = []string{blueprint.CSIDriver}, 1, "/bin", blueprint.CloudDigitalOcean
		}, "needs the path of its manifest"},
		"companion without Calico": {func(o *blueprint.Options) {
			o.Datastore, o.With = blueprint.DatastoreNone, []string{blueprint.CalicoNodeSync}
		}, "use --calico-datastore etcdv3 or kubernetes"},
		"companion without API": {func(o *blueprint.Options) {
			o.Components, o.With = []string{"etcd", "calico-etcd"}, []string{blueprint.CalicoNodeSync}
		}, "cannot run without kube-apiserver"},
	} {
		_, err := blueprint.Resolve(options(c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is more than one sentence: %v", name, err)
		}
	}
}

// TestFamiliesOfTheNetwork sees what the processes are told: pools and machines of each family that is asked for.
func TestFamiliesOfTheNetwork(t *testing.T) {
	t.Parallel()
	for families, want := range map[string]struct{ pools, nodes string }{
		"": {"--pod-cidr=10.244.0.0/16", ""}, blueprint.FamilyIPv4: {"--pod-cidr=10.244.0.0/16", ""},
		blueprint.FamilyIPv6:   {"--pod-cidr=fd00:10:244::/64", "--ip-families=ipv6"},
		blueprint.BothFamilies: {"--pod-cidr=10.244.0.0/16,fd00:10:244::/64", "--ip-families=ipv4,ipv6"},
	} {
		description := design(t, options(func(o *blueprint.Options) { o.Network, o.Datastore, o.IPFamilies = blueprint.NetworkBGP, "", families }))
		for _, p := range description.Processes {
			text := strings.Join(p.Args, " ") + " "
			switch {
			case p.Name == blueprint.Setup && !strings.Contains(text, want.pools+" "):
				t.Errorf("%q: setup is told %s, want %s", families, text, want.pools)
			case p.Name == blueprint.Nodes && want.nodes == "" && strings.Contains(text, "--ip-families"),
				p.Name == blueprint.Nodes && !strings.Contains(text, want.nodes):
				t.Errorf("%q: nodes are told %s, want %q", families, text, want.nodes)
			}
		}
	}
}

func TestMakeRefusesToGuessPorts(t *testing.T) {
	t.Parallel()
	resolved := must.Get(blueprint.Resolve(options(func(*blueprint.Options) {}))).Or(t)
	if _, err := blueprint.Make(resolved, blueprint.Ports{}); err == nil {
		t.Error("a lab without ports was described")
	}
}
