// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TaintValue is the value of the taint node.kubernetes.io/out-of-service that this component sets, by which it knows its own. It MUST NOT change: a
// version that looks for another one leaves the taints of the old one on machines that are back.
const TaintValue = "digitalocean-cloud-controller-manager"

// State is what DigitalOcean says of a droplet, in one word.
type State string

// The states. Only StateOff and StateGone can put a machine out of service.
const (
	StateUnknown State = ""
	StateActive  State = "active"
	StateOff     State = "off"
	// StateGone means that a GET by ID responded with 404. A list that lacks a droplet is StateUnknown.
	StateGone State = "gone"
	// StateOther is any other state of a droplet: new, archive.
	StateOther State = "other"
)

// Out reports whether a machine in this state does not run.
func (s State) Out() bool { return s == StateOff || s == StateGone }

// World is all that is known when it is decided which machines are out of service.
type World struct {
	Now time.Time
	// Enabled reports whether taints may be set. They are removed in any case.
	Enabled bool
	// Distrust is one sentence why DigitalOcean's answers may be about another account, empty if they are about this cluster.
	Distrust string
	// Machines are all Nodes of the cluster that name a droplet.
	Machines []Machine
	// Memory is what the last plan asked to remember, and Confirmation what a person has confirmed (HASH/TIME).
	Memory       Memory
	Confirmation string
}

// Machine is a Node with its droplet.
type Machine struct {
	Node, UID string
	Droplet   int
	// Ready reports whether the Node's condition Ready is True.
	Ready bool
	// NotReadySince is since when this process sees the Node as not ready, the zero time while it is ready.
	NotReadySince time.Time
	Lease         Lease
	// State is the newest word of DigitalOcean, of a list or a GET by ID, at StateAt. It stays while DigitalOcean cannot be reached.
	State   State
	StateAt time.Time
	Proof   Proof
	// Reports reports whether the kubelet itself calls the Node not ready (False, not Unknown), Volumes whether volumes are attached to it.
	Reports, Volumes bool
	// Ours and Foreign report whether the Node has the taint with our value, and with another value or effect.
	Ours, Foreign bool
}

// Lease is what is known of a kubelet's Lease.
type Lease struct {
	// ReadAt is when it was read last, and SilentSince since when this process reads the same renewal. Both are zero before it was read, or when there
	// is no such Lease.
	ReadAt, SilentSince time.Time
	// RenewedSince is since when this process has read one new renewal after the other, the zero time while the kubelet is silent.
	RenewedSince time.Time
	// Problem says why the last attempt to read it failed, empty if it did not.
	Problem string
}

// MissedRenewal reports whether a kubelet has missed a renewal of its Lease, as this process has read it lately.
func (m Machine) MissedRenewal(now time.Time, c Config) bool {
	l := m.Lease
	return !l.SilentSince.IsZero() && l.ReadAt.Sub(l.SilentSince) >= c.Missed && now.Sub(l.ReadAt) <= c.LeaseAge
}

// Proof is the last GETs by ID in a row that gave the same answer.
type Proof struct {
	State       State
	First, Last time.Time
}

// Add returns the proof after one more answer. Another answer than the ones before begins a new proof.
func (p Proof) Add(state State, at time.Time) Proof {
	if p.State == state && !p.First.IsZero() {
		return Proof{State: state, First: p.First, Last: at}
	}
	return Proof{State: state, First: at, Last: at}
}

// Memory is what a plan asks to remember until the next one. It is recorded before taints are set, so that a leader whose view is old is refused.
// Its JSON form may outlive the process and MUST stay readable.
type Memory struct {
	// Intents are machines that are about to get the taint, in the order of their Nodes' names.
	Intents []Intent `json:"intents,omitempty"`
	// Offered is the set of machines that a person has confirmed, or may.
	Offered Offer `json:"offered,omitzero"`
}

// Intent is one machine that is about to get the taint.
type Intent struct {
	Node string    `json:"node"`
	UID  string    `json:"uid"`
	At   time.Time `json:"at"`
}

// Config bounds what a plan may do.
type Config struct {
	// Grace is how long a kubelet must not have renewed its Lease, as seen by this process.
	Grace time.Duration
	// Missed is how long a kubelet does not renew its Lease, as seen by this process, until its droplet is read although
	// its Node is ready; Recheck is how old the response is until that is done again.
	Missed, Recheck time.Duration
	// AtLeast and Percent say how many machines may be out of service at a time without a person: the larger of AtLeast and Percent of the machines, but
	// never more than half of them. One is always allowed.
	AtLeast, Percent int
	// ProofGap is how far apart two GETs by ID must be; ProofAge is how old the later one may be.
	ProofGap, ProofAge time.Duration
	// LeaseAge is how long ago the kubelet's Lease may have been read.
	LeaseAge time.Duration
	// IntentAge is how long an intent counts: longer than any cache is behind.
	IntentAge time.Duration
}

// DefaultConfig returns the bounds of the product.
func DefaultConfig() Config {
	return Config{
		Grace: 20 * time.Second, Missed: 15 * time.Second, Recheck: 2 * time.Minute, AtLeast: 2, Percent: 10, ProofGap: 8 * time.Second,
		ProofAge: 30 * time.Second, LeaseAge: 20 * time.Second, IntentAge: 2 * time.Minute,
	}
}

// Allowance returns how many of a cluster's machines may be out of service at a time without a person.
func (c Config) Allowance(machines int) int {
	return max(1, min(max(c.AtLeast, (machines*c.Percent+99)/100), machines/2))
}

// Taint returns the taint that is set.
func Taint() corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: TaintValue, Effect: corev1.TaintEffectNoExecute}
}

// Taints reports whether taints hold ours, and whether they hold somebody else's of the same key. The API server allows one of each effect, so that a
// foreign one of another effect can be there together with ours, and one of effect NoExecute takes its place.
func Taints(taints []corev1.Taint) (ours, foreign bool) {
	for i := range taints {
		switch {
		case taints[i].Key != corev1.TaintNodeOutOfService:
		case IsOurs(taints[i]):
			ours = true
		default:
			foreign = true
		}
	}
	return ours, foreign
}

// IsOurs reports whether this component has set a taint.
func IsOurs(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeOutOfService && t.Value == TaintValue && t.Effect == corev1.TaintEffectNoExecute
}
