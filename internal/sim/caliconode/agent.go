// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"sync"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// ErrAddressConflict is the error of a calico-node that refuses to start because another Calico Node has its address:
// what a stale Node does to a machine that inherits an address.
var ErrAddressConflict = errors.New("another Calico node has this address")

// Host is a machine and how its calico-node is configured.
type Host struct {
	// Name is calico-node's NODENAME: the name of the Calico Node. With the Kubernetes datastore it is that of the
	// Kubernetes Node, which must exist.
	Name string
	// KubernetesNode is CALICO_K8S_NODE_REF: the name of the Kubernetes Node that the Calico Node says it is. Empty
	// means no orchRef, as for a host outside the cluster. With the Kubernetes datastore it is implied.
	KubernetesNode string
	// Address is the machine's address; IPv4 unless the machine has no other. AddressV6 may be added.
	Address   netip.Addr
	AddressV6 netip.Addr
	// Bits and BitsV6 are the prefix lengths of the machine's network as autodetected, 24 and 64 if zero.
	Bits, BitsV6 int
	// DualStack gives each pod an address of both families, as the CNI plugin does with assign_ipv4 and assign_ipv6; there
	// must be a pool of each.
	DualStack bool
	// IPIP, VXLAN, VXLANv6, Wireguard and WireguardV6 give the machine tunnel addresses. The first three need an enabled
	// IP pool of that encapsulation and IP version, the others one of the IP version. (calico-node decides the first
	// three from the pools alone; here one pool can serve machines with and without.)
	IPIP, VXLAN, VXLANv6, Wireguard, WireguardV6 bool
	// ASNumber is calico-node's AS; zero leaves the Node to the cluster's default.
	ASNumber uint32
	// Labels are put on the Calico Node, alongside those it has: what kube-controllers or an administrator do, not
	// calico-node.
	Labels map[string]string
}

func (h Host) validate() error {
	switch {
	case h.Name == "" || strings.HasPrefix(h.Name, "-") || strings.HasSuffix(h.Name, "-"):
		return fmt.Errorf("%q is not a name for a Calico node", h.Name)
	case !h.Address.IsValid():
		return fmt.Errorf("host %q has no address", h.Name)
	case h.AddressV6.IsValid() && !h.AddressV6.Is6():
		return fmt.Errorf("host %q: %s is not an IPv6 address", h.Name, h.AddressV6)
	}
	return nil
}

// cidrs are the host's addresses in the form address/prefix length, empty where there is none.
func (h Host) cidrs() (v4, v6 string) {
	cidr := func(a netip.Addr, bits, otherwise int) string {
		if bits == 0 {
			bits = otherwise
		}
		return netip.PrefixFrom(a, bits).String()
	}
	if h.Address.Is4() {
		v4 = cidr(h.Address, h.Bits, 24)
	} else {
		v6 = cidr(h.Address, h.Bits, 64)
	}
	if h.AddressV6.IsValid() {
		v6 = cidr(h.AddressV6, h.BitsV6, 64)
	}
	return v4, v6
}

// Agent is a host whose calico-node has started and whose CNI plugins are installed.
type Agent struct {
	datastore *Datastore
	host      Host

	// ipam stands for the file lock by which the CNI plugins of one machine take turns at IPAM.
	ipam sync.Mutex
}

// Host is the host that the agent was started for.
func (a *Agent) Host() Host { return a.host }

// Start writes what calico-node v3.31 writes at a start. The Calico Node is created, or updated if it exists: it keeps its
// UID and whatever others have put on it, and its revision moves, changed or not, if it has an orchRef or an AS number.
// Then come the cluster's defaults if they are missing, with etcd a FelixConfiguration "node.<name>", and the tunnel
// addresses, which are released if the host no longer asks for them.
//
// Another Calico Node with one of the host's addresses is [ErrAddressConflict], when the address is new for the host.
func (d *Datastore) Start(ctx context.Context, host Host) (*Agent, error) {
	if err := host.validate(); err != nil {
		return nil, fmt.Errorf("starting calico-node: %w", err)
	}
	agent := &Agent{datastore: d, host: host}
	for _, step := range []func(context.Context) error{
		agent.upgrade, agent.writeNode, d.ensureDefaults, agent.ensureFelixConfig, agent.announceWireguard,
		agent.reconcileTunnels,
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("starting calico-node on host %q: %w", host.Name, err)
		}
	}
	return agent, nil
}

func (a *Agent) upgrade(ctx context.Context) error {
	return wrap(a.datastore.client.IPAM().UpgradeHost(ctx, a.host.Name), "upgrading the host's IPAM data")
}

// writeNode creates or updates the Calico Node.
func (a *Agent) writeNode(ctx context.Context) error {
	return retryOnConflict(ctx, func() error {
		node, err := a.datastore.client.Nodes().Get(ctx, a.host.Name, options.GetOptions{})
		if isAbsent(err) {
			node = libapi.NewNode()
			node.Name = a.host.Name
		} else if err != nil {
			return fmt.Errorf("reading the Calico node: %w", err)
		}
		before := node.DeepCopy()
		newAddress := a.configure(node)
		if newAddress {
			if err := a.checkConflict(ctx, node); err != nil {
				return err
			}
		}
		always := a.host.KubernetesNode != "" || a.host.ASNumber != 0
		if node.ResourceVersion == "" {
			_, err = a.datastore.client.Nodes().Create(ctx, node, options.SetOptions{})
		} else if always || !reflect.DeepEqual(before, node) {
			_, err = a.datastore.client.Nodes().Update(ctx, node, options.SetOptions{})
		}
		return wrap(err, "writing the Calico node")
	})
}

