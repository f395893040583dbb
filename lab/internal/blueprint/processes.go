// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Networks of the lab. Nodes' own addresses are in machines.Network.
const (
	// ServiceCIDR is the range of cluster addresses of Services; its first address is that of the API server, which serves on port 443 there.
	ServiceCIDR      = "10.96.0.0/16"
	APIServerService = "10.96.0.1"
	// NamesService is the address of the server of names, where kubeadm puts it, too: CoreDNS answers there, with real machines.
	NamesService = "10.96.0.10"
	// PodCIDR is Calico's address pool.
	PodCIDR = "10.244.0.0/16"
	// PodCIDRv6 is that of a BGP network with IPv6.
	PodCIDRv6 = "fd00:10:244::/64"
	// ControlPlaneAddress is where kube-apiserver is reached by real machines and their pods: an address of machines.Network that no machine gets.
	ControlPlaneAddress = "172.30.0.1"
)

const (
	loopback = "127.0.0.1"
	// ServiceAccountIssuer is the issuer of service account tokens.
	ServiceAccountIssuer = "https://kubernetes.default.svc.cluster.local"
	// CalicoNodeSyncUser is the service account that the component runs as in config/calico-node-sync.
	CalicoNodeSyncUser = "system:serviceaccount:mooring-system:calico-node-sync"
	// NodesUser is the user with which the simulated kubelets and calico-nodes talk to the API server; Setup gives it its rights.
	NodesUser = "mooring-lab:nodes"
	// KubeProxyUser is that of all kube-proxies; Kubernetes itself sets its rights up.
	KubeProxyUser = "system:kube-proxy"
)

// draft holds what all descriptions share.
type draft struct {
	Options
	Layout
	ports Ports
}

// complete adds what every process has.
func (d draft) complete(p Process) Process {
	p.Log = d.Log(p.Name)
	p.Env = append([]string{"HOME=" + d.Home(), "TMPDIR=" + d.Temp()}, p.Env...)
	for _, port := range portsOf(p.Name) {
		p.Ports = append(p.Ports, Port{Name: port, Number: d.ports[port]})
	}
	return p
}

func (d draft) url(port string) string { return "https://" + loopback + ":" + d.ports[port] }

// existing returns those of names that are part of this lab: dependencies on what is not there do not count.
func (d draft) existing(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		if name == Setup {
			return !d.needsSetup()
		}
		return !d.runs(name)
	})
}

func (d draft) etcd() Process {
	return d.etcdMember(Etcd, EtcdClientPort, EtcdPeerPort, etcdAuthority, etcdServer, apiServerEtcdClient)
}

func (d draft) calicoEtcd() Process {
	return d.etcdMember(CalicoEtcd, CalicoEtcdClientPort, CalicoEtcdPeerPort, calicoEtcdAuthority, calicoEtcdServer, calicoClient)
}

// etcdMember describes an etcd of one member. Without fsync a write survives kill -9 of the process, because it is in the kernel's page
// cache, but not a power cut of the machine; for a lab that is the right trade.
func (d draft) etcdMember(name, clientPort, peerPort, authority, server, client string) Process {
	return Process{
		Name: name,
		Args: []string{
			"etcd",
			"--name=" + name,
			"--data-dir=" + d.Data(name),
			"--listen-client=" + d.url(clientPort),
			"--listen-peer=" + d.url(peerPort),
			"--cert-file=" + d.Certificate(server),
			"--key-file=" + d.Key(server),
			"--client-ca-file=" + d.Certificate(authority),
			"--reuse-port",
			"--unsafe-no-fsync",
		},
		Ready: Readiness{
			URL: d.url(clientPort) + "/health", CAFile: d.Certificate(authority),
			CertFile: d.Certificate(client), KeyFile: d.Key(client),
		},
	}
}

