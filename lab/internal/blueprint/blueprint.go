// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/lab/internal/pki"
)

// Blueprint is a whole lab as a value.
type Blueprint struct {
	Options   Options   `json:"options"`
	PKI       pki.Plan  `json:"pki"`
	Files     []File    `json:"files"`
	Processes []Process `json:"processes"`
}

// File is written, with mode 0600, before the first process starts.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// Process describes one operating system process.
type Process struct {
	Name string `json:"name"`
	// Program is the path of the binary; empty means the lab's own.
	Program string   `json:"program,omitempty"`
	Args    []string `json:"args"`
	// Env is the whole environment, "NAME=value": nothing is inherited, so that nothing of the user's leaks in.
	Env []string `json:"env"`
	// Ports are what it listens on, all on 127.0.0.1.
	Ports []Port `json:"ports,omitempty"`
	// DependsOn are the processes that must be ready before it starts.
	DependsOn []string `json:"dependsOn,omitempty"`
	// Ready says how one can tell that it works.
	Ready Readiness `json:"ready"`
	// Once reports that it ends by itself, with status 0 when its work is done; otherwise it is restarted whenever it ends.
	Once bool   `json:"once,omitempty"`
	Log  string `json:"log"`
}

// Port is one listening port.
type Port struct {
	Name string `json:"name"`
	// Number is decimal, or a placeholder in a dry run.
	Number string `json:"number"`
}

// Readiness is a question whose answer tells that a process works. All fields empty: it counts as ready once it runs; for a process that
// runs once: when it has ended well.
type Readiness struct {
	// URL responds with 200 over TLS when ready. The server must prove itself with a certificate of CAFile; the question is asked with the
	// client certificate, if any.
	URL      string `json:"url,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// File exists when ready. It is removed before each start.
	File string `json:"file,omitempty"`
}

// Ports are the numbers of held ports by name, as text.
type Ports map[string]string

// Names of ports.
const (
	EtcdClientPort        = "etcd-client"
	EtcdPeerPort          = "etcd-peer"
	CalicoEtcdClientPort  = "calico-etcd-client"
	CalicoEtcdPeerPort    = "calico-etcd-peer"
	APIServerPort         = "kube-apiserver"
	ControllerManagerPort = "kube-controller-manager"
	// DigitalOceanAPIPort, -MetadataPort and -AdminPort are what the simulator serves; CloudControllerManagerPort is the component's own.
	DigitalOceanAPIPort        = "digitalocean-api"
	DigitalOceanMetadataPort   = "digitalocean-metadata"
	DigitalOceanAdminPort      = "digitalocean-admin"
	CloudControllerManagerPort = "digitalocean-cloud-controller-manager"
)

// portsOf returns which ports a process listens on.
func portsOf(process string) []string {
	return map[string][]string{
		Etcd:                   {EtcdClientPort, EtcdPeerPort},
		APIServer:              {APIServerPort},
		ControllerManager:      {ControllerManagerPort},
		CalicoEtcd:             {CalicoEtcdClientPort, CalicoEtcdPeerPort},
		DigitalOcean:           {DigitalOceanAPIPort, DigitalOceanMetadataPort, DigitalOceanAdminPort},
		CloudControllerManager: {CloudControllerManagerPort},
		Scheduler:              {SchedulerPort},
	}[process]
}

// NeededPorts lists the names of the ports that a lab with these resolved options listens on.
func NeededPorts(o Options) []string {
	var names []string
	for _, process := range append(Components(), DigitalOcean, CloudControllerManager, Scheduler) {
		if o.runs(process) {
			names = append(names, portsOf(process)...)
		}
	}
	return sorted(names)
}

// PlaceholderPorts stands in for held ports in a dry run, which holds nothing.
func PlaceholderPorts(o Options) Ports {
	ports := Ports{}
	for _, name := range NeededPorts(o) {
		ports[name] = "<free port for " + name + ">"
	}
	if o.APIServerPort != 0 {
		ports[APIServerPort] = strconv.Itoa(o.APIServerPort)
	}
	return ports
}

// Make describes the lab of resolved options on the given ports.
func Make(o Options, ports Ports) (Blueprint, error) {
	for _, name := range NeededPorts(o) {
		if ports[name] == "" {
			return Blueprint{}, fmt.Errorf("no port is given for %s", name)
		}
	}
	d := draft{Options: o, Layout: Layout{Dir: o.Dir}, ports: ports}
	blueprint := Blueprint{Options: o, PKI: d.pki(), Files: d.files()}
	for _, part := range []struct {
		wanted bool
		make   func() Process
	}{
		{o.runs(Etcd), d.etcd},
		{o.runs(CalicoEtcd), d.calicoEtcd},
		{o.runs(APIServer), d.apiServer},
		{o.runs(ControllerManager), d.controllerManager},
		{o.runs(DigitalOcean), d.digitalOcean},
		{o.needsSetup(), d.setup},
		{o.runs(Scheduler), d.scheduler},
		{o.runs(LoadBalancers), d.loadBalancers},
		{o.runs(CloudControllerManager), d.cloudControllerManager},
		{o.runs(Nodes), d.nodes},
		{o.runs(RealNodes), d.realNodes},
		{o.runs(BGPNetwork), d.bgpNetwork},
		{o.runs(CalicoNodeSync), d.calicoNodeSync},
		{o.runs(Page), d.page},
	} {
		if part.wanted {
			blueprint.Processes = append(blueprint.Processes, d.complete(d.addVolumes(part.make())))
		}
	}
	return blueprint, nil
}

// Process returns the description of the named process.
func (b Blueprint) Process(name string) (Process, bool) {
	for _, process := range b.Processes {
		if process.Name == name {
			return process, true
		}
	}
	return Process{}, false
}

// YAML prints the blueprint for people and for golden tests.
func (b Blueprint) YAML() (string, error) {
	text, err := yaml.Marshal(b)
	if err != nil {
		return "", fmt.Errorf("printing the blueprint: %w", err)
	}
	return string(text), nil
}
