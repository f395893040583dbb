// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Step is one write. The set of steps is closed: only the types of this file implement it, and the only switch over them is in
// controller/apply.go.
//
//sumtype:decl
type Step interface {
	// Subject says whose step it is.
	Subject() Subject
	// String is the step in one line, for people.
	String() string
	step()
}

// Subject is the machine a step is about: its Calico node name, and the Kubernetes Node whose absence justifies the step.
// Before each write that destroys something the Kubernetes Node is read again and must still be NotFound, except that of a Second.
type Subject struct {
	Host           string `json:"host"`
	KubernetesNode string `json:"kubernetesNode"`
	// Exact reports that the machine is none of the Nodes that exist under other spellings of KubernetesNode: each of them,
	// which are Served, with spaces in between, has a Calico Node of its own.
	Exact  bool   `json:"exact,omitempty"`
	Served string `json:"-"`
	// Second reports that KubernetesNode exists and has another Calico Node, which its calico-node uses.
	Second bool `json:"second,omitempty"`
	// Leftovers reports that it is about what pods that are gone have left on a machine that lives.
	Leftovers bool `json:"leftovers,omitempty"`
}

// Is reports that the subject is the machine of that name, which may have others in Calico's datastore.
func (s Subject) Is(machine string, calico ...string) bool {
	host := s.Host
	if strings.Contains(host, "/") {
		host = path.Base(host) // a key of the datastore
	}
	return s.KubernetesNode == machine || host == machine || slices.Contains(calico, host)
}

// Fence puts the fence annotation on the Calico Node, if it is still at Revision. Every later step about the same host holds only
// while the Calico Node is as the fence left it: a calico-node that starts again rewrites its Node and thereby stops the clean-up.
type Fence struct {
	Of       Subject `json:"of"`
	Revision int64   `json:"revision"`
}

// Unfence takes the fence annotation from a Calico Node whose Kubernetes Node exists again, if it is still at Revision.
type Unfence struct {
	Of       Subject `json:"of"`
	Revision int64   `json:"revision"`
}

// RemoveEndpoints deletes WorkloadEndpoints in one transaction, each only at its revision.
type RemoveEndpoints struct {
	Of        Subject       `json:"of"`
	Endpoints []EndpointRef `json:"endpoints"`
}

// EndpointRef is a WorkloadEndpoint at a revision.
type EndpointRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Revision  int64  `json:"revision"`
}

// ReleaseAddresses frees addresses of one block in one transaction together with their handles; each only if it is still the
// assignment with that handle and sequence number.
type ReleaseAddresses struct {
	Of        Subject       `json:"of"`
	Block     netip.Prefix  `json:"block"`
	Addresses []Reservation `json:"addresses"`
	// Cooldown is for how long after the release Calico does not assign them again, 0 for not at all.
	Cooldown time.Duration `json:"cooldown,omitzero"`
}

// Reservation names one assignment of one address.
type Reservation struct {
	Address  netip.Addr `json:"address"`
	Handle   string     `json:"handle"`
	Sequence uint64     `json:"sequence"`
}

// RemoveAffinity deletes the host's claim on a block, at its revision. With DeleteBlock the block goes in the same transaction, if it is
// affine to the host and empty by then; without, the block is absent or another's and is not touched.
type RemoveAffinity struct {
	Of          Subject      `json:"of"`
	CIDR        netip.Prefix `json:"cidr"`
	Revision    int64        `json:"revision"`
	DeleteBlock bool         `json:"deleteBlock"`
}

// RemoveResource deletes an object of another kind that is about this host alone, at its revision.
type RemoveResource struct {
	Of       Subject      `json:"of"`
	Kind     ResourceKind `json:"kind"`
	Name     string       `json:"name"`
	Revision int64        `json:"revision"`
}

// BindCluster records on Calico's ClusterInformation, if it is still at Revision, which cluster the datastore belongs to.
type BindCluster struct {
	ClusterUID string `json:"clusterUID"`
	Revision   int64  `json:"revision"`
}

// RemoveHandles deletes IPAM handles under which no block has an address, each at its revision, all or none. It is about no machine.
type RemoveHandles struct {
	Handles []Handle `json:"handles"`
}

// RemoveNode deletes the Calico Node as the fence left it.
type RemoveNode struct {
	Of Subject `json:"of"`
}

// RemoveLeftovers removes endpoints, or releases addresses of one block, of pods that are gone, on a machine that lives. It holds only while
// the Calico Node is at the revision (0 where there is none of its own) and the Kubernetes Node has the UID.
type RemoveLeftovers struct {
	Of        Subject    `json:"of"`
	Revision  int64      `json:"revision"`
	NodeUID   string     `json:"nodeUID"`
	Leftovers []Leftover `json:"leftovers"`
}

// Subject implements Step.
func (s RemoveLeftovers) Subject() Subject { return s.Of }

func (RemoveLeftovers) step() {}

