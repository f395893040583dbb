// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"

	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

const (
	// network is the name in the CNI configuration of Calico's manifests, and the first part of pods' IPAM handles.
	network = "k8s-pod-network"
	// endpoint is the name of the interface that a container runtime asks for.
	endpoint = "eth0"
)

// ContainerID is the identifier of the pod's sandbox that the container runtime passes to the plugins: 64 hexadecimal
// digits. A runtime draws it at random; here it follows from the pod's UID: a pod with another UID is the same one in another sandbox.
func ContainerID(pod *corev1.Pod) string {
	sum := sha256.Sum256([]byte("sandbox/" + string(pod.UID)))
	return hex.EncodeToString(sum[:])
}

// HandleID is the IPAM handle under which the pod's address is allocated.
func HandleID(pod *corev1.Pod) string { return network + "." + ContainerID(pod) }

// PodNetwork is what the CNI and IPAM plugins do on one host. It has the methods that package kubelet asks of a pod
// network. Pods on the host's network have no business here.
type PodNetwork struct{ agent *Agent }

// PodNetwork returns the host's CNI plugin.
func (a *Agent) PodNetwork() *PodNetwork { return &PodNetwork{agent: a} }

// Add writes what the plugins write for a new pod: an allocation of one IPv4 address under the pod's handle (an IPv6
// address if there is no IPv4 pool, one of each family if the host is dual stack), and the WorkloadEndpoint. With the Kubernetes datastore the latter is three
// annotations on the pod, which must exist. If the endpoint cannot be written, the address is released. A second call for the same sandbox allocates
// another address under the same handle, and the endpoint has that alone.
//
// Needed of the pod are name, namespace, UID, labels, annotations, generateName, service account and container ports.
func (n *PodNetwork) Add(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error) {
	addresses, err := n.agent.add(ctx, pod, n.agent.assign)
	if err != nil {
		return nil, fmt.Errorf("connecting pod %s/%s on host %q: %w", pod.Namespace, pod.Name, n.agent.host.Name, err)
	}
	return addresses, nil
}

// add connects a pod with the addresses that assign allocates.
func (a *Agent) add(ctx context.Context, pod *corev1.Pod, assign func(context.Context, *corev1.Pod) ([]netip.Addr, error)) ([]netip.Addr, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	existing, err := a.existingEndpoint(ctx, pod)
	if err != nil {
		return nil, err
	}
	addresses, err := assign(ctx, pod)
	if err != nil {
		return nil, err
	}
	if err := a.writeEndpoint(ctx, pod, existing, addresses); err != nil {
		release := a.datastore.client.IPAM().ReleaseByHandle(ctx, HandleID(pod))
		return nil, errors.Join(err, wrap(ignoreAbsent(release), "releasing the address again"))
	}
	return addresses, nil
}

// Del undoes Add: the WorkloadEndpoint goes, unless it has become that of another sandbox, and then whatever the pod's
// handle holds. It succeeds for a pod that has nothing.
func (n *PodNetwork) Del(ctx context.Context, pod *corev1.Pod) error {
	err := retryOnConflict(ctx, func() error { return n.agent.deleteEndpoint(ctx, pod) })
	if err == nil {
		err = n.agent.release(ctx, pod)
	}
	return wrap(err, fmt.Sprintf("disconnecting pod %s/%s on host %q", pod.Namespace, pod.Name, n.agent.host.Name))
}

// ready fails while an administrator or an upgrade has locked the datastore.
func (a *Agent) ready(ctx context.Context) error {
	info, err := a.datastore.client.ClusterInformation().Get(ctx, "default", options.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading ClusterInformation: %w", err)
	}
	if info.Spec.DatastoreReady == nil || !*info.Spec.DatastoreReady {
		return errors.New("the datastore is locked (ClusterInformation.datastoreReady is not true)")
	}
	return nil
}

// identifiers are what the name of the pod's endpoint is made of.
func (a *Agent) identifiers(pod *corev1.Pod) names.WorkloadEndpointIdentifiers {
	return names.WorkloadEndpointIdentifiers{
		Node: a.host.Name, Orchestrator: apiv3.OrchestratorKubernetes, Pod: pod.Name, Endpoint: endpoint,
		ContainerID: ContainerID(pod),
	}
}

