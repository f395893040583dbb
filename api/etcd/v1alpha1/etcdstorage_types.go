// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdStorage gives one tenant, such as an aggregated API server, its own slice of the core etcd: proxies that serve it at
// https://etcd-<name>.<operator's namespace>.svc:2379, and certificates in the ConfigMaps and Secrets that the spec names. The fields
// caCertConfigMap, clientCertSecret and the three validities are those of etcdproxy-controller's kind.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=etcdstorages,scope=Cluster,shortName=ets,categories=mooring
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Proxies",type=string,JSONPath=`.status.proxies`,description="Proxies ready of those wanted"
// +kubebuilder:printcolumn:name="Keys",type=integer,JSONPath=`.status.usage.keys`,description="Keys of the tenant in the core"
// +kubebuilder:printcolumn:name="Bytes",type=string,JSONPath=`.status.usage.bytes`,description="Size of its keys and values"
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.spec.quota.bytes`,description="Most bytes it may have"
// +kubebuilder:printcolumn:name="Leases",type=integer,JSONPath=`.status.usage.leases`,priority=1,description="Leases of the tenant in the core"
// +kubebuilder:printcolumn:name="Exceeded",type=string,JSONPath=`.status.conditions[?(@.type=="QuotaExceeded")].status`,priority=1,description="Whether it is at its quota"
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.deletionPolicy`,priority=1,description="What becomes of the data"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 58",message="metadata.name: at most 58 characters, since the Service is called etcd-<name>"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: only lower case letters, digits and '-', since the Service is called etcd-<name>"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.prefix) ? self.spec.prefix : '/' + self.metadata.name + '/') == (has(oldSelf.spec.prefix) ? oldSelf.spec.prefix : '/' + self.metadata.name + '/')",message="spec.prefix: cannot be changed, since the data would stay behind; create another EtcdStorage and copy the data"
type EtcdStorage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec EtcdStorageSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status EtcdStorageStatus `json:"status,omitempty"`
}

// EtcdStorageList is a list of EtcdStorage.
//
// +kubebuilder:object:root=true
type EtcdStorageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdStorage `json:"items"`
}

