// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

const (
	// CloudControllerManagerUser is the service account that the component runs as in config/digitalocean-cloud-controller-manager.
	CloudControllerManagerUser = "system:serviceaccount:kube-system:cloud-controller-manager"
	// ClusterID is what tells the cluster's droplets and load balancers from others of the account: their tag is k8s:ClusterID.
	ClusterID = "lab"
	// unlimitedFrom is how many machines make the simulator forget DigitalOcean's rate limits: in a lab all of them join in one minute, and each
	// costs a call.
	unlimitedFrom = 100
)

// digitalOcean describes the simulator of DigitalOcean.
func (d draft) digitalOcean() Process {
	access := d.CloudAccess(d.ports)
	p := Process{
		Name: DigitalOcean,
		Args: []string{
			DigitalOcean,
			"--api-port=" + d.ports[DigitalOceanAPIPort],
			"--metadata-port=" + d.ports[DigitalOceanMetadataPort],
			"--admin-port=" + d.ports[DigitalOceanAdminPort],
			"--cert-file=" + d.Certificate(cloudServer),
			"--key-file=" + d.Key(cloudServer),
			"--client-ca-file=" + d.Certificate(cloudAuthority),
			"--token-file=" + d.CloudToken(),
			"--state-file=" + d.CloudState(),
			"--machines=" + d.MachinesFile(),
		},
		Ready: Readiness{URL: access.AdminURL + "/v1/stats", CAFile: access.CAFile, CertFile: access.CertFile, KeyFile: access.KeyFile},
	}
	if d.Enclosed() {
		p.Args = append(p.Args, "--machines-address="+ControlPlaneAddress)
	}
	if d.NodeCount >= unlimitedFrom {
		p.Args = append(p.Args, "--no-rate-limits")
	}
	return p
}

// cloudControllerManager describes the product's component, with the environment variables and flags of its manifest.
func (d draft) cloudControllerManager() Process {
	access := d.CloudAccess(d.ports)
	p := Process{
		Name:    CloudControllerManager,
		Program: d.CloudProgram,
		Args: []string{
			"--kubeconfig=" + d.ProcessKubeconfig(CloudControllerManager),
			"--bind-address=" + loopback,
			"--secure-port=" + d.ports[CloudControllerManagerPort],
			"--permit-port-sharing=true",
			"--tls-cert-file=" + d.Certificate(cloudManagerServer),
			"--tls-private-key-file=" + d.Key(cloudManagerServer),
			// As its manifest has it, by the Lease kube-system/cloud-controller-manager: it shows that the component runs.
			"--leader-elect=true",
			"--leader-elect-resource-namespace=kube-system",
			"--controller-start-interval=0s",
			"--kube-api-qps=100",
			"--kube-api-burst=200",
			"--token-file=" + access.TokenFile,
			"--out-of-service-taint=true",
		},
		Env: []string{
			"DO_OVERRIDE_URL=" + access.APIURL,
			"DO_METADATA_URL=" + access.MetadataURL,
			"DO_CLUSTER_ID=" + ClusterID,
			"METRICS_ADDR=" + loopback + ":0",
			// What Go trusts instead of the system's authorities (crypto/x509): only what proves the simulator.
			"SSL_CERT_FILE=" + access.CAFile,
			"SSL_CERT_DIR=" + d.Temp(),
		},
		DependsOn: d.existing(Setup, APIServer, DigitalOcean),
		Ready:     Readiness{URL: d.url(CloudControllerManagerPort) + "/healthz", CAFile: d.Certificate(authority)},
	}
	if d.hurries() {
		p.Args = append(p.Args, "--node-monitor-period=1s")
	}
	return p
}
