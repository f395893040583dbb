// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Evidence is all that one examination has read. The order of its slices does not matter.
type Evidence struct {
	// Now is the time of the examination.
	Now time.Time
	// Settings are the flags and variables that name the datastore.
	Settings Settings
	// Namespace is where a controller keeps its Lease and state, "" if unknown.
	Namespace string
	// Config is by what the Plan was made.
	Config nodesync.Config
	// Among reports whether this is a part of all doctors: then what they and agreement look at is left out, such as other controllers, and Kubernetes
	// Nodes without a Calico Node, of which agreement knows since when.
	Among bool
	// ForPerson reports whether settings and rights are a person's and not the program's: then they are not judged.
	ForPerson bool

	// KubernetesURL is the API server that was asked, KubernetesVersion what it says it is, such as v1.34.1.
	KubernetesURL     string
	KubernetesVersion Answer[string]
	// ClusterUID is the UID of namespace kube-system.
	ClusterUID Answer[string]
	// Datastore is one quorum read of Calico's datastore; its Value is meaningless.
	Datastore Answer[struct{}]
	// Members are the etcd endpoints, each asked alone.
	Members []Member
	// Certificates are those of files and kubeconfigs.
	Certificates doctor.CertificateEvidence
	// ClusterInformation is Calico's object of that kind, nil if there is none.
	ClusterInformation Answer[*apiv3.ClusterInformation]

	// Deployments and DaemonSets are those of the namespaces in which Calico lives.
	Deployments []Listing
	DaemonSets  []Listing
	// Leases are those with the name of the controller's Lease, of all namespaces, or of one if not all may be read.
	Leases Answer[[]doctor.Lease]
	// Rights are the rights that were asked for.
	Rights []RightAnswer
	// RightsOf is whose rights they are, as the API server calls them; "" if it does not say.
	RightsOf string

	// CalicoNodes and KubernetesNodes are all of them, Plan what a controller would do about them now.
	CalicoNodes     Answer[[]nodesync.CalicoNode]
	KubernetesNodes Answer[[]string]
	Plan            Answer[nodesync.Plan]
}

// Answer is what a question was answered. The zero Answer is of a question that was not queried, since nothing could have answered it.
type Answer[T any] struct {
	Asked bool
	Value T
	// Failure is why there is no Value, "" if there is one. Forbidden says that it is because of a missing right.
	Failure   string
	Forbidden bool
}

// Answered returns the Answer that holds value.
func Answered[T any](value T) Answer[T] { return Answer[T]{Asked: true, Value: value} }

// known reports that there is a Value.
func (a Answer[T]) known() bool { return a.Asked && a.Failure == "" }

// Settings are what names the datastore.
type Settings struct {
	// Kind is etcdv3 or kubernetes, "" if the settings do not say.
	Kind string
	// Failure is why they do not say, or why they cannot be used.
	Failure string
	// Flag is --datastore-type.
	Flag string
	// Variables are those of VariableNames that are set. Secrets are not in it: their value is "(set)".
	Variables map[string]string
	// Endpoints are etcd's.
	Endpoints []string
}

// Member is one endpoint of etcd.
type Member struct {
	Endpoint string
	// Version is such as 3.6.8.
	Version string
	// Failure is why it did not respond, "" if it did.
	Failure string
	// Alarms are what it complains about itself, such as NOSPACE.
	Alarms []string
}

// Listing is what one namespace holds of one kind.
type Listing struct {
	Namespace string
	Answer[[]doctor.Workload]
}

// VariableNames lists every environment variable that says, or once said, where Calico's datastore is; each may also be written with
// CALICO_ before it. A value of one that Secret names must not get into the evidence.
func VariableNames() []string {
	return []string{
		"DATASTORE_TYPE", "ETCD_ENDPOINTS", "ETCD_DISCOVERY_SRV", "ETCD_USERNAME", "ETCD_PASSWORD", "ETCD_CA_CERT_FILE", "ETCD_CERT_FILE",
		"ETCD_KEY_FILE", "ETCD_AUTHORITY", "ETCD_SCHEME", "KUBECONFIG",
	}
}

// Secret reports that the value of a variable must not be shown.
func Secret(variable string) bool {
	return variable == "ETCD_PASSWORD" || variable == "CALICO_ETCD_PASSWORD"
}
