// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"path/filepath"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

// containerdConfig leaves out what asks for rights that root may not have in a container or virtual machine: CAP_SYS_RESOURCE (oom_score_adj) and
// AppArmor.
func (m Machine) containerdConfig(cni string) string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q
`, runtimeSocket, image.Pause, filepath.Join(m.Bin, "cni"), cni)
}

// cniConfig has each pod on a cable of its own to the machine (ptp) rather than on a bridge: then what a pod sends to a Service passes the machine's
// rules also if the endpoint is its neighbor, whether or not this kernel filters what crosses a bridge.
func (m Machine) cniConfig() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
  "type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, PodCIDR(m.Address))
}

// heartbeats are the settings by which a kubelet shows that it lives: twice as often as by default, so that a Node is
// NotReady after the lab's 20 seconds and not before.
func (m Machine) heartbeats() string {
	if m.DefaultHeartbeats {
		return ""
	}
	return "nodeLeaseDurationSeconds: 20\nnodeStatusUpdateFrequency: 5s\n"
}

// kubeletConfig switches off what judges this machine's own memory and disk, which all machines of the lab share.
func (m Machine) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %q}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %q
tlsPrivateKeyFile: %q
address: %s
healthzPort: 0
containerRuntimeEndpoint: unix://%s
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: ""
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %s
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
oomScoreAdj: 0
%ssyncFrequency: 10s
`, m.ClientCAFile, m.KubeletServer+".crt", m.KubeletServer+".key", m.Address, runtimeSocket, blueprint.NamesService, m.CgroupRoot, m.heartbeats())
}

// proxyConfig leaves the size of the table of connections alone, which only the kernel's first network namespace may change.
func (m Machine) proxyConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %q}
hostnameOverride: %s
bindAddress: %s
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
`, kubeconfig, m.Name, m.Address, blueprint.RealPodCIDR)
}