// existingEndpoint is the pod's endpoint if it has one, under whatever interface name; nil if not.
func (a *Agent) existingEndpoint(ctx context.Context, pod *corev1.Pod) (*libapi.WorkloadEndpoint, error) {
	ids := a.identifiers(pod)
	ids.Endpoint = ""
	prefix, err := ids.CalculateWorkloadEndpointName(true)
	if err != nil {
		return nil, fmt.Errorf("naming the workload endpoint: %w", err)
	}
	ctx = resources.ContextWithWorkloadEndpointListMode(ctx, resources.WorkloadEndpointListModeForceGet)
	list, err := a.datastore.client.WorkloadEndpoints().
		List(ctx, options.ListOptions{Namespace: pod.Namespace, Name: prefix, Prefix: true})
	if err != nil {
		return nil, fmt.Errorf("listing workload endpoints: %w", err)
	}
	for i := range list.Items {
		match, err := ids.NameMatches(list.Items[i].Name)
		if err != nil {
			return nil, fmt.Errorf("comparing names of workload endpoints: %w", err)
		}
		if match {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// assign allocates the pod's addresses. Like the plugin it does not care what its handle holds already.
func (a *Agent) assign(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error) {
	v4, err := a.hasPool(ctx, 4)
	if err != nil {
		return nil, err
	}
	args := ipam.AutoAssignArgs{
		HandleID: new(HandleID(pod)), Hostname: a.host.Name, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Attrs: podAttributes(a.host.Name, pod),
	}
	if v4 {
		args.Num4 = 1
	}
	if !v4 || a.host.DualStack {
		args.Num6 = 1
	}
	return a.autoAssign(ctx, args)
}

// podAttributes are what IPAM remembers about a pod's address.
func podAttributes(host string, pod *corev1.Pod) map[string]string {
	return map[string]string{
		ipam.AttributeNode:      host,
		ipam.AttributeTimestamp: time.Now().UTC().String(),
		ipam.AttributePod:       pod.Name,
		ipam.AttributeNamespace: pod.Namespace,
	}
}

// autoAssign allocates the addresses that args ask for, of which there is at least one.
func (a *Agent) autoAssign(ctx context.Context, args ipam.AutoAssignArgs) ([]netip.Addr, error) {
	a.ipam.Lock()
	defer a.ipam.Unlock()
	v4, v6, err := a.datastore.client.IPAM().AutoAssign(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("assigning an address: %w", err)
	}
	var all []cnet.IPNet
	for _, assigned := range []*ipam.IPAMAssignments{v4, v6} {
		if assigned == nil {
			continue
		}
		if err := assigned.PartialFulfillmentError(); err != nil {
			return nil, fmt.Errorf("assigning an address: %w", err)
		}
		all = append(all, assigned.IPs...)
	}
	if len(all) == 0 {
		return nil, errors.New("assigning an address: IPAM gave none")
	}
	return inOrder(all, func(ip cnet.IPNet) net.IP { return ip.IP })
}

// inOrder are libcalico-go's addresses, the IPv4 ones first.
func inOrder[T any](all []T, ip func(T) net.IP) ([]netip.Addr, error) {
	out := make([]netip.Addr, 0, len(all))
	for _, one := range all {
		address, err := toAddr(ip(one))
		if err != nil {
			return nil, err
		}
		out = append(out, address)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

func (a *Agent) hasPool(ctx context.Context, version int) (bool, error) {
	pools, err := a.datastore.client.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("listing IP pools: %w", err)
	}
	for _, pool := range pools.Items {
		prefix, err := netip.ParsePrefix(pool.Spec.CIDR)
		if err == nil && !pool.Spec.Disabled && prefix.Addr().Is4() == (version == 4) {
			return true, nil
		}
	}
	return false, nil
}

// writeEndpoint creates the pod's endpoint, or makes the existing one that of this sandbox.
func (a *Agent) writeEndpoint(ctx context.Context, pod *corev1.Pod, wep *libapi.WorkloadEndpoint, addresses []netip.Addr) error {
	// Labels, profiles, ports and so on are libcalico-go's reading of the pod, as in the plugin.
	placed := pod.DeepCopy()
	placed.Spec.NodeName = a.host.Name
	converted, err := conversion.NewConverter().PodToWorkloadEndpoints(placed)
	if err != nil {
		return fmt.Errorf("reading the pod as a workload endpoint: %w", err)
	}
	from, ok := converted[0].Value.(*libapi.WorkloadEndpoint)
	if !ok {
		return fmt.Errorf("reading the pod as a workload endpoint: got a %T", converted[0].Value)
	}
	if wep == nil {
		wep = libapi.NewWorkloadEndpoint()
		wep.Name = from.Name
		wep.Spec.Endpoint = endpoint
	}
	wep.Namespace = pod.Namespace
	wep.Labels = from.Labels
	wep.GenerateName = from.GenerateName
	wep.Spec.Node = a.host.Name
	wep.Spec.Orchestrator = apiv3.OrchestratorKubernetes
	wep.Spec.Pod = pod.Name
	wep.Spec.ContainerID = ContainerID(pod)
	wep.Spec.Ports = from.Spec.Ports
	wep.Spec.Profiles = from.Spec.Profiles
	wep.Spec.ServiceAccountName = from.Spec.ServiceAccountName
	wep.Spec.InterfaceName = from.Spec.InterfaceName
	wep.Spec.AllowSpoofedSourcePrefixes = from.Spec.AllowSpoofedSourcePrefixes
	wep.Spec.IPNetworks = nil
	for _, address := range addresses {
		wep.Spec.IPNetworks = append(wep.Spec.IPNetworks, netip.PrefixFrom(address, address.BitLen()).String())
	}
	wep.Spec.MAC = macOf(pod)

	ctx = resources.ContextWithPatchMode(ctx, resources.PatchModeCNI)
	if wep.ResourceVersion == "" {
		_, err = a.datastore.client.WorkloadEndpoints().Create(ctx, wep, options.SetOptions{})
	} else {
		_, err = a.datastore.client.WorkloadEndpoints().Update(ctx, wep, options.SetOptions{})
	}
	return wrap(err, "writing workload endpoint "+wep.Name)
}

// macOf stands for the random, locally administered address that the kernel gives the pod's interface.
func macOf(pod *corev1.Pod) string {
	sum := sha256.Sum256([]byte("mac/" + string(pod.UID)))
	sum[0] = sum[0]&^1 | 2
	return net.HardwareAddr(sum[:6]).String()
}

// deleteEndpoint deletes the pod's endpoint if it is still that of the pod's sandbox.
func (a *Agent) deleteEndpoint(ctx context.Context, pod *corev1.Pod) error {
	name, err := a.identifiers(pod).CalculateWorkloadEndpointName(false)
	if err != nil {
		return fmt.Errorf("naming the workload endpoint: %w", err)
	}
	endpoints := a.datastore.client.WorkloadEndpoints()
	wep, err := endpoints.Get(ctx, pod.Namespace, name, options.GetOptions{})
	if err != nil {
		return wrap(ignoreAbsent(err), "reading workload endpoint "+name)
	}
	if wep.Spec.ContainerID != "" && wep.Spec.ContainerID != ContainerID(pod) {
		return nil
	}
	_, err = endpoints.Delete(ctx, pod.Namespace, name, options.DeleteOptions{ResourceVersion: wep.ResourceVersion, UID: &wep.UID})
	return wrap(ignoreAbsent(err), "deleting workload endpoint "+name)
}

func (a *Agent) release(ctx context.Context, pod *corev1.Pod) error {
	a.ipam.Lock()
	defer a.ipam.Unlock()
	err := a.datastore.client.IPAM().ReleaseByHandle(ctx, HandleID(pod))
	return wrap(ignoreAbsent(err), "releasing the addresses of handle "+HandleID(pod))
}

func toAddr(ip net.IP) (netip.Addr, error) {
	address, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}, fmt.Errorf("IPAM gave %v, which is not an address", ip)
	}
	return address.Unmap(), nil
}
