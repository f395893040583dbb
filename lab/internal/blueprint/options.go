// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of processes. They are also names of log files and arguments of `lab logs` and `lab kill`; users and tests rely on them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	CalicoEtcd        = "calico-etcd"
	Nodes             = "nodes"
	// Setup runs once, after the API server is ready and before nodes: custom resources, rights, Calico's first objects.
	Setup = "setup"
	// CalicoNodeSync is the product's component; it runs only when asked for.
	CalicoNodeSync = "calico-node-sync"
	// DigitalOcean is the simulator of that cloud, and CloudControllerManager the product's component that talks to it. They run with a cloud.
	DigitalOcean           = "digitalocean"
	CloudControllerManager = "digitalocean-cloud-controller-manager"
	// BGPNetwork is the network between the machines; it runs when asked for.
	BGPNetwork = "bgp-network"
	// Page is the page of kubectl mooring ui; it runs when asked for, and on a terminal.
	Page = "page"
)

// Values of Options.Cloud.
const (
	CloudDigitalOcean = "digitalocean"
	CloudNone         = "none"
)

// Values of Options.Network.
const (
	NetworkLoopback = "loopback"
	NetworkBGP      = "bgp"
)

// Values of Options.IPFamilies.
const (
	FamilyIPv4   = "ipv4"
	FamilyIPv6   = "ipv6"
	BothFamilies = "ipv4,ipv6"
)

// Values of Options.BIRDTemplates.
const (
	TemplatesOfCalico = "calico"
	PatchedTemplates  = "mooring"
)

// Values of Options.Datastore.
const (
	DatastoreEtcd       = "etcdv3"
	DatastoreKubernetes = "kubernetes"
	DatastoreNone       = "none"
)

// MaxNodes is how many nodes a lab takes: each has an address of its own in one /16.
const MaxNodes = 5000

// MaxBGPNodes is how many machines the BGP network takes: each is three processes and, in a mesh, a session with each other.
const MaxBGPNodes = 50

// Options are what a user asks for.
type Options struct {
	// Dir is the folder of the lab, absolute.
	Dir string `json:"dir"`
	// Datastore is where Calico keeps its data: etcdv3 (an etcd of its own), kubernetes (custom resources) or none (no Calico at all).
	Datastore string `json:"calicoDatastore"`
	// Components is the subset of Components() to run; empty means all that the other options need.
	Components []string `json:"components,omitempty"`
	// Cloud is what the machines stand on: digitalocean (each is a droplet of the simulator, and the product's cloud controller manager runs)
	// or none.
	Cloud string `json:"cloud"`
	// Network is what packets between pods travel on: loopback (none do; addresses are only said) or bgp (a network namespace for each machine,
	// with routes that Debian's bird and Calico's confd make). The latter needs Datastore kubernetes, which is implied if that is empty.
	Network string `json:"network"`
	// IPFamilies are the families in which the machines and pods of a BGP network have addresses: ipv4 (also if empty), ipv6 or ipv4,ipv6.
	IPFamilies string `json:"ipFamilies,omitempty"`
	// RealNodes is how many of the first machines are real, with a kubelet and a containerd each. All of the lab runs in a network namespace of
	// its own then. Bin is the absolute path of the folder with their programs. Images, each NAME=PATH, are made of static programs of this
	// machine, and ImageArchives are those of `make images`; all of them are absolute, and all real machines have them from the start.
	RealNodes     int      `json:"realNodes,omitempty"`
	Bin           string   `json:"-"`
	Images        []string `json:"-"`
	ImageArchives []string `json:"-"`
	// With are further processes to run: CalicoNodeSync. Without are processes not to run, so that their work can be done by pods:
	// CloudControllerManager.
	With    []string `json:"with,omitempty"`
	Without []string `json:"without,omitempty"`
	// NodeCount and ZoneCount describe the machines at the first start: node-1 … node-N, spread over zone-a, zone-b, ….
	NodeCount int `json:"nodes"`
	ZoneCount int `json:"zones"`
	// PodsPerNode is how many pods are bound to each simulated node; they only seem to run.
	PodsPerNode int `json:"podsPerNode"`
	// NodeMonitorGracePeriod is how long kube-controller-manager waits for a silent node before it marks it NotReady.
	NodeMonitorGracePeriod time.Duration `json:"-"`
	// APIServerPort is the port of kube-apiserver; 0 means any free one.
	APIServerPort int `json:"apiServerPort,omitempty"`
	// APIServerProgram is the absolute path of a kube-apiserver, of another version for instance; empty means the lab's own.
	APIServerProgram string `json:"-"`
	// CalicoNodeSyncProgram is the path of that binary and CalicoNodeSyncManifests the folder with its rights, both absolute.
	// CalicoNodeSyncGrace is its grace period.
	CalicoNodeSyncProgram   string        `json:"-"`
	CalicoNodeSyncManifests string        `json:"-"`
	CalicoNodeSyncGrace     time.Duration `json:"-"`
	// CloudProgram is the path of the cloud controller manager and CloudManifests the folder with its rights, both absolute; empty if they are
	// not there.
	CloudProgram   string `json:"-"`
	CloudManifests string `json:"-"`
	// CSIManifest is the absolute path of the volume driver's manifest.
	CSIManifest string `json:"-"`
	// Page reports that the page is served, and PageProgram is the absolute path of kubectl-mooring, empty if it is not there.
	Page        bool   `json:"page,omitempty"`
	PageProgram string `json:"-"`
	// BIRDTemplates are what the machines of a BGP network configure BIRD with: calico (Calico's own templates, also if empty) or mooring (those, as
	// kubectl mooring bird-templates patches them).
	BIRDTemplates string `json:"-"`
	// BGPTemplates is the folder of confd's templates, Bird and Bird6 are the paths of these programs, all absolute; only for Network bgp.
	BGPTemplates string `json:"-"`
	Bird         string `json:"-"`
	Bird6        string `json:"-"`
}

