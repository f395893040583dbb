// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What the operator writes on objects. These strings are a contract with clusters that run already: by them an operator of another version knows
// what is its own.
const (
	// StorageLabel on the operator's own objects: the name of the EtcdStorage that they belong to.
	StorageLabel = "etcd.mooring.dev/storage"
	// DeliveredAnnotation on a tenant's ConfigMap or Secret into which certificates were written. Its value is the name and the UID of the
	// EtcdStorage, with a '/' between.
	DeliveredAnnotation = "etcd.mooring.dev/delivered-by"
	// AppliedAnnotation on the operator's own objects: a hash of what was applied last, so that fields that an older version applied are removed.
	AppliedAnnotation = "etcd.mooring.dev/applied"
	// AcceptCoreAnnotation on an EtcdStorage allows binding it to another core etcd than the one in status.core.clusterID. Its value is the
	// cluster ID of the new core in hexadecimal, as the condition Conflict shows it; other values are ignored.
	AcceptCoreAnnotation = "etcd.mooring.dev/accept-core"
	// RestartedAnnotation on an EtcdStorage confirms that the tenant's API servers were restarted after the core went back. Its value is the time that the
	// condition CoreWentBack names; other values are ignored.
	RestartedAnnotation = "etcd.mooring.dev/api-servers-restarted"
	// Finalizer on an EtcdStorage: holds the deletion until its data is released or deleted.
	Finalizer = "etcd.mooring.dev/storage"
)

// Keys in ConfigMaps and Secrets, and the label of pods, as etcdproxy-controller had them.
const (
	// ServingCAKey is the key of the CA bundle in spec.caCertConfigMap.
	ServingCAKey = "serving-ca.crt"
	// ClientCAKey is the key of the CA bundle that proxies check clients with.
	ClientCAKey = "client-ca.crt"
	// RevokedClientsKey is the key, alongside it, of the list of clients that proxies refuse.
	RevokedClientsKey = "revoked-clients"
	// PodLabel is the label of the proxies' pods; its value is the name of the EtcdStorage.
	PodLabel = "apiserver"
)

// Types of conditions, alongside Ready, which is their summary.
const (
	// ConditionCertificatesReady: every certificate and bundle is in place. If False, the message says what is missing and which command
	// fixes it.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionProxyReady: a proxy of the current template serves.
	ConditionProxyReady = "ProxyReady"
	// ConditionCoreReachable: the core etcd responds to the operator.
	ConditionCoreReachable = "CoreReachable"
	// ConditionCoreHealthy: every member of the core etcd responds, has a leader and has space. If False, the operator of the core etcd has to
	// act; Ready does not depend on it. Unknown while no member has responded.
	ConditionCoreHealthy = "CoreHealthy"
	// ConditionCoreWentBack: the core etcd responded with a revision below one that was seen before, as after a restore from a backup. The tenant's API servers
	// must be restarted; Ready does not depend on it. Unknown until the operator has read what it has kept of the core.
	ConditionCoreWentBack = "CoreWentBack"
	// ConditionCoreOvercommitted: the tenants of the core may together store, and write between two compactions, more than the quota of its smallest member. If
	// they do, the core refuses the writes of all. Ready does not depend on it. Unknown while no member has reported its quota.
	ConditionCoreOvercommitted = "CoreOvercommitted"
	// ConditionQuotaExceeded: the tenant is at a limit of spec.quota: it has all the keys or leases that it may have, or 95 % of the bytes.
	// Unknown until the first count.
	ConditionQuotaExceeded = "QuotaExceeded"
	// ConditionRotationInProgress: a newer CA is trusted than the one that signs, or certificates of an older one are in use. Unknown while
	// there is no CA.
	ConditionRotationInProgress = "RotationInProgress"
	// ConditionConflict: an object or data of another owner prevents the work. It is not changed. Unknown while the owner of the prefix in the
	// core is not known.
	ConditionConflict = "Conflict"
	// ConditionDeployed: a proxy is ready. It is etcdproxy-controller's only condition.
	ConditionDeployed = "Deployed"
)
