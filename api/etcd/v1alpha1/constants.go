// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What the operator writes on objects. These strings are a contract with clusters that run already: by them an operator of another version knows
// what is its own.
const (
	// StorageLabel marks the operator's own objects with the name of the EtcdStorage that they belong to.
	StorageLabel = "etcd.mooring.dev/storage"
	// DeliveredAnnotation marks a tenant's ConfigMap or Secret into which certificates were written. Its value is the name and the UID of the
	// EtcdStorage, with a '/' between.
	DeliveredAnnotation = "etcd.mooring.dev/delivered-by"
	// AppliedAnnotation on the operator's own objects: a hash of what was applied last, so that what an older version applied is taken away.
	AppliedAnnotation = "etcd.mooring.dev/applied"
	// AcceptCoreAnnotation on an EtcdStorage lets it be bound to another core etcd than the one in status.core.clusterID, as a person has decided. Its value
	// is the cluster ID of the new core in hexadecimal, as the condition Conflict shows it; any other value accepts nothing.
	AcceptCoreAnnotation = "etcd.mooring.dev/accept-core"
	// Finalizer on an EtcdStorage: it stays until its data is released or deleted.
	Finalizer = "etcd.mooring.dev/storage"
)

// Keys in ConfigMaps and Secrets, and the label of pods, as etcdproxy-controller had them.
const (
	// ServingCAKey is the key of the CA bundle in spec.caCertConfigMap.
	ServingCAKey = "serving-ca.crt"
	// ClientCAKey is the key of the CA bundle that proxies check clients with.
	ClientCAKey = "client-ca.crt"
	// RevokedClientsKey is the key, beside it, of the list of clients that proxies refuse.
	RevokedClientsKey = "revoked-clients"
	// PodLabel is the label of the proxies' pods; its value is the name of the EtcdStorage.
	PodLabel = "apiserver"
)

// Types of conditions, beside Ready, which is their summary.
const (
	// ConditionCertificatesReady: every certificate and bundle is where it belongs. False says what is missing, and the command that cures it.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionProxyReady: a proxy of the current template serves.
	ConditionProxyReady = "ProxyReady"
	// ConditionCoreReachable: the core etcd answers the operator.
	ConditionCoreReachable = "CoreReachable"
	// ConditionCoreHealthy: every member of the core etcd answers, knows a leader and has space. False is a matter for whoever runs the core: it does not
	// make the EtcdStorage less Ready. Unknown while no member has answered.
	ConditionCoreHealthy = "CoreHealthy"
	// ConditionQuotaExceeded: the tenant is at a bound of spec.quota: it has all the keys or leases that it may have, or 95 % of the bytes. Unknown until
	// it was counted for the first time.
	ConditionQuotaExceeded = "QuotaExceeded"
	// ConditionRotationInProgress: a newer CA is trusted than the one that signs, or certificates of an older one are in use. Unknown while there is no CA to look at.
	ConditionRotationInProgress = "RotationInProgress"
	// ConditionConflict: something of somebody else is in the way. It is left as it is. Unknown while the core does not say whose the prefix is.
	ConditionConflict = "Conflict"
	// ConditionDeployed: a proxy is ready. It is etcdproxy-controller's only condition.
	ConditionDeployed = "Deployed"
)