// configure sets what calico-node sets, and reports whether an address has changed.
func (a *Agent) configure(node *libapi.Node) (newAddress bool) {
	if node.Spec.BGP == nil {
		node.Spec.BGP = &libapi.NodeBGPSpec{}
	}
	bgp := node.Spec.BGP
	v4, v6 := a.host.cidrs()
	newAddress = bgp.IPv4Address != v4 || bgp.IPv6Address != v6
	bgp.IPv4Address, bgp.IPv6Address = v4, v6
	// Written because the manifests say IP=autodetect, which looks at the machine's interfaces.
	eth0 := libapi.NodeInterface{Name: "eth0"}
	for _, address := range []netip.Addr{a.host.Address, a.host.AddressV6} {
		if address.IsValid() {
			eth0.Addresses = append(eth0.Addresses, address.String())
		}
	}
	node.Spec.Interfaces = []libapi.NodeInterface{eth0}
	if a.host.ASNumber != 0 {
		as := numorstring.ASNumber(a.host.ASNumber)
		bgp.ASNumber = &as
	}
	if a.host.KubernetesNode != "" {
		node.Spec.OrchRefs = []libapi.OrchRef{{NodeName: a.host.KubernetesNode, Orchestrator: apiv3.OrchestratorKubernetes}}
	}
	if len(a.host.Labels) > 0 {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		maps.Copy(node.Labels, a.host.Labels)
	}
	return newAddress
}

// checkConflict refuses an address that another Calico Node has.
func (a *Agent) checkConflict(ctx context.Context, node *libapi.Node) error {
	list, err := a.datastore.client.Nodes().List(ctx, options.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Calico nodes to look for conflicting addresses: %w", err)
	}
	for _, other := range list.Items {
		if other.Name == node.Name || other.Spec.BGP == nil {
			continue
		}
		for _, pair := range [][2]string{
			{node.Spec.BGP.IPv4Address, other.Spec.BGP.IPv4Address},
			{node.Spec.BGP.IPv6Address, other.Spec.BGP.IPv6Address},
		} {
			if ours, theirs := addressOf(pair[0]), addressOf(pair[1]); ours != "" && ours == theirs {
				return fmt.Errorf("%w: %s, node %q", ErrAddressConflict, ours, other.Name)
			}
		}
	}
	return nil
}

// addressOf strips the prefix length from a CIDR or address as Calico stores it.
func addressOf(cidr string) string {
	address, _, _ := strings.Cut(cidr, "/")
	return address
}

// ensureFelixConfig writes the host's own FelixConfiguration, which the Kubernetes datastore does not have.
func (a *Agent) ensureFelixConfig(ctx context.Context) error {
	if a.datastore.cfg.Spec.DatastoreType == apiconfig.Kubernetes {
		return nil
	}
	felix := a.datastore.client.FelixConfigurations()
	name := "node." + a.host.Name
	config, err := felix.Get(ctx, name, options.GetOptions{})
	switch {
	case isAbsent(err):
		config = apiv3.NewFelixConfiguration()
		config.Name = name
		config.Spec.DefaultEndpointToHostAction = "Return"
		_, err = felix.Create(ctx, config, options.SetOptions{})
		err = ignoreExists(err)
	case err == nil && config.Spec.DefaultEndpointToHostAction == "":
		config.Spec.DefaultEndpointToHostAction = "Return"
		_, err = felix.Update(ctx, config, options.SetOptions{})
		if isConflict(err) {
			err = nil // as calico-node: somebody else has just written it
		}
	}
	return wrap(err, "writing Felix' configuration for the host")
}

// announceWireguard publishes the keys of the host's Wireguard devices, as Felix does once it has made them. Felix also
// withdraws them when Wireguard is switched off.
func (a *Agent) announceWireguard(ctx context.Context) error {
	return a.updateNode(ctx, func(node *libapi.Node) error {
		node.Status.WireguardPublicKey, node.Status.WireguardPublicKeyV6 = "", ""
		if a.host.Wireguard {
			node.Status.WireguardPublicKey = publicKey(a.host.Name, "4")
		}
		if a.host.WireguardV6 {
			node.Status.WireguardPublicKeyV6 = publicKey(a.host.Name, "6")
		}
		return nil
	})
}

// updateNode changes the Calico Node, and writes it only if it has changed.
func (a *Agent) updateNode(ctx context.Context, change func(*libapi.Node) error) error {
	return retryOnConflict(ctx, func() error {
		node, err := a.datastore.client.Nodes().Get(ctx, a.host.Name, options.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the Calico node: %w", err)
		}
		before := node.DeepCopy()
		if err := change(node); err != nil {
			return err
		}
		if reflect.DeepEqual(before, node) {
			return nil
		}
		_, err = a.datastore.client.Nodes().Update(ctx, node, options.SetOptions{})
		return wrap(err, "updating the Calico node")
	})
}

// publicKey is a stable stand-in for a Curve25519 key: 32 bytes in base64.
func publicKey(host, version string) string {
	sum := sha256.Sum256([]byte("wireguard/" + version + "/" + host))
	return base64.StdEncoding.EncodeToString(sum[:])
}
