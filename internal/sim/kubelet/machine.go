// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodNetwork is a machine's CNI plugin, as a kubelet sees it.
type PodNetwork interface {
	// Add gives the pod an address, or one of each family with the pod's first address first, and returns them. It is
	// idempotent: for a pod (by UID) that has addresses it returns them again, because a kubelet that restarts asks again.
	Add(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error)
	// Del takes the pod's addresses back. It is idempotent, and succeeds for a pod it has never heard of.
	Del(ctx context.Context, pod *corev1.Pod) error
}

// Machine describes one machine and how its kubelet is configured.
type Machine struct {
	// Name is the name of the Node and the value of its hostname label: a DNS-1123 subdomain.
	Name string
	// Zone becomes the label topology.kubernetes.io/zone; empty means no such label. It is left to the cloud
	// controller manager when ExternalCloudProvider is set.
	Zone string
	// Address is the machine's node IP: the Node's InternalIP and the address of pods on the host's network.
	// It may be left out only together with ExternalCloudProvider, which then has to supply it.
	Address netip.Addr
	// ProviderID becomes spec.providerID at registration (kubelet's --provider-id); empty leaves it to others.
	ProviderID string
	// ExternalCloudProvider is kubelet's --cloud-provider=external: the Node starts with the taint
	// node.cloudprovider.kubernetes.io/uninitialized, and addresses set by others are respected.
	ExternalCloudProvider bool
	// Labels are kubelet's --node-labels. They are set when the Node is created, and not put back afterwards.
	Labels map[string]string
	// Taints are kubelet's --register-with-taints: on the Node when it is created, and not put back afterwards.
	Taints []corev1.Taint
	// PodNetwork is the machine's CNI plugin. Without one, pods that need an address stay Pending.
	PodNetwork PodNetwork
}

// validate reports everything that a kubelet or the API server would refuse.
func (m Machine) validate() error {
	var problems []error
	if bad := validation.IsDNS1123Subdomain(m.Name); len(bad) > 0 {
		problems = append(problems, fmt.Errorf("name %q: %s", m.Name, strings.Join(bad, "; ")))
	}
	if !m.Address.IsValid() && !m.ExternalCloudProvider {
		problems = append(problems, errors.New("an address is needed unless an external cloud provider supplies it"))
	}
	if bad := validation.IsValidLabelValue(m.Zone); len(bad) > 0 {
		problems = append(problems, fmt.Errorf("zone %q: %s", m.Zone, strings.Join(bad, "; ")))
	}
	for _, key := range sortedKeys(m.Labels) {
		bad := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(m.Labels[key]))
		if len(bad) > 0 {
			problems = append(problems, fmt.Errorf("label %q=%q: %s", key, m.Labels[key], strings.Join(bad, "; ")))
		}
	}
	return errors.Join(problems...)
}

// phase reports whether a machine takes part in the world.
type phase int

const (
	alive phase = iota
	frozen
	gone
)

// machine is a Machine with the state of its kubelet.
type machine struct {
	Machine
	// bootID is new for each Add and Restart of the machine, as after a reboot.
	bootID string

	// registering, renewing and reporting are the machine's due times in the fleet's scheduler.
	registering, renewing, reporting *task

	// control serializes Freeze, Thaw, Restart and Destroy.
	control sync.Mutex
	// work counts the operations in flight. It only grows, under mu, while the phase is alive.
	work sync.WaitGroup

	mu           sync.Mutex // guards everything below
	phase        phase
	registered   bool
	lease        *coordinationv1.Lease // as last written; nil if not known
	lastReport   time.Time             // when the Node's status was last written; zero after a start
	reportJitter time.Duration         // added to the status interval until the next report
}

// begin enters an operation on behalf of the machine and reports whether it may proceed. If so, end must follow.
func (m *machine) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != alive {
		return false
	}
	m.work.Add(1)
	return true
}

func (m *machine) end() { m.work.Done() }

// enter changes the phase. When it returns and the phase is not alive, no operation is in flight and none begins.
// The caller holds control.
func (m *machine) enter(p phase) {
	m.mu.Lock()
	m.phase = p
	m.mu.Unlock()
	if p != alive {
		m.work.Wait()
	}
}

func (m *machine) isRegistered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registered
}

// backoff doubles from 200 ms to 7 s, which is what kubelet does for both registration and its Lease.
func backoff(failures int) time.Duration {
	const first, most = 200 * time.Millisecond, 7 * time.Second
	if failures > 6 {
		return most
	}
	return min(first<<(max(failures, 1)-1), most)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