// EtcdStorageSpec is what is wanted. Every field has a default. (The rules ask for fields that always have one: the API server evaluates them on
// the default of the spec itself too, before the defaults of its fields.)
//
// +kubebuilder:validation:XValidation:rule="!has(self.signingCertificateValidity) || !has(self.servingCertificateValidity) || !self.signingCertificateValidity.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || !self.servingCertificateValidity.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || duration(self.signingCertificateValidity) >= duration(self.servingCertificateValidity)",message="spec.servingCertificateValidity: must not be longer than spec.signingCertificateValidity, since a certificate ends with its CA"
// +kubebuilder:validation:XValidation:rule="!has(self.signingCertificateValidity) || !has(self.clientCertificateValidity) || !self.signingCertificateValidity.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || !self.clientCertificateValidity.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || duration(self.signingCertificateValidity) >= duration(self.clientCertificateValidity)",message="spec.clientCertificateValidity: must not be longer than spec.signingCertificateValidity, since a certificate ends with its CA"
// +kubebuilder:validation:XValidation:rule="!has(self.issuerRef) || !has(self.signingCertificateValidity) || !self.signingCertificateValidity.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || duration(self.signingCertificateValidity) >= duration('1h')",message="spec.signingCertificateValidity: must be at least 1h with spec.issuerRef, since cert-manager issues none that are shorter"
type EtcdStorageSpec struct {
	// caCertConfigMap names the ConfigMaps, in the tenant's namespaces, that receive the CA bundle of the endpoint under the key serving-ca.crt.
	// Other keys are left alone. The tenant grants the operator a Role for each; until then a condition prints the command.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +optional
	CACertConfigMaps []Destination `json:"caCertConfigMap,omitempty"`
	// clientCertSecret names the Secrets, in the tenant's namespaces, that receive a client certificate under the keys tls.crt and tls.key.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +optional
	ClientCertSecrets []Destination `json:"clientCertSecret,omitempty"`

	// signingCertificateValidity is how long a CA is valid, 10m to 30 years. Default 26280h (3 years). The next CA is made and trusted after half of it,
	// and signs after five sixths. API servers read the bundle at their start only, so they must restart once in the third between.
	// +kubebuilder:default="26280h"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('10m') && duration(self) <= duration('262800h')",message="spec.signingCertificateValidity: must be from 10m to 262800h, in units up to h, such as 8760h or 1h30m"
	// +optional
	SigningCertificateValidity metav1.Duration `json:"signingCertificateValidity,omitempty"`
	// servingCertificateValidity is how long a certificate of the proxies is valid, 10m to 10 years. Default 2160h (90 days), or as long as a CA if
	// that is less. It is renewed after two thirds of it.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('10m') && duration(self) <= duration('87600h')",message="spec.servingCertificateValidity: must be from 10m to 87600h, in units up to h, such as 730h or 1h30m"
	// +optional
	ServingCertificateValidity metav1.Duration `json:"servingCertificateValidity,omitempty"`
	// clientCertificateValidity is how long a client certificate is valid, 10m to 10 years. Default 2160h (90 days), or as long as a CA if that
	// is less. It is renewed after two thirds of it.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('10m') && duration(self) <= duration('87600h')",message="spec.clientCertificateValidity: must be from 10m to 87600h, in units up to h, such as 730h or 1h30m"
	// +optional
	ClientCertificateValidity metav1.Duration `json:"clientCertificateValidity,omitempty"`

	// issuerRef names an issuer of cert-manager from which the tenant's two CAs come. It must be one that issues CAs. Absent: the operator makes them
	// itself. A change takes effect a sixth of signingCertificateValidity after the new CA is in every bundle, so that clients can be restarted between.
	// +optional
	IssuerRef *IssuerRef `json:"issuerRef,omitempty"`

	// prefix is where the tenant's keys are in the core. Default /<name>/. It cannot be changed. No tenant's may lie within another's.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9._-]+)+/$')",message="spec.prefix: must begin and end with '/' and have letters, digits, '.', '_' and '-' between, such as /team-a/"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/.etcd.mooring.dev/')",message="spec.prefix: /.etcd.mooring.dev/ belongs to the proxies themselves; choose another one, such as /team-a/"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/[.][.]?/')",message="spec.prefix: '.' and '..' are no names in it; choose another one, such as /team-a/"
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// adoptExistingData allows that the prefix holds data already: that of an EtcdStorage deleted with policy Retain, or of an unknown owner.
	// Without it such data is left alone, and this EtcdStorage gets no proxies. Default false.
	// +optional
	AdoptExistingData bool `json:"adoptExistingData,omitempty"`
	// deletionPolicy says what becomes of the tenant's data when the EtcdStorage is deleted: Retain leaves it as it is, Delete deletes its keys and
	// leases. Default Retain.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// quota bounds what the tenant may store and ask for. Absent fields bound nothing.
	// +kubebuilder:default={}
	// +optional
	Quota Quota `json:"quota,omitempty"`
	// priority is the tenant's share of the core while tenants compete, relative to the others', 1 to 100: its proxies together have at most
	// priority × 16 / 50 requests, rounded up, with the core at one time, and the others wait in their order. Default 50, which makes 16.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// compaction says where the tenant's compacted revision is kept. The core itself is never compacted by a tenant.
	// +kubebuilder:default={}
	// +optional
	Compaction Compaction `json:"compaction,omitempty"`

	// replicas is the number of proxies, 1 to 32. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// memory is what each proxy may take.
	// +kubebuilder:default={}
	// +optional
	Memory Memory `json:"memory,omitempty"`
	// topologySpread says over what the proxies are spread.
	// +kubebuilder:default={}
	// +optional
	TopologySpread TopologySpread `json:"topologySpread,omitempty"`
	// networkPolicy says who may reach the proxies.
	// +kubebuilder:default={}
	// +optional
	NetworkPolicy NetworkPolicy `json:"networkPolicy,omitempty"`
}

// Destination names a ConfigMap or a Secret of the tenant.
type Destination struct {
	// name is the object's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// namespace is its namespace. It must not be the operator's own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
}

// IssuerRef names an issuer of cert-manager.
//
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || (has(self.group) && self.group != 'cert-manager.io') || self.kind in ['Issuer', 'ClusterIssuer']",message="spec.issuerRef.kind: must be Issuer or ClusterIssuer, unless spec.issuerRef.group is that of another kind of issuers"
type IssuerRef struct {
	// name is the issuer's name. An Issuer must be in the operator's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// kind is Issuer or ClusterIssuer, or a kind of the group. Default Issuer.
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +optional
	Kind string `json:"kind,omitempty"`
	// group is the issuer's API group. Default cert-manager.io.
	// +kubebuilder:default="cert-manager.io"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Group string `json:"group,omitempty"`
}

// DeletionPolicy says what becomes of a tenant's data.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

// The deletion policies.
const (
	DeletionRetain DeletionPolicy = "Retain"
	DeletionDelete DeletionPolicy = "Delete"
)

