// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

// services describes the process that stands in for kube-proxy and the cluster's DNS.
func (d draft) services() Process {
	return Process{
		Name: Services,
		Args: []string{
			Services,
			"--kubeconfig=" + d.ProcessKubeconfig(Services),
			"--ready-file=" + d.ReadyFile(Services),
		},
		DependsOn: []string{APIServer},
		Ready:     Readiness{File: d.ReadyFile(Services)},
	}
}

// apiServerBind is where kube-apiserver listens. With real pods these come to another of its addresses; then all of them are addresses of a
// network namespace that nobody else is in.
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

// apiServerEndpoints says who writes that endpoint. A loopback address may not stand in an EndpointSlice, so nobody does without real pods.
func (d draft) apiServerEndpoints() string {
	if d.Enclosed() {
		return "lease"
	}
	return "none"
}