func (d draft) apiServer() Process {
	p := Process{
		Name:    APIServer,
		Program: d.APIServerProgram,
		Args: append([]string{
			"--bind-address=" + d.apiServerBind(),
			"--advertise-address=" + d.apiServerAdvertise(),
			"--secure-port=" + d.ports[APIServerPort],
			"--permit-port-sharing=true",
			"--endpoint-reconciler-type=" + d.apiServerEndpoints(),
			"--etcd-servers=" + d.url(EtcdClientPort),
			"--etcd-cafile=" + d.Certificate(etcdAuthority),
			"--etcd-certfile=" + d.Certificate(apiServerEtcdClient),
			"--etcd-keyfile=" + d.Key(apiServerEtcdClient),
			"--client-ca-file=" + d.Certificate(authority),
			"--tls-cert-file=" + d.Certificate(apiServerServer),
			"--tls-private-key-file=" + d.Key(apiServerServer),
			"--service-cluster-ip-range=" + ServiceCIDR,
			"--service-account-issuer=" + ServiceAccountIssuer,
			"--service-account-key-file=" + d.PublicKey(serviceAccounts),
			"--service-account-signing-key-file=" + d.Key(serviceAccounts),
			"--authorization-mode=Node,RBAC",
			// As kubeadm does: node plugins of volumes mount for other pods.
			"--allow-privileged=true",
			"--enable-admission-plugins=NodeRestriction",
			"--requestheader-client-ca-file=" + d.Certificate(frontProxyAuthority),
			"--requestheader-allowed-names=" + frontProxyClient,
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file=" + d.Certificate(frontProxyClient),
			"--proxy-client-key-file=" + d.Key(frontProxyClient),
			// Nothing turns a Service's address into a pod's where the API server runs; aggregated API servers are reached by their endpoints.
			"--enable-aggregator-routing=true",
			// Somebody's `kubectl get --watch` must not hold up the end of the lab.
			"--shutdown-watch-termination-grace-period=500ms",
			"--profiling=false",
		}, d.kubeletArgs()...),
		DependsOn: []string{Etcd},
		Ready: Readiness{
			URL: d.url(APIServerPort) + "/readyz", CAFile: d.Certificate(authority),
			CertFile: d.Certificate(admin), KeyFile: d.Key(admin),
		},
	}
	if p.Program == "" {
		p.Args = append([]string{APIServer}, p.Args...) // a subcommand of the lab
	}
	return p
}

func (d draft) controllerManager() Process {
	kubeconfig := d.ProcessKubeconfig(ControllerManager)
	p := Process{
		Name: ControllerManager,
		Args: []string{
			ControllerManager,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + d.ports[ControllerManagerPort],
			"--permit-port-sharing=true",
			"--client-ca-file=" + d.Certificate(authority),
			"--requestheader-client-ca-file=" + d.Certificate(frontProxyAuthority),
			"--tls-cert-file=" + d.Certificate(controllerManagerServer),
			"--tls-private-key-file=" + d.Key(controllerManagerServer),
			"--leader-elect=false",
			"--controllers=*",
			"--use-service-account-credentials=true",
			"--root-ca-file=" + d.Certificate(authority),
			"--service-account-private-key-file=" + d.Key(serviceAccounts),
			"--cluster-signing-cert-file=" + d.Certificate(authority),
			"--cluster-signing-key-file=" + d.Key(authority),
			"--service-cluster-ip-range=" + ServiceCIDR,
			// Calico's own IPAM gives out pod addresses.
			"--allocate-node-cidrs=false",
			"--node-monitor-grace-period=" + d.NodeMonitorGracePeriod.String(),
			"--profiling=false",
		},
		DependsOn: []string{APIServer},
		Ready:     Readiness{URL: d.url(ControllerManagerPort) + "/healthz", CAFile: d.Certificate(authority)},
	}
	if d.runs(DigitalOcean) {
		p.Args = append(p.Args, "--cloud-provider=external")
	}
	if d.hurries() {
		p.Args = append(p.Args, "--node-monitor-period=1s")
	}
	return p
}

// hurries reports whether somebody wants to see a silent node sooner than a kubelet's usual heartbeats allow: then everything that looks at
// nodes looks more often.
func (d draft) hurries() bool { return d.NodeMonitorGracePeriod < usualGracePeriod }

// usualGracePeriod is two heartbeats of a kubelet.
const usualGracePeriod = 20 * time.Second

// leaseInterval is the time between two heartbeats: a kubelet's 10 s unless that is too long for the grace period.
func (d draft) leaseInterval() time.Duration {
	if !d.hurries() {
		return usualGracePeriod / 2
	}
	return (d.NodeMonitorGracePeriod / 3).Truncate(100 * time.Millisecond)
}