// Components lists, in start order, what Options.Components may name.
func Components() []string { return []string{Etcd, APIServer, ControllerManager, CalicoEtcd, Nodes} }

// Resolve checks options and fills in the components that they need. Its errors are for users: each names one cause and the next step.
func Resolve(o Options) (Options, error) {
	if !filepath.IsAbs(o.Dir) {
		return Options{}, fmt.Errorf("the folder %q of the lab is not absolute", o.Dir)
	}
	if err := checkNumbers(o); err != nil {
		return Options{}, err
	}
	if o.Cloud == "" {
		o.Cloud = CloudNone
	}
	if o.Network == "" {
		o.Network = NetworkLoopback
	}
	if o.Network == NetworkBGP && o.Datastore == "" {
		o.Datastore = DatastoreKubernetes
	}
	if !slices.Contains([]string{DatastoreEtcd, DatastoreKubernetes, DatastoreNone}, o.Datastore) {
		return Options{}, fmt.Errorf("--calico-datastore %q is unknown; use etcdv3, kubernetes or none", o.Datastore)
	}
	if len(o.Components) == 0 {
		o.Components = Components()
		if o.Datastore != DatastoreEtcd {
			o.Components = without(o.Components, CalicoEtcd)
		}
	}
	for _, check := range []func(Options) error{checkComponents, checkCloud, checkRealNodes, checkNetwork, checkWith, checkWithout, checkPage} {
		if err := check(o); err != nil {
			return Options{}, err
		}
	}
	o.Components = inStartOrder(o.Components)
	return o, nil
}

func checkNumbers(o Options) error {
	switch {
	case o.NodeCount < 0:
		return fmt.Errorf("--nodes %d is negative; use 0 or more", o.NodeCount)
	case o.NodeCount > MaxNodes:
		return fmt.Errorf("--nodes %d is more than a lab can hold; use at most %d", o.NodeCount, MaxNodes)
	case o.ZoneCount < 1 || o.ZoneCount > 26:
		return fmt.Errorf("--zones %d is out of range; use 1 to 26", o.ZoneCount)
	case o.PodsPerNode < 0 || o.PodsPerNode > 100:
		return fmt.Errorf("--pods-per-node %d is out of range; use 0 to 100", o.PodsPerNode)
	case o.NodeMonitorGracePeriod < 5*time.Second:
		return fmt.Errorf("--node-monitor-grace-period %v is shorter than two heartbeats; use 5s or more", o.NodeMonitorGracePeriod)
	case o.APIServerPort < 0 || o.APIServerPort > 65535:
		return fmt.Errorf("--apiserver-port %d does not exist; use 1 to 65535, or 0 for any free port", o.APIServerPort)
	default:
		return nil
	}
}

