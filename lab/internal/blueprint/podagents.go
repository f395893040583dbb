// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

// Processes of a lab with real pods, besides Services.
const (
	// PodAgents are the node agents, who run pods.
	PodAgents = "pods"
	// Scheduler is Kubernetes' own, which binds pods to nodes.
	Scheduler = "kube-scheduler"
)

// SchedulerPort is the name of kube-scheduler's port.
const SchedulerPort = "kube-scheduler"

// PodAgentsUser is the user with which the node agents talk to the API server; Setup gives it its rights.
const PodAgentsUser = "mooring-lab:pods"

const (
	schedulerServer = "kube-scheduler-server"
	// kubeletAuthority is trusted between the API server and the node agents alone, who make a certificate for each machine's address with it.
	kubeletAuthority       = "kubelet-ca"
	apiServerKubeletClient = "kube-apiserver-kubelet-client"
)

// PodsDir is the folder of the pods' files and logs.
func (l Layout) PodsDir() string { return l.Data(PodAgents) }

// podAgents describes the process that runs the pods of all machines. Its paths are as bgpNetwork's: it finds the images' binaries beside the lab's.
func (d draft) podAgents() Process {
	p := Process{
		Name: PodAgents,
		Args: []string{
			PodAgents,
			"--kubeconfig=" + d.ProcessKubeconfig(PodAgents),
			"--machines=" + d.MachinesFile(),
			"--pods-dir=" + d.PodsDir(),
			"--kubelet-ca-file=" + d.Certificate(kubeletAuthority),
			"--kubelet-ca-key-file=" + d.Key(kubeletAuthority),
			"--ready-file=" + d.ReadyFile(PodAgents),
		},
		// After the names, which pods ask for as soon as they run, and ended before them.
		DependsOn: d.existing(Setup, APIServer, Services),
		Ready:     Readiness{File: d.ReadyFile(PodAgents)},
	}
	for _, image := range d.Images {
		p.Args = append(p.Args, "--image="+image)
	}
	return p
}

func (d draft) scheduler() Process {
	kubeconfig := d.ProcessKubeconfig(Scheduler)
	return Process{
		Name: Scheduler,
		Args: []string{
			Scheduler,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + d.ports[SchedulerPort],
			"--permit-port-sharing=true",
			"--client-ca-file=" + d.Certificate(authority),
			"--requestheader-client-ca-file=" + d.Certificate(frontProxyAuthority),
			"--tls-cert-file=" + d.Certificate(schedulerServer),
			"--tls-private-key-file=" + d.Key(schedulerServer),
			"--leader-elect=false",
			"--profiling=false",
		},
		DependsOn: []string{APIServer},
		Ready:     Readiness{URL: d.url(SchedulerPort) + "/healthz", CAFile: d.Certificate(authority)},
	}
}

// kubeletArgs are how kube-apiserver reaches the node agents, for logs.
func (d draft) kubeletArgs() []string {
	if !d.Enclosed() {
		return nil
	}
	return []string{
		"--kubelet-certificate-authority=" + d.Certificate(kubeletAuthority),
		"--kubelet-client-certificate=" + d.Certificate(apiServerKubeletClient),
		"--kubelet-client-key=" + d.Key(apiServerKubeletClient),
		"--kubelet-preferred-address-types=InternalIP",
	}
}
