// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/pki"
)

// Processes of a lab with real machines, in addition to Scheduler.
const (
	// RealNodes runs the real machines.
	RealNodes = "real-nodes"
	// LoadBalancers carries the traffic of the simulated cloud's load balancers to them.
	LoadBalancers = "load-balancers"
)

const (
	// RealPodCIDR is where pods of real machines have their addresses: a /24 for each machine. It is not Calico's pool, from which simulated
	// pods have theirs.
	RealPodCIDR = "10.245.0.0/16"
	// MaxRealNodes is how many real machines a lab begins with: each is a kubelet, a containerd and a kube-proxy, about 300 MB in all.
	MaxRealNodes = 16
)

// RealNodes is the folder of the real machines.
func (l Layout) RealNodes() string { return filepath.Join(l.Dir, "real-nodes") }

// RealNode is the folder of one real machine: its disk, configuration and logs.
func (l Layout) RealNode(name string) string { return filepath.Join(l.RealNodes(), name) }

// KubeletAuthorityFile is the certificate that proves the API server to kubelets, and kubelets to it.
func (l Layout) KubeletAuthorityFile() string { return l.Certificate(kubeletAuthority) }

// KubeProxyClient is the certificate with which kube-proxies talk to the API server, without .crt or .key.
func (l Layout) KubeProxyClient() string { return filepath.Join(l.PKI(), kubeProxyClient) }

// MachineCertificateNames are the names of the certificates with which the kubelet of a machine talks to the API server, and serves it.
func MachineCertificateNames(machine string) (client, server string) {
	return "kubelet-" + machine, "kubelet-" + machine + "-server"
}

// MachineCertificates are the certificates of a real machine. The user is the one that the Node authorizer and NodeRestriction know.
func MachineCertificates(machine, address string) pki.Plan {
	client, server := MachineCertificateNames(machine)
	return pki.Plan{
		Authorities: []string{authority, kubeletAuthority},
		Certificates: []pki.Certificate{
			{Name: client, Authority: authority, CommonName: "system:node:" + machine, Organizations: []string{"system:nodes"}, Client: true},
			{Name: server, Authority: kubeletAuthority, CommonName: "kubelet", IPs: []string{address}},
		},
	}
}

// Enclosed reports whether the lab has a network namespace of its own, in which pods reach the API server.
func (o Options) Enclosed() bool { return o.RealNodes > 0 }

// waitsForPods reports whether machines stay uninitialized until somebody starts the cloud component as a pod, which is after the lab has come up.
func (d draft) waitsForPods() bool { return d.runs(DigitalOcean) && !d.runs(CloudControllerManager) }

// kubeletLease is how long a kubelet's Lease is good by Kubernetes' default: with a grace period that is as long, real
// machines have the heartbeats of the default too.
const kubeletLease = 40 * time.Second

func (d draft) realNodes() Process {
	p := Process{
		Name: RealNodes,
		Args: []string{
			RealNodes,
			"--lab-dir=" + d.Layout.Dir,
			"--bin=" + d.Bin,
			"--kubeconfig=" + d.ProcessKubeconfig(Nodes),
			"--apiserver-port=" + d.ports[APIServerPort],
			"--ready-file=" + d.ReadyFile(RealNodes),
		},
		DependsOn: d.existing(Setup, APIServer, ControllerManager, DigitalOcean),
		Ready:     Readiness{File: d.ReadyFile(RealNodes)},
	}
	if d.waitsForPods() {
		p.Args = append(p.Args, "--uninitialized")
	}
	if d.NodeMonitorGracePeriod >= kubeletLease {
		p.Args = append(p.Args, "--default-heartbeats")
	}
	for _, image := range d.Images {
		p.Args = append(p.Args, "--image="+image)
	}
	for _, path := range d.ImageArchives {
		p.Args = append(p.Args, "--image-archive="+path)
	}
	return p
}

func (d draft) loadBalancers() Process {
	access := d.CloudAccess(d.ports)
	return Process{
		Name: LoadBalancers,
		Args: []string{
			LoadBalancers,
			"--admin-url=" + access.AdminURL,
			"--ca-file=" + access.CAFile,
			"--cert-file=" + access.CertFile,
			"--key-file=" + access.KeyFile,
		},
		DependsOn: []string{DigitalOcean},
	}
}

func checkRealNodes(o Options) error {
	switch {
	case o.RealNodes == 0 && len(o.Images)+len(o.ImageArchives) > 0:
		return errors.New("--image and --image-archive are for real machines; add --real-nodes")
	case o.RealNodes == 0:
		return nil
	case o.RealNodes < 0 || o.RealNodes > o.NodeCount || o.RealNodes > MaxRealNodes:
		return fmt.Errorf("--real-nodes %d is out of range; use 1 to the number of --nodes, which is %d, and at most %d", o.RealNodes, o.NodeCount, MaxRealNodes)
	case o.Network == NetworkBGP:
		return errors.New("--network bgp and --real-nodes exclude each other so far; leave one of them out")
	case !filepath.IsAbs(o.Bin):
		return errors.New("--real-nodes needs the folder of the machines' programs")
	}
	return checkNeeds(o, []string{RealNodes})
}

// apiServerBind is where kube-apiserver listens. Real machines come to another of its addresses; then all of them are addresses of a network
// namespace that nobody else is in.
func (d draft) apiServerBind() string {
	if d.Enclosed() {
		return "0.0.0.0"
	}
	return loopback
}

// apiServerAdvertise is the address that the endpoint of the Service kubernetes has, if it may have one.
func (d draft) apiServerAdvertise() string {
	if d.Enclosed() {
		return ControlPlaneAddress
	}
	return loopback
}

// apiServerEndpoints selects who writes that endpoint. A loopback address may not be in an EndpointSlice, so nobody does without real machines.
func (d draft) apiServerEndpoints() string {
	if d.Enclosed() {
		return "lease"
	}
	return "none"
}