// needs returns which components cannot work without which others.
func needs(o Options) map[string][]string {
	table := map[string][]string{
		APIServer:              {Etcd},
		ControllerManager:      {APIServer},
		Nodes:                  {APIServer},
		CalicoNodeSync:         {APIServer},
		CloudControllerManager: {APIServer},
		BGPNetwork:             {APIServer, Nodes},
		Page:                   {APIServer},
		RealNodes:              {APIServer, ControllerManager, Nodes},
	}
	if o.Datastore == DatastoreEtcd {
		table[Nodes] = append(table[Nodes], CalicoEtcd)
		table[CalicoNodeSync] = append(table[CalicoNodeSync], CalicoEtcd)
	}
	return table
}

func checkComponents(o Options) error {
	seen := map[string]bool{}
	for _, name := range o.Components {
		if !slices.Contains(Components(), name) {
			return fmt.Errorf("--components names %q, which is unknown; use a subset of %s", name, strings.Join(Components(), ","))
		}
		if seen[name] {
			return fmt.Errorf("--components names %s twice; name it once", name)
		}
		seen[name] = true
	}
	if seen[CalicoEtcd] && o.Datastore != DatastoreEtcd {
		return fmt.Errorf("--components names calico-etcd, but --calico-datastore is %s; use etcdv3 or leave calico-etcd out", o.Datastore)
	}
	return checkNeeds(o, o.Components)
}

func checkNeeds(o Options, wanted []string) error {
	table := needs(o)
	for _, name := range wanted {
		for _, other := range table[name] {
			if !slices.Contains(o.Components, other) {
				return fmt.Errorf("%s cannot run without %s; add %s to --components%s", name, other, other, datastoreHint(other))
			}
		}
	}
	return nil
}

func datastoreHint(component string) string {
	if component != CalicoEtcd {
		return ""
	}
	return " or choose --calico-datastore kubernetes or none"
}

func checkCloud(o Options) error {
	switch {
	case o.Cloud == CloudNone:
		return nil
	case o.Cloud != CloudDigitalOcean:
		return fmt.Errorf("--cloud %q is unknown; use digitalocean or none", o.Cloud)
	case o.CloudProgram == "":
		return fmt.Errorf("--cloud digitalocean needs %s alongside the lab's program; build it with `make build`, or use --cloud none", CloudControllerManager)
	case o.CloudManifests == "":
		return fmt.Errorf("--cloud digitalocean needs the manifests in config/%s; run the lab from the repository's bin folder, or use --cloud none",
			CloudControllerManager)
	}
	return checkNeeds(o, []string{CloudControllerManager})
}

func checkNetwork(o Options) error {
	switch {
	case !slices.Contains([]string{"", FamilyIPv4, FamilyIPv6, BothFamilies}, o.IPFamilies):
		return fmt.Errorf("--ip-families %q is unknown; use ipv4, ipv6, or ipv4,ipv6 for dual stack", o.IPFamilies)
	case o.speaksIPv6() && o.Network != NetworkBGP:
		return fmt.Errorf("--ip-families %s is for addresses that packets reach, and there are none; add --network bgp", o.IPFamilies)
	case !slices.Contains([]string{"", TemplatesOfCalico, PatchedTemplates}, o.BIRDTemplates):
		return fmt.Errorf("--bird-templates %q is unknown; use calico, or mooring for those that kubectl mooring bird-templates patches", o.BIRDTemplates)
	case o.BIRDTemplates == PatchedTemplates && o.Network != NetworkBGP:
		return errors.New("--bird-templates mooring is for BIRD, and no BIRD runs; add --network bgp")
	case o.Network == NetworkLoopback:
		return nil
	case o.Network != NetworkBGP:
		return fmt.Errorf("--network %q is unknown; use bgp or loopback", o.Network)
	case o.Datastore == DatastoreNone:
		return errors.New("--network bgp needs a datastore that Calico's confd reads; use --calico-datastore kubernetes or etcdv3, or leave it out")
	case o.NodeCount > MaxBGPNodes:
		return fmt.Errorf("--nodes %d is more than the BGP network can hold; use at most %d, or --network loopback", o.NodeCount, MaxBGPNodes)
	case o.PodsPerNode < 1:
		return fmt.Errorf("--pods-per-node %d leaves the BGP network nothing to send packets between; use 1 or more", o.PodsPerNode)
	}
	for _, path := range []string{o.BGPTemplates, o.Bird, o.Bird6} {
		if !filepath.IsAbs(path) {
			return errors.New("--network bgp needs the paths of confd's templates, of bird and of bird6")
		}
	}
	return checkNeeds(o, []string{BGPNetwork})
}