func (d draft) setup() Process {
	p := Process{
		Name:      Setup,
		Args:      []string{Setup, "--kubeconfig=" + d.Kubeconfig(), "--pod-cidr=" + d.podCIDRs(), "--calico-datastore=" + d.Datastore},
		Env:       d.calicoEnv(d.Kubeconfig()),
		DependsOn: d.existing(APIServer, CalicoEtcd),
		Once:      true,
	}
	if d.runs(BGPNetwork) {
		p.Args = append(p.Args, "--network="+d.Network)
	}
	if d.runs(RealNodes) {
		p.Args = append(p.Args, "--real-nodes")
	}
	if d.runs(CalicoNodeSync) {
		p.Args = append(p.Args, "--calico-node-sync-manifests="+d.CalicoNodeSyncManifests)
	}
	if d.runs(CloudControllerManager) {
		p.Args = append(p.Args, "--cloud-controller-manager-manifests="+d.CloudManifests)
	}
	if d.waitsForPods() {
		p.Args = append(p.Args, "--foreign-node-removal")
	}
	return p
}

func (d draft) nodes() Process {
	kubeconfig := d.ProcessKubeconfig(Nodes)
	p := Process{
		Name: Nodes,
		Args: []string{
			Nodes,
			"--kubeconfig=" + kubeconfig,
			"--machines=" + d.MachinesFile(),
			"--pods-per-node=" + strconv.Itoa(d.PodsPerNode),
			"--calico-datastore=" + d.Datastore,
			"--cloud=" + d.Cloud,
			"--lease-interval=" + d.leaseInterval().String(),
			"--ready-file=" + d.ReadyFile(Nodes),
		},
		Env:       append(d.calicoEnv(kubeconfig), fmt.Sprintf("GOMEMLIMIT=%dMiB", d.nodesMemory())),
		DependsOn: d.existing(Setup, APIServer, CalicoEtcd, DigitalOcean),
		Ready:     Readiness{File: d.ReadyFile(Nodes)},
	}
	if d.runs(BGPNetwork) {
		p.Args = append(p.Args, "--network="+d.Network)
	}
	if d.speaksIPv6() {
		p.Args = append(p.Args, "--ip-families="+d.IPFamilies)
	}
	if d.runs(RealNodes) {
		p.Args = append(p.Args, "--taint-simulated")
	}
	if d.waitsForPods() {
		p.Args = append(p.Args, "--uninitialized")
	}
	return p
}

// nodesMemory is from how many MiB on the nodes process collects its garbage more often (GOMEMLIMIT), since all machines start at once: a thousand
// machines fit into 500 MB.
func (d draft) nodesMemory() int {
	const least, perThousand = 128, 320
	return max(least, d.NodeCount*perThousand/1000)
}

func (d draft) calicoNodeSync() Process {
	kubeconfig := d.ProcessKubeconfig(CalicoNodeSync)
	var env []string
	if d.Datastore == DatastoreEtcd {
		env = d.calicoEtcdEnv()
	}
	return Process{
		Name:    CalicoNodeSync,
		Program: d.CalicoNodeSyncProgram,
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--datastore-type=" + d.Datastore,
			"--grace-period=" + d.CalicoNodeSyncGrace.String(),
			// As its manifests have it: with a namespace there are Events, a journal and what restore needs, and its Lease shows that it runs.
			"--leader-elect",
			"--leader-election-namespace=mooring-system",
			"--metrics-bind-address=" + loopback + ":0",
			"--health-probe-bind-address=" + loopback + ":0",
		},
		Env:       env,
		DependsOn: d.existing(Setup, APIServer, CalicoEtcd, Nodes),
	}
}

// calicoEnv is what libcalico-go reads to find the datastore.
func (d draft) calicoEnv(kubeconfig string) []string {
	switch d.Datastore {
	case DatastoreEtcd:
		return append([]string{"DATASTORE_TYPE=" + d.Datastore}, d.calicoEtcdEnv()...)
	case DatastoreKubernetes:
		return []string{"DATASTORE_TYPE=" + d.Datastore, "KUBECONFIG=" + kubeconfig}
	default:
		return nil
	}
}

func (d draft) calicoEtcdEnv() []string {
	return []string{
		fmt.Sprintf("ETCD_ENDPOINTS=%s", d.url(CalicoEtcdClientPort)),
		"ETCD_CA_CERT_FILE=" + d.Certificate(calicoEtcdAuthority),
		"ETCD_CERT_FILE=" + d.Certificate(calicoClient),
		"ETCD_KEY_FILE=" + d.Key(calicoClient),
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
