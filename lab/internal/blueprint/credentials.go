// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"fmt"

	"github.com/mooring-dev/mooring/lab/internal/pki"
)

// Names of authorities, certificates and key pairs in the PKI folder. Five authorities, because each is trusted for something else: a
// front proxy may claim to be any user, anyone who reaches an etcd may do anything in it, and so may the administrator of the simulated cloud.
const (
	authority           = "ca"
	frontProxyAuthority = "front-proxy-ca"
	etcdAuthority       = "etcd-ca"
	calicoEtcdAuthority = "calico-etcd-ca"
	cloudAuthority      = "digitalocean-ca"

	admin                   = "admin"
	apiServerServer         = "kube-apiserver"
	apiServerEtcdClient     = "kube-apiserver-etcd-client"
	controllerManagerServer = "kube-controller-manager-server"
	frontProxyClient        = "front-proxy-client"
	etcdServer              = "etcd"
	calicoEtcdServer        = "calico-etcd"
	calicoClient            = "calico-client"
	serviceAccounts         = "service-accounts"
	cloudServer             = "digitalocean"
	cloudAdmin              = "digitalocean-admin"
	cloudManagerServer      = "digitalocean-cloud-controller-manager-server"
	kubeProxyClient         = "kube-proxy"
)

// AuthorityFile is the certificate that proves the API server.
func (l Layout) AuthorityFile() string { return l.Certificate(authority) }

// EtcdAccess is how to reach an etcd of the lab.
type EtcdAccess struct {
	Endpoints []string `json:"endpoints"`
	CAFile    string   `json:"caFile"`
	CertFile  string   `json:"certFile"`
	KeyFile   string   `json:"keyFile"`
}

// EtcdAccess returns how to reach Kubernetes' etcd on the given ports.
func (l Layout) EtcdAccess(ports Ports) EtcdAccess {
	return l.access(ports[EtcdClientPort], etcdAuthority, apiServerEtcdClient)
}

// CalicoEtcdAccess returns how to reach Calico's etcd on the given ports.
func (l Layout) CalicoEtcdAccess(ports Ports) EtcdAccess {
	return l.access(ports[CalicoEtcdClientPort], calicoEtcdAuthority, calicoClient)
}

