// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package describe says what a real machine consists of, as a value: mounts, files, kernel settings and programs. Package inside makes it real.
//
// A machine sees this machine's file system with a disk of its own in place of /var/lib and /var/log, and an empty /run: so kubelet, containerd and
// CSI drivers have the paths that they have everywhere, and no two machines share a socket. What is in /run is gone after a power-off.
package describe

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

// Machine is what a machine is made from.
type Machine struct {
	// Name is that of the machine and its Node; Zone its label, if any.
	Name, Zone string
	Address    netip.Addr
	// External makes its Node wait for a cloud controller manager.
	External bool
	// DefaultHeartbeats leaves the kubelet the defaults of Kubernetes.
	DefaultHeartbeats bool
	// Dir is the machine's own folder and Bin that of the programs, both absolute.
	Dir, Bin string
	// CgroupRoot is the kubelet's, as a path from the top of the hierarchies.
	CgroupRoot string
	// APIServer is the URL of the API server as the machine reaches it.
	APIServer string
	// AuthorityFile proves the API server; ClientCAFile what comes to the kubelet; the others are named without .crt and .key.
	AuthorityFile, ClientCAFile, KubeletClient, KubeletServer, ProxyClient string
	// Labels are the Node's.
	Labels []string
	// Archives are images to have from the start.
	Archives []image.Archive
}

// Description is a machine that can be started.
type Description struct {
	Hostname string `json:"hostname"`
	// Folders are made first. Binds puts one path in the place of another, and Temporary are empty folders in memory.
	Folders   []string `json:"folders"`
	Binds     []Bind   `json:"binds"`
	Temporary []string `json:"temporary"`
	Files     []File   `json:"files"`
	// Settings are kernel settings of the machine's own network namespace. Constants are those that all machines share, and that a kubelet would
	// change for this machine as a whole: it reads that they are right already.
	Settings  []Setting `json:"settings"`
	Constants []Setting `json:"constants"`
	// Programs run for as long as the machine does, in this order; each starts once the one before it has its socket.
	Programs []Program `json:"programs"`
}

// Bind is a bind mount.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// File is written before the first program starts.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// Setting is a file below /proc/sys.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Program is one that is started again whenever it ends.
type Program struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Log  string   `json:"log"`
	// Socket exists once the program serves; Then are commands that must succeed then.
	Socket string     `json:"socket,omitempty"`
	Then   [][]string `json:"then,omitempty"`
}

// Where things are inside a machine.
const (
	runtimeSocket = "/run/containerd/containerd.sock"
	systemPath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// PodCIDR is where the pods of the machine with an address have theirs: one of 256 ranges, by the last byte. It is invalid for an address that no
// range is for.
func PodCIDR(address netip.Addr) netip.Prefix {
	b := address.As4()
	if b[2] != 0 {
		return netip.Prefix{}
	}
	p := netip.MustParsePrefix(blueprint.RealPodCIDR).Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{p[0], p[1], b[3], 0}), 24)
}

// Make describes a machine.
func Make(m Machine) Description {
	at := func(name string) string { return filepath.Join(m.Dir, name) }
	env := []string{"PATH=" + m.Bin + ":" + systemPath, "HOME=/run", "TMPDIR=/run"}
	d := Description{
		Hostname:  m.Name,
		Folders:   []string{at("disk/lib/kubelet"), at("disk/log/pods"), at("etc/cni"), at("logs")},
		Binds:     []Bind{{at("disk/lib"), "/var/lib"}, {at("disk/log"), "/var/log"}},
		Temporary: []string{"/run"},
		Files: []File{
			{at("etc/containerd.toml"), m.containerdConfig(at("etc/cni"))},
			{at("etc/cni/10-lab.conflist"), m.cniConfig()},
			{at("etc/kubelet.yaml"), m.kubeletConfig()},
			{at("etc/kubelet.kubeconfig"), m.kubeconfig(m.KubeletClient)},
			{at("etc/kube-proxy.yaml"), m.proxyConfig(at("etc/kube-proxy.kubeconfig"))},
			{at("etc/kube-proxy.kubeconfig"), m.kubeconfig(m.ProxyClient)},
		},
		Settings: []Setting{{"net/ipv4/ip_forward", "1"}},
		Constants: []Setting{
			{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"}, {"kernel/panic_on_oops", "1"},
			{"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
		},
	}
	runtime := Program{
		Name: "containerd", Path: filepath.Join(m.Bin, "containerd"), Args: []string{"--config=" + at("etc/containerd.toml")},
		Env: env, Log: at("logs/containerd.log"), Socket: runtimeSocket,
	}
	for _, a := range m.Archives {
		runtime.Then = append(runtime.Then, []string{
			filepath.Join(m.Bin, "ctr"), "--address=" + runtimeSocket, "--namespace=k8s.io", "images", "import", "--base-name=" + a.Repository, a.Path,
		})
	}
	kubelet := Program{
		Name: "kubelet", Path: filepath.Join(m.Bin, "kubelet"), Env: env, Log: at("logs/kubelet.log"),
		Args: []string{
			"--config=" + at("etc/kubelet.yaml"), "--kubeconfig=" + at("etc/kubelet.kubeconfig"), "--root-dir=/var/lib/kubelet",
			"--hostname-override=" + m.Name, "--node-ip=" + m.Address.String(), "--node-labels=" + strings.Join(m.Labels, ","),
		},
	}
	if m.External {
		kubelet.Args = append(kubelet.Args, "--cloud-provider=external")
	}
	proxy := Program{
		Name: "kube-proxy", Path: filepath.Join(m.Bin, "kube-proxy"), Args: []string{"--config=" + at("etc/kube-proxy.yaml")},
		Env: env, Log: at("logs/kube-proxy.log"),
	}
	d.Programs = []Program{runtime, kubelet, proxy}
	return d
}

func (m Machine) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: machine, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: machine}}]
current-context: lab
`, m.APIServer, m.AuthorityFile, user+".crt", user+".key")
}