func checkWith(o Options) error {
	for _, name := range o.With {
		if name == CSIDriver {
			if err := checkVolumes(o); err != nil {
				return err
			}
			continue
		}
		if name != CalicoNodeSync {
			return fmt.Errorf("--with %q is unknown; the choices are %s and %s", name, CalicoNodeSync, CSIDriver)
		}
		if o.Datastore != DatastoreEtcd && o.Datastore != DatastoreKubernetes {
			return fmt.Errorf("--with %s needs a datastore; use --calico-datastore etcdv3 or kubernetes, not %s", name, o.Datastore)
		}
		if !filepath.IsAbs(o.CalicoNodeSyncProgram) {
			return fmt.Errorf("--with %s needs the path of its program", name)
		}
	}
	return checkNeeds(o, o.With)
}

func checkWithout(o Options) error {
	for _, name := range o.Without {
		switch {
		case slices.Contains(o.With, name):
			return fmt.Errorf("--with and --without both name %s; leave it out of one of them", name)
		case name != CloudControllerManager:
			return fmt.Errorf("--without %q is unknown; the only choice is %s, as other components of the product run only when asked for", name, CloudControllerManager)
		case o.Cloud == CloudNone:
			return fmt.Errorf("--without %s is for a lab with a cloud; leave it out, or use --cloud digitalocean", name)
		}
	}
	return nil
}

func inStartOrder(names []string) []string {
	var ordered []string
	for _, name := range Components() {
		if slices.Contains(names, name) {
			ordered = append(ordered, name)
		}
	}
	return ordered
}

func without(names []string, unwanted string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == unwanted })
}

// runs reports whether the component is part of the lab.
func (o Options) runs(name string) bool {
	if name == DigitalOcean || name == CloudControllerManager {
		return o.Cloud == CloudDigitalOcean && !slices.Contains(o.Without, name)
	}
	if name == BGPNetwork {
		return o.Network == NetworkBGP
	}
	if name == Page {
		return o.Page
	}
	switch name {
	case Scheduler:
		return o.Enclosed()
	case RealNodes:
		return o.RealNodes > 0
	case LoadBalancers:
		return o.RealNodes > 0 && o.Cloud == CloudDigitalOcean
	}
	return slices.Contains(o.Components, name) || slices.Contains(o.With, name)
}

// speaksIPv6 reports whether machines and pods have IPv6 addresses.
func (o Options) speaksIPv6() bool { return o.IPFamilies == FamilyIPv6 || o.IPFamilies == BothFamilies }

// podCIDRs are Calico's address pools, with commas between.
func (o Options) podCIDRs() string {
	switch o.IPFamilies {
	case FamilyIPv6:
		return PodCIDRv6
	case BothFamilies:
		return PodCIDR + "," + PodCIDRv6
	default:
		return PodCIDR
	}
}

// needsSetup reports whether there is anything for the Setup process to prepare: rights for nodes or for the product's component, or
// Calico's custom resources.
func (o Options) needsSetup() bool {
	return o.runs(Nodes) || o.runs(CalicoNodeSync) || o.runs(CloudControllerManager) || (o.Datastore == DatastoreKubernetes && o.runs(APIServer))
}