// CloudAccess is how to reach the simulator of DigitalOcean.
type CloudAccess struct {
	// APIURL is the API's: with the token of TokenFile, which CAFile proves.
	APIURL    string `json:"apiURL"`
	TokenFile string `json:"tokenFile"`
	// MetadataURL is where the droplet of the control plane asks about itself.
	MetadataURL string `json:"metadataURL"`
	// AdminURL is where one does what no client of the API can; with the client certificate only.
	AdminURL string `json:"adminURL"`
	CAFile   string `json:"caFile"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// CloudAccess returns how to reach the simulator on the given ports.
func (l Layout) CloudAccess(ports Ports) CloudAccess {
	at := func(scheme, port string) string { return scheme + "://" + loopback + ":" + ports[port] }
	return CloudAccess{
		APIURL: at("https", DigitalOceanAPIPort), TokenFile: l.CloudToken(), MetadataURL: at("http", DigitalOceanMetadataPort),
		AdminURL: at("https", DigitalOceanAdminPort),
		CAFile:   l.Certificate(cloudAuthority), CertFile: l.Certificate(cloudAdmin), KeyFile: l.Key(cloudAdmin),
	}
}

func (l Layout) access(port, authority, client string) EtcdAccess {
	return EtcdAccess{
		Endpoints: []string{"https://" + loopback + ":" + port},
		CAFile:    l.Certificate(authority), CertFile: l.Certificate(client), KeyFile: l.Key(client),
	}
}

func (d draft) pki() pki.Plan {
	serving := func(name, authority string, names ...string) pki.Certificate {
		return pki.Certificate{
			Name: name, Authority: authority, CommonName: name,
			DNSNames: append([]string{"localhost"}, names...), IPs: []string{loopback},
		}
	}
	client := func(name, authority, user string, groups ...string) pki.Certificate {
		return pki.Certificate{Name: name, Authority: authority, CommonName: user, Organizations: groups, Client: true}
	}
	plan := pki.Plan{}
	if d.runs(Etcd) {
		// An etcd member is a client of its own peers.
		server := serving(etcdServer, etcdAuthority)
		server.Client = true
		plan.Authorities = append(plan.Authorities, etcdAuthority)
		plan.Certificates = append(plan.Certificates, server, client(apiServerEtcdClient, etcdAuthority, APIServer))
	}
	if d.runs(CalicoEtcd) {
		server := serving(calicoEtcdServer, calicoEtcdAuthority)
		server.Client = true
		plan.Authorities = append(plan.Authorities, calicoEtcdAuthority)
		plan.Certificates = append(plan.Certificates, server, client(calicoClient, calicoEtcdAuthority, "calico"))
	}
	if d.runs(DigitalOcean) {
		plan.Authorities = append(plan.Authorities, cloudAuthority)
		server := serving(cloudServer, cloudAuthority)
		if d.Enclosed() {
			server.IPs = append(server.IPs, ControlPlaneAddress)
		}
		plan.Certificates = append(plan.Certificates, server, client(cloudAdmin, cloudAuthority, cloudAdmin))
	}
	if !d.runs(APIServer) {
		return plan
	}
	apiServer := serving(apiServerServer, authority,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	apiServer.IPs = append(apiServer.IPs, APIServerService)
	if d.Enclosed() {
		apiServer.IPs = append(apiServer.IPs, ControlPlaneAddress)
		plan.Certificates = append(plan.Certificates, client(kubeProxyClient, authority, KubeProxyUser),
			serving(schedulerServer, authority), client(Scheduler, authority, "system:kube-scheduler"),
			client(apiServerKubeletClient, kubeletAuthority, APIServer))
		plan.Authorities = append(plan.Authorities, kubeletAuthority)
	}
	plan.Authorities = append(plan.Authorities, authority, frontProxyAuthority)
	plan.KeyPairs = []string{serviceAccounts}
	plan.Certificates = append(plan.Certificates,
		apiServer,
		client(admin, authority, "mooring-lab:admin", "system:masters"),
		client(frontProxyClient, frontProxyAuthority, frontProxyClient),
		serving(controllerManagerServer, authority),
		client(ControllerManager, authority, "system:kube-controller-manager"),
		client(Nodes, authority, NodesUser),
		// The groups are those of any service account's token.
		client(CalicoNodeSync, authority, CalicoNodeSyncUser,
			"system:serviceaccounts", "system:serviceaccounts:mooring-system"),
	)
	if d.runs(CloudControllerManager) {
		plan.Certificates = append(plan.Certificates,
			serving(cloudManagerServer, authority),
			client(CloudControllerManager, authority, CloudControllerManagerUser, "system:serviceaccounts", "system:serviceaccounts:kube-system"))
	}
	return plan
}

func (d draft) files() []File {
	if !d.runs(APIServer) {
		return nil
	}
	files := []File{{Path: d.Kubeconfig(), Content: d.kubeconfig(admin)}}
	for _, process := range []string{ControllerManager, Scheduler, Nodes, CalicoNodeSync, CloudControllerManager} {
		if d.runs(process) {
			files = append(files, File{Path: d.ProcessKubeconfig(process), Content: d.kubeconfig(process)})
		}
	}
	return files
}

// kubeconfig names the files of the PKI instead of holding their content, so that it needs nothing but names.
func (d draft) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: mooring-lab
  cluster:
    server: %q
    certificate-authority: %q
users:
- name: %q
  user:
    client-certificate: %q
    client-key: %q
contexts:
- name: mooring-lab
  context: {cluster: mooring-lab, user: %q}
current-context: mooring-lab
`, d.url(APIServerPort), d.Certificate(authority), user, d.Certificate(user), d.Key(user), user)
}