// Quota bounds a tenant. When it stores too much, growth is refused with etcd's own error; reads and deletes work.
type Quota struct {
	// bytes is the most that keys, with their prefix, and values may take, without history, at least 1Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0",message="spec.quota.bytes: must be at least 1Mi"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`
	// keys is the most keys.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Keys *int64 `json:"keys,omitempty"`
	// historyBytes is the most bytes of keys and values that may be written between two compactions of the core, which keeps them all until
	// then, at least 16Mi. Puts beyond are refused, deletes pass. Absent: 256Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('16Mi')) >= 0",message="spec.quota.historyBytes: must be at least 16Mi"
	// +optional
	HistoryBytes *resource.Quantity `json:"historyBytes,omitempty"`
	// leases is the most leases.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Leases *int64 `json:"leases,omitempty"`
	// watches is the most watches that each proxy has open at once.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Watches *int32 `json:"watches,omitempty"`
	// unitsPerSecond is the most work that the tenant may give to the core in a second, in units; its proxies divide it by demand. A get of a
	// small key is 1, a put 3, every 16Ki that are read, 2Ki that are written or 250 keys of a range 1 more. Large requests have
	// three tenths of it, and all of it while no other client uses the core. Absent: 20000.
	// +kubebuilder:validation:Minimum=1
	// +optional
	UnitsPerSecond *int32 `json:"unitsPerSecond,omitempty"`
	// listsInFlight is how many large requests all proxies together have with the core at one time, each at least one: ranges of more than 500 keys,
	// or of any number, and whatever keeps the core busy for more than 4 units. They do not take the seats of small requests. Absent: an eighth of
	// those, which follow from spec.priority.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ListsInFlight *int32 `json:"listsInFlight,omitempty"`
	// keepAlivesPerSecond is the most keep-alives of leases that each proxy passes on in a second; more wait. Absent: 100.
	// +kubebuilder:validation:Minimum=1
	// +optional
	KeepAlivesPerSecond *int32 `json:"keepAlivesPerSecond,omitempty"`
	// watchMessagesPerSecond is the most messages of watch streams, such as creates and requests for progress, that each proxy deals with in a
	// second; more wait. Absent: 500.
	// +kubebuilder:validation:Minimum=1
	// +optional
	WatchMessagesPerSecond *int32 `json:"watchMessagesPerSecond,omitempty"`
	// streams is how many RPCs of any kind, streams of watches and leases among them, are open at each proxy at one time. Absent: 4096.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Streams *int32 `json:"streams,omitempty"`
	// streamsPerConnection is how many of them one connection may have. Absent: 1024.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StreamsPerConnection *int32 `json:"streamsPerConnection,omitempty"`
	// connectionsPerIdentity is how many connections each proxy takes from certificates of one identity. Absent: 1024.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ConnectionsPerIdentity *int32 `json:"connectionsPerIdentity,omitempty"`
}

// Compaction says where the tenant's compacted revision is kept.
type Compaction struct {
	// mode: Shared keeps it in a record in the core, so that all proxies agree; PerReplica keeps it in each proxy's memory. Default Shared.
	// +kubebuilder:default=Shared
	// +optional
	Mode CompactionMode `json:"mode,omitempty"`
}

// CompactionMode is where a compacted revision is kept.
// +kubebuilder:validation:Enum=Shared;PerReplica
type CompactionMode string

// The compaction modes.
const (
	CompactionShared     CompactionMode = "Shared"
	CompactionPerReplica CompactionMode = "PerReplica"
)

