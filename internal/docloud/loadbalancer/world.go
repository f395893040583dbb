// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// World is all that decides what is done next for one Service. It is a value: [MakePlan] reads nothing else, and changes nothing of it.
//
// A pass begins with what is at hand (the Service, the Services and Nodes of the informers, the memory), and reads of the rest what the plan
// [Needs].
type World struct {
	Now    time.Time
	Intent Intent
	// Asked reports that Kubernetes' service controller asked for the pass: it writes the Service's status itself.
	Asked   bool
	Cluster Cluster
	Pace    Pace

	Service *corev1.Service
	// Live reports that Service was read from the API server in this pass, not from an informer that may lag.
	Live bool
	// Services are all that want a load balancer of this cluster; the Service itself may be among them.
	Services []*corev1.Service
	// Nodes are all Nodes in the order of their names.
	Nodes []*corev1.Node
	// Trouble is that of a read from the API server without which the pass cannot go on, nil for none.
	Trouble *Trouble
	// Trust is nil if nobody has asked whether the answers are about this cluster, and else what came of it.
	Trust *Trust
	// Moved reports that the token has changed since the pass began: what was read may be about another account.
	Moved bool
	// Turns are those of the Service's namespace, and of all.
	Turns Turns
	// Limited is until when no call may be made for any Service, the zero time for no limit.
	Limited time.Time

	List         Reading[Observed]
	Certificates Reading[Certificate]
	Droplets     Reading[instance.Droplet]
	// Identities report which Nodes may not be the droplets that they name, nil for no such check.
	Identities *instance.Identities
	// Endpoints says where the Service's endpoints are, nil if that was not read.
	Endpoints *Endpoints
	// ByID are the answers to GETs by ID.
	ByID []LookedUp

	// Again is the doubt for which a load balancer was read again in this pass, together with all certificates; see [Needs].
	Again *Doubt

	// TakeOver is what an administrator lets the Service take over, nil if that was not read; Domains are those for which
	// it may have certificates.
	TakeOver *TakeOver
	Domains  *Domains

	// Answers are those to the steps of this pass, in their order. No pass makes more than one change at DigitalOcean.
	Answers []Answer
	// Stamp orders lists and events of all passes: a list that begins now has it. See [Memory].
	Stamp  uint64
	Memory Memory
}

// Intent is what a pass is for.
type Intent int

// The intents of a pass.
const (
	// Keep makes the load balancer what the Service asks for.
	Keep Intent = iota
	// Find only says which one is the Service's.
	Find
	// Remove deletes it, since the Service wants none any more.
	Remove
)

// Pace says when what is done; see BalancerTiming of package balancers for the defaults.
type Pace struct {
	// Pending is how soon to look again at a load balancer that is busy, twice as long each time up to eight times that; Poll is the same for one
	// that is being made.
	Pending, Poll, Resync time.Duration
	// Change is in what time one change of a load balancer's settings is sent, after a few at once.
	Change time.Duration
	// ListAge, CertificateAge and CertificateDoubt are how old the lists may be.
	ListAge, CertificateAge, CertificateDoubt time.Duration
	// Unanswered is how long what a POST without a response may have made is waited for.
	Unanswered time.Duration
}

// Endpoints are the names of the Nodes where a Service's endpoints are, or why they could not be read.
type Endpoints struct {
	Nodes   map[string]bool
	Problem error
}

// Trust reports whether the answers are about this cluster: Doubt is empty, or one sentence that says why that is not certain.
type Trust struct{ Doubt error }

// Reading is a list that was read, or that could not be read.
type Reading[T any] struct {
	Items   []T
	Trouble *Trouble
	// Met is the strictest demand that this reading meets, nil if nothing was read.
	Met *Demand
}

// meets reports whether the reading, or the attempt at one, is as new as is demanded.
func (r Reading[T]) meets(d Demand) bool {
	return r.Met != nil && r.Met.Age <= d.Age && r.Met.After >= d.After && r.Met.Since >= d.Since
}

// Demand is how new a list must be.
type Demand struct {
	// Age is how long ago it may have been begun.
	Age time.Duration
	// After is the stamp that it must have at least.
	After uint64
	// Since, if it is not 0, demands a list that is begun in this pass, after Since-1 answers.
	Since int
}

// LookedUp is what came of a GET by ID.
type LookedUp struct {
	ID string
	Lookup
	Trouble *Trouble
}

// Trouble is a call that failed, in the terms that decide what comes next.
type Trouble struct {
	Err  error
	Kind TroubleKind
	// Until is when DigitalOcean may be called again, the zero time if it did not say.
	Until time.Time
	// Said is DigitalOcean's own explanation, empty for none.
	Said string
}

// TroubleKind is why a call failed.
type TroubleKind int

// The kinds of trouble.
const (
	// Failed is any that is none of the others: it may be tried again.
	Failed TroubleKind = iota
	// Missing is that the object does not exist.
	Missing
	// Refused is a request that DigitalOcean understood and does not take as it is.
	Refused
	// Busy is a load balancer that is not done with an earlier change.
	Busy
	// Limited is the limit on calls; Postponed is a call that was not made because of it.
	Limited
	Postponed
	// Unanswered is a write of which no response arrived: it may have been made.
	Unanswered
	// Interrupted is a pass that was told to end.
	Interrupted
)

// unsure reports that a change may have been made all the same.
func (t *Trouble) unsure() bool { return t.Kind == Unanswered || t.Kind == Interrupted }

// limited reports that the limit on calls is the cause.
func (t *Trouble) limited() bool { return t.Kind == Limited || t.Kind == Postponed }

// Answer is what became of a step.
type Answer struct {
	Step Step
	// LoadBalancer is how the load balancer is after a change of it.
	LoadBalancer Observed
	Trouble      *Trouble
}

// last is the newest answer, nil for none.
func (w World) last() *Answer {
	if len(w.Answers) == 0 {
		return nil
	}
	return &w.Answers[len(w.Answers)-1]
}

// answer is the newest answer to a step of a kind, and that step; nil for none.
func answer[S Step](p *planning) (a *Answer, step S) {
	for i := len(p.Answers) - 1; i >= 0; i-- {
		if step, ok := p.Answers[i].Step.(S); ok {
			return &p.Answers[i], step
		}
	}
	return nil, step
}

// since is the [Demand.Since] of a list that begins after an answer.
func (w World) since(a *Answer) int {
	for i := range w.Answers {
		if a == &w.Answers[i] {
			return i + 2
		}
	}
	return 1
}

// fresh demands a list that begins after all that was answered so far.
func (w World) fresh() Demand { return Demand{After: w.Memory.NotBefore, Since: len(w.Answers) + 1} }
