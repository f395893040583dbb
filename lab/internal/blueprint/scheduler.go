// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

// Scheduler is Kubernetes' own, which binds pods to nodes; it runs with real machines.
const Scheduler = "kube-scheduler"

// SchedulerPort is the name of kube-scheduler's port.
const SchedulerPort = "kube-scheduler"

const (
	schedulerServer = "kube-scheduler-server"
	// kubeletAuthority is trusted between the API server and kubelets alone: each real machine has a certificate of it.
	kubeletAuthority       = "kubelet-ca"
	apiServerKubeletClient = "kube-apiserver-kubelet-client"
)

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

// kubeletArgs are how kube-apiserver reaches kubelets, for logs.
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