// Memory is what each proxy may take. It grows with the number of watches and of large lists at one time, and, where there is a quota, of keys.
//
// +kubebuilder:validation:XValidation:rule="quantity(has(self.request) ? string(self.request) : '64Mi').compareTo(quantity(has(self.limit) ? string(self.limit) : '256Mi')) <= 0",message="spec.memory.request: must not be more than spec.memory.limit, which is 256Mi by default"
type Memory struct {
	// request is what a machine must have free for a proxy, at least 16Mi. Absent: 64Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('16Mi')) >= 0",message="spec.memory.request: must be at least 16Mi"
	// +optional
	Request *resource.Quantity `json:"request,omitempty"`
	// limit is the most that a proxy may take before it is killed, at least 64Mi. Half of it is for answers on their way to the tenant; an answer may be
	// half as large again as that, and larger ones must be read in pages. Absent: 256Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="spec.memory.limit: must be at least 64Mi"
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`
}

// TopologySpread says over what the proxies are spread.
type TopologySpread struct {
	// keys are node labels over whose values the proxies are spread. Default topology.kubernetes.io/zone and kubernetes.io/hostname.
	// +kubebuilder:default={"topology.kubernetes.io/zone","kubernetes.io/hostname"}
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="spec.topologySpread.keys: must be names of node labels, such as topology.kubernetes.io/zone"
	// +listType=set
	// +optional
	Keys []string `json:"keys"`
	// whenUnsatisfiable: ScheduleAnyway prefers, DoNotSchedule demands. Default ScheduleAnyway.
	// +kubebuilder:default=ScheduleAnyway
	// +kubebuilder:validation:Enum=ScheduleAnyway;DoNotSchedule
	// +optional
	WhenUnsatisfiable corev1.UnsatisfiableConstraintAction `json:"whenUnsatisfiable,omitempty"`
}

// NetworkPolicy says who may reach the proxies. Anyone who reaches them still needs a client certificate.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || self.enabled || (!has(self.clientNamespaces) && !has(self.clientCIDRs) && !has(self.metricsNamespaces))",message="spec.networkPolicy: with enabled false the other fields mean nothing; drop them"
type NetworkPolicy struct {
	// enabled makes a NetworkPolicy. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// clientNamespaces are namespaces of clients, alongside those of caCertConfigMap and clientCertSecret. If there is none at all, and no CIDR,
	// all may connect.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	ClientNamespaces []string `json:"clientNamespaces,omitempty"`
	// clientCIDRs are networks of clients outside of the pod network, such as API servers on the network of their machines.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="spec.networkPolicy.clientCIDRs: must be networks, such as 10.0.0.0/8"
	// +listType=set
	// +optional
	ClientCIDRs []string `json:"clientCIDRs,omitempty"`
	// metricsNamespaces are namespaces from which metrics are read. If there is none, nobody reads them.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	MetricsNamespaces []string `json:"metricsNamespaces,omitempty"`
}

// EtcdStorageStatus is the observed state.
type EtcdStorageStatus struct {
	// observedGeneration is the generation of the spec that this status is about, -1 while the operator has reported nothing.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// endpoint is the URL that clients use.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// prefix is where the tenant's keys are in the core.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// proxies is ready/wanted.
	// +optional
	Proxies string `json:"proxies,omitempty"`
	// readyReplicas is the number of proxies that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// usage is what the tenant stores.
	// +optional
	Usage *Usage `json:"usage,omitempty"`
	// core is the core etcd that the EtcdStorage is bound to, from its claim on. At another one nothing is made or deleted, and the condition
	// Conflict is True, until the annotation etcd.mooring.dev/accept-core names that one.
	// +optional
	Core *CoreBinding `json:"core,omitempty"`
	// certificates says when they end.
	// +optional
	Certificates *CertificateTimes `json:"certificates,omitempty"`
	// conditions are Ready, Reconciling or Stalled, CertificatesReady, ProxyReady, CoreReachable, CoreHealthy, CoreWentBack, CoreOvercommitted, QuotaExceeded, RotationInProgress, Conflict and Deployed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CoreBinding names a core etcd.
type CoreBinding struct {
	// clusterID is the ID of the etcd cluster in hexadecimal, as etcd logs it (cluster-id). etcd derives it from the peer URLs of the first members and
	// --initial-cluster-token.
	ClusterID string `json:"clusterID"`
}

// Usage is what a tenant stores.
type Usage struct {
	// keys is the number of keys.
	Keys int64 `json:"keys"`
	// bytes is the size of keys and values, without history.
	Bytes resource.Quantity `json:"bytes"`
	// bytesLimit is the bound of bytes that holds since spec.quota.bytes is not set: the operator's --default-quota-bytes.
	// +optional
	BytesLimit *resource.Quantity `json:"bytesLimit,omitempty"`
	// leases is the number of leases.
	Leases int64 `json:"leases"`
	// observedAt is when this was counted.
	ObservedAt metav1.Time `json:"observedAt"`
}

// BytesBound returns the bound of bytes that holds: the spec's, or else the one that the operator gave it; nil if there is none.
func (s *EtcdStorage) BytesBound() *resource.Quantity {
	if s.Spec.Quota.Bytes == nil && s.Status.Usage != nil {
		return s.Status.Usage.BytesLimit
	}
	return s.Spec.Quota.Bytes
}

// CertificateTimes says when certificates end.
type CertificateTimes struct {
	// servingCA and clientCA are the ends of the CAs that sign.
	// +optional
	ServingCA *metav1.Time `json:"servingCA,omitempty"`
	// +optional
	ClientCA *metav1.Time `json:"clientCA,omitempty"`
	// serving is the end of the proxies' certificate.
	// +optional
	Serving *metav1.Time `json:"serving,omitempty"`
	// client is the end of the client certificate that ends first.
	// +optional
	Client *metav1.Time `json:"client,omitempty"`
}
