// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Request is what is to be decided, as the API server asks it (admission.k8s.io/v1, AdmissionRequest).
type Request struct {
	Operation   admissionv1.Operation
	Subresource string
	// User is the name of who asks.
	User string
	// New is the Service as it is to be, Old as it is; New is nil for a deletion, Old for a creation.
	New, Old *corev1.Service
	// Cluster is the configuration of the controller. An unknown region is empty.
	Cluster loadbalancer.Cluster
}

// Decision is the answer.
type Decision struct {
	// Problems are the sentences for which the request is refused; it is allowed if there are none.
	Problems []string
	// Warnings are sentences that stop nothing.
	Warnings []string
	// Ask is what DigitalOcean is to be asked, nil for nothing.
	Ask *Question
}

// Allowed reports whether the request is.
func (d Decision) Allowed() bool { return len(d.Problems) == 0 }

// Message is why a request is refused, empty for one that is allowed.
func (d Decision) Message() string { return strings.Join(d.Problems, "; ") }

// Question is a load balancer of which DigitalOcean is to say whether it would take it.
type Question struct {
	Service *corev1.Service
	Cluster loadbalancer.Cluster
	// ID is the load balancer that is to be changed, empty for one that is to be made.
	ID string
	// Before are the warnings that the Service as it was gives rise to.
	Before []string
}

// Controllers are the users that a cloud controller manager has (the account of its manifests, and the name that Kubernetes' own tools give its
// certificate). What it writes is not looked at: it notes what is, such as the type of a load balancer, whatever stands alongside it.
func Controllers() []string {
	return []string{"system:serviceaccount:kube-system:cloud-controller-manager", "system:cloud-controller-manager"}
}

// Review decides with the Service alone.
func Review(r Request) Decision {
	if !concerns(r) {
		return Decision{}
	}
	now := judge(r.New, r.Cluster)
	before := opinion{}
	if ours(r.Old) {
		before = judge(r.Old, r.Cluster)
	}
	d := Decision{Problems: without(now.problems, before.problems), Warnings: without(now.warnings, before.warnings)}
	if problem := typeChange(r); problem != "" {
		d.Problems = append(d.Problems, problem)
	}
	if len(d.Problems)+len(d.Warnings) > 0 || len(now.problems) < len(before.problems) {
		d.Warnings = append(d.Warnings, without(now.problems, d.Problems)...) // what is left of before, for who is at it
	}
	if len(now.problems) == 0 && d.Allowed() && !bytes.Equal(now.request, before.request) {
		d.Ask = &Question{Service: r.New, Cluster: r.Cluster, ID: identity(r), Before: before.warnings}
	}
	return d
}

// identity is the load balancer that a Service has, or is handed, empty for one that is to be made.
func identity(r Request) string {
	if id := r.New.Annotations[annotation.LoadBalancerID]; id != "" || r.Old == nil {
		return id
	}
	return r.Old.Annotations[annotation.LoadBalancerID]
}

// concerns reports whether a request is one to look at.
func concerns(r Request) bool {
	writes := r.Operation == admissionv1.Create || r.Operation == admissionv1.Update
	return writes && r.Subresource == "" && !slices.Contains(Controllers(), r.User) && ours(r.New) && r.New.DeletionTimestamp.IsZero()
}

// ours reports whether a Service is to have a load balancer of DigitalOcean's that the controller minds.
func ours(s *corev1.Service) bool {
	if s == nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer || loadbalancer.Asks(s) != nil {
		return false
	}
	disowned, err := annotation.IsDisowned(s.Annotations)
	return !disowned || err != nil
}

// opinion is what there is to say about one Service.
type opinion struct {
	problems, warnings []string
	// request is what would be sent, nil if there are problems.
	request []byte
}

func judge(s *corev1.Service, cluster loadbalancer.Cluster) opinion {
	result, err := Draft(loadbalancer.Input{Service: s, Cluster: cluster, Certificates: assumed(cluster.Effective(s))})
	o := opinion{warnings: sentences(result.Warnings)}
	if problems, ok := errors.AsType[loadbalancer.Problems](err); ok {
		for _, problem := range problems {
			o.problems = append(o.problems, problem.Error())
		}
		return o
	}
	o.request, _ = json.Marshal(struct {
		loadbalancer.Request
		loadbalancer.CreateOnly
	}{result.Request, result.CreateOnly}) // values and strings only: it cannot fail
	return o
}

// assumed is the certificate that a Service names, as if the account had it: whether it has is a question to DigitalOcean.
func assumed(s *corev1.Service) []loadbalancer.Certificate {
	name := s.Annotations[annotation.CertificateName]
	all := []loadbalancer.Certificate{{ID: "(" + name + ")", Name: name}}
	if managed, ok := loadbalancer.AssumedCertificate(s); ok {
		all = append(all, managed)
	}
	return all
}

// typeChange says what is wrong with another type for a load balancer that exists, empty for nothing. The controller writes into the annotation
// which type that is, so that it can be told without DigitalOcean; an annotation that goes is written again.
func typeChange(r Request) string {
	if r.Old == nil {
		return ""
	}
	id, is, asked := r.Old.Annotations[annotation.LoadBalancerID], r.Old.Annotations[annotation.Type], r.New.Annotations[annotation.Type]
	same := id != "" && r.New.Annotations[annotation.LoadBalancerID] == id
	if !same || is == "" || asked == "" || is == asked || !slices.Contains(annotation.FormOf(annotation.Type).Choices, asked) {
		return ""
	}
	return (&annotation.Error{Annotation: annotation.Type, Value: asked, Problem: TypeStays(is)}).Error()
}

// TypeStays ends the sentence about a type that cannot be.
func TypeStays(is string) string {
	return "but the load balancer is of type " + is + ", which DigitalOcean does not change: only a new load balancer can have another"
}

func sentences(warnings []annotation.Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.Message)
	}
	return out
}

// without returns the sentences that are not among known, each once, in their order.
func without(all, known []string) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(known, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