// String implements Step.
func (s RemoveLeftovers) String() string {
	names, what := make([]string, len(s.Leftovers)), "release %s"
	noun := "address"
	for i, l := range s.Leftovers {
		switch {
		case l.Endpoint.Name != "":
			names[i], what, noun = l.Endpoint.Namespace+"/"+l.Endpoint.Name, "remove %s", "workload endpoint"
		case l.Sandbox != "":
			names[i] = fmt.Sprintf("%s (%s/%s, an earlier sandbox)", l.Address, l.Namespace, l.Pod)
		default:
			names[i] = fmt.Sprintf("%s (%s/%s)", l.Address, l.Namespace, l.Pod)
		}
	}
	return fmt.Sprintf(what+" of pods that are gone on %s: %s", prose.Plural(len(names), noun), s.Of.Host, strings.Join(names, ", "))
}

// Subject implements Step.
func (s Fence) Subject() Subject { return s.Of }

// Subject implements Step.
func (s Unfence) Subject() Subject { return s.Of }

// Subject implements Step.
func (s RemoveEndpoints) Subject() Subject { return s.Of }

// Subject implements Step.
func (s ReleaseAddresses) Subject() Subject { return s.Of }

// Subject implements Step.
func (s RemoveAffinity) Subject() Subject { return s.Of }

// Subject implements Step.
func (s RemoveResource) Subject() Subject { return s.Of }

// Subject implements Step: it is about no machine.
func (s BindCluster) Subject() Subject { return Subject{} }

// Subject implements Step.
func (s RemoveHandles) Subject() Subject { return ofHandles() }

// Subject implements Step.
func (s RemoveNode) Subject() Subject { return s.Of }

func (Fence) step()            {}
func (Unfence) step()          {}
func (RemoveEndpoints) step()  {}
func (ReleaseAddresses) step() {}
func (RemoveAffinity) step()   {}
func (RemoveNode) step()       {}

func (RemoveResource) step() {}
func (BindCluster) step()    {}
func (RemoveHandles) step()  {}

func (s Fence) String() string { return "fence Calico Node " + s.Of.Host }

func (s Unfence) String() string {
	return "withdraw the fence from Calico Node " + s.Of.Host + ": Kubernetes Node " + s.Of.KubernetesNode + " exists again"
}

func (s RemoveEndpoints) String() string {
	names := make([]string, len(s.Endpoints))
	for i, e := range s.Endpoints {
		names[i] = e.Namespace + "/" + e.Name
	}
	return fmt.Sprintf("remove %s of %s: %s", prose.Plural(len(names), "workload endpoint"), s.Of.Host, strings.Join(names, ", "))
}

func (s ReleaseAddresses) String() string {
	addresses := make([]string, len(s.Addresses))
	for i, a := range s.Addresses {
		addresses[i] = a.Address.String()
	}
	text := fmt.Sprintf("release %s of %s in block %s: %s", prose.Plural(len(addresses), "address"), s.Of.Host, s.Block, strings.Join(addresses, ", "))
	if s.Cooldown > 0 {
		text += fmt.Sprintf(", with a cooldown of %s", s.Cooldown)
	}
	return text
}

func (s RemoveAffinity) String() string {
	if s.DeleteBlock {
		return fmt.Sprintf("remove the affinity of %s to block %s, and the empty block", s.Of.Host, s.CIDR)
	}
	return fmt.Sprintf("remove the affinity of %s to %s", s.Of.Host, s.CIDR)
}

func (s RemoveResource) String() string {
	return fmt.Sprintf("remove %s %s of %s", s.Kind, s.Name, s.Of.Host)
}

func (s BindCluster) String() string {
	return "record that this datastore belongs to the cluster whose kube-system has UID " + s.ClusterUID
}

func (s RemoveHandles) String() string {
	ids := make([]string, len(s.Handles))
	for i, h := range s.Handles {
		ids[i] = h.ID
	}
	return fmt.Sprintf("remove %s of no address: %s", prose.Plural(len(ids), "IPAM handle"), strings.Join(ids, ", "))
}

func (s RemoveNode) String() string { return "remove Calico Node " + s.Of.Host }

// Kind is the step's type name, as it stands in JSON, logs and metrics.
func Kind(s Step) string { return strings.TrimPrefix(fmt.Sprintf("%T", s), "nodesync.") }

// MarshalJSON writes each step as {"kind": ..., "step": {...}}.
func (p Plan) MarshalJSON() ([]byte, error) {
	type entry struct {
		Kind string `json:"kind"`
		Step Step   `json:"step"`
	}
	out := struct {
		Steps    []entry   `json:"steps"`
		Refusals []Refusal `json:"refusals"`
	}{Steps: make([]entry, 0, len(p.Steps)), Refusals: p.Refusals}
	if out.Refusals == nil {
		out.Refusals = []Refusal{}
	}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, entry{Kind: Kind(s), Step: s})
	}
	return json.Marshal(out)
}
