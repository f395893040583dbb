// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// Input is everything that decides what a load balancer must be.
type Input struct {
	Service *corev1.Service
	// Nodes are all Nodes of the cluster, in any order; those that get no traffic are left out here.
	Nodes []*corev1.Node
	// Droplets are those of the account, by which Nodes without a provider ID are found. They may be missing if [NeedsOf] says so.
	Droplets []instance.Droplet
	// Identities report which Nodes may not be the droplets that they name, nil for no such check.
	Identities *instance.Identities
	// Certificates are those of the account; they may be missing if [NeedsOf] says so.
	Certificates []Certificate
	// PartialCertificates reports that Certificates are not all there are: nothing is concluded from one that is missing.
	PartialCertificates bool
	// Domains are those for which the Service may have certificates, nil for all; they may be missing if [NeedsOf] says
	// so.
	Domains *Domains
	// EndpointNodes are the names of the Nodes where endpoints of the Service are; they may be missing if [NeedsOf] says so.
	EndpointNodes map[string]bool
	Cluster       Cluster
	// AllSelected reports that the Nodes stand for any, and that the Service's selector of Nodes selects them.
	AllSelected bool
	// Observed is the load balancer there is, nil for none. What cannot be changed is taken from it.
	Observed *Observed
}

// Cluster is the configuration that all load balancers of a cluster share.
type Cluster struct {
	// ID is the cluster's ID (DO_CLUSTER_ID), empty for none.
	ID string
	// Region is the slug of the region (REGION, else the metadata service's).
	Region string
	// VPC is the UUID of the cluster's VPC (DO_CLUSTER_VPC_ID), empty for the region's default one.
	VPC string
	// DefaultType is the type of load balancers that ask for none (DEFAULT_LB_TYPE); all but REGIONAL means REGIONAL_NETWORK.
	DefaultType string
	// Defaults are what annotations say that a Service does not carry (DO_LOAD_BALANCER_DEFAULTS), nil for none.
	Defaults annotation.Defaults
}

// Certificate is a certificate of the account (schema "certificate" of the API).
type Certificate struct {
	ID   string
	Name string
	Type CertificateType
	// State is empty if it is not known, DNSNames are if they are not.
	State    CertificateState
	DNSNames []string
}

// CertificateType is how a certificate came to be, as the API spells it.
type CertificateType string

// The types of certificates. DigitalOcean renews those of Let's Encrypt by itself, under a new ID.
const (
	CertificateCustom      CertificateType = "custom"
	CertificateLetsEncrypt CertificateType = "lets_encrypt"
)

// Result is what a load balancer must be, and what there is to say about it.
type Result struct {
	Request Request
	// CreateOnly is what only the POST carries in addition.
	CreateOnly CreateOnly
	// Annotate holds the annotations that are to be written on the Service because they differ, in no case more than those the upstream project
	// writes: the load balancer's ID and type, and the ID of a renewed certificate.
	Annotate map[string]string
	// Certificate is what is waited for before the Service's certificate can be used, nil for nothing. The load balancer there is keeps its forwarding
	// rules until then; without one it is an error as well.
	Certificate *CertificateWait
	// Disowned reports that nothing of this may be sent.
	Disowned bool
	// Warnings are in a fixed order. They are for the Service's owner and become events.
	Warnings []annotation.Warning
	// Targets are the Nodes that get traffic, LeftOut those that do not and why; both in the order of names.
	Targets []Target
	LeftOut []LeftOut
}

// Target is a Node that gets traffic.
type Target struct {
	Node    string `json:"node"`
	Droplet int    `json:"droplet"`
}

// LeftOut is a Node that gets no traffic. Reason completes the sentence "node X …".
type LeftOut struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// ReasonKept (Warning): a field keeps its value, since DigitalOcean does not let it change. MUST NOT change: it is the reason of an event.
const ReasonKept = "LoadBalancerFieldKept"

// InputNeeds is what has to be read before [Desired] can answer.
type InputNeeds struct {
	// Droplets are needed because a Node has no provider ID, or one that was not seen yet; Certificates because one is
	// named, or may have been renewed.
	Droplets, Certificates bool
	// Endpoints are needed because they say which Nodes are targets; Domains because a certificate is asked for by them.
	Endpoints, Domains bool
}

// NeedsOf says what [Desired] will look at beyond Service, Nodes and the load balancer; reading more does no harm.
func NeedsOf(in Input) InputNeeds {
	var n InputNeeds
	for _, node := range in.Nodes {
		if _, unseen := in.disputed(node); unseen || node.Spec.ProviderID == "" {
			n.Droplets = true
		}
	}
	s, _, err := annotation.Parse(in.Service.Annotations, in.options())
	n.Endpoints = err == nil && s.LocalTargetsOnly && in.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if err != nil || s.Type != annotation.TypeRegional {
		return n
	}
	n.Certificates = s.CertificateID == "" && s.CertificateName != "" || len(s.CertificateDomains) > 0
	n.Domains = len(s.CertificateDomains) > 0 || strings.HasPrefix(s.CertificateName, ManagedPrefix)
	if in.Observed != nil {
		current := certificateOf(in.Observed)
		n.Certificates = n.Certificates || current != "" && s.CertificateID != "" && current != s.CertificateID
	}
	return n
}

// options are what reading the annotations depends on.
func (in Input) options() annotation.Options {
	o := annotation.Options{DefaultType: in.Cluster.DefaultType, Defaults: in.Cluster.Defaults}
	if in.Observed != nil {
		o.FixedType = in.Observed.Type
	}
	return o
}
