// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/base64"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// World is all that a plan is made of. The order of its lists does not matter.
type World struct {
	// Now is the time at which the rest was read.
	Now      time.Time
	Settings Settings
	// Storage is the object to plan for, with its defaults.
	Storage v1alpha1.EtcdStorage
	// Others are the cluster's other EtcdStorages.
	Others []v1alpha1.EtcdStorage
	Core   Core
	// CoreQuota is the quota of the core's smallest member; 0 if it is unknown.
	CoreQuota int64
	Files     CoreFiles
	// Objects are those in the operator's namespace that have one of the names which the EtcdStorage uses.
	Objects []Object
	// Destinations are the tenant's ConfigMaps and Secrets that the spec names.
	Destinations []Destination
	// Revoked are those of [World.RevokedClients].
	Revoked []Destination
	// CertManager is what is known of cert-manager. It is asked only where [World.IssuerConcerned].
	CertManager CertManager
	// StatusLacksCore reports that the API server serves EtcdStorage as an earlier version defined it, and drops status.core: then the record
	// in the core alone binds.
	StatusLacksCore bool
	// Pods counts the proxies' pods that exist. It is read only while the EtcdStorage is being deleted.
	Pods int
}

// Settings are the operator's flags, and who it is.
type Settings struct {
	// Namespace is where the proxies run.
	Namespace     string
	ClusterDomain string
	ProxyImage    string
	// PullSecrets are Secrets of Namespace with which ProxyImage is pulled, alongside those of its account default.
	PullSecrets []string
	// CoreURLs are the client URLs of the core.
	CoreURLs []string
	// CAConfigMap and CertsSecret are what the proxies use towards the core.
	CAConfigMap, CertsSecret string
	// TenantUsers: an etcd user and a role for each tenant, whenever the core has authentication on.
	TenantUsers bool
	// UserRotation is how long a user's password is used; 0 for ever.
	UserRotation time.Duration
	// QuotaBytes is the bound of bytes of a tenant whose spec.quota.bytes is not set; 0 for none.
	QuotaBytes int64
	// OvercommitPercent is the part of the smallest member's quota that tenants may be promised together before others are refused; 0 for no bound.
	OvercommitPercent int64
	// Cluster is the UID of the cluster, so that two clusters on one core do not take each other's tenants for their own.
	Cluster string
	// User is the operator's own name in Kubernetes, for the commands that grant it rights.
	User string
}

// CoreFiles are the keys under which the core's credentials were found.
type CoreFiles struct {
	CA, Cert, Key string
	// Problem says what is missing, "" if nothing is.
	Problem string
}

// Core is the core etcd.
type Core struct {
	// Problem says why nothing is known of the core, "" if it answers.
	Problem string
	// Silent reports that it did not respond at all, rather than with a refusal.
	Silent bool
	// Auth reports that authentication is on.
	Auth bool
	// ClusterID is the ID of the etcd cluster that answered, in hexadecimal.
	ClusterID string
	// Revision is the store's at which the owners were read.
	Revision int64
	// Owners are the records of all tenants of the core.
	Owners []Owner
	// Keys is the number of keys under the prefix.
	Keys int64
	// SharedUser is the etcd user of the certificate that all proxies use; "" if it is nobody's.
	SharedUser string
	// Users are the names of the tenant's users, Granted those of them that have the role. RoleReady says that the role is
	// as it should be. The role is read if there are users, and while the EtcdStorage is being deleted.
	Users, Granted []string
	RoleExists     bool
	RoleReady      bool
	// Leases are the tenant's leases in the core, and Records the number of keys under its system prefix. Both are read only while the
	// EtcdStorage is being deleted.
	Leases  []int64
	Records int64
}

// Owner is the record of a tenant in the core.
type Owner struct {
	Tenant     string `json:"tenant"`
	Prefix     string `json:"prefix"`
	LeaseSpace string `json:"leaseSpace"`
	Cluster    string `json:"cluster"`
	UID        string `json:"uid"`
	// Core is the cluster ID of the core at which it was claimed, "" in records of versions that did not keep it. A copy of the data in another core has
	// the ID of the first.
	Core string `json:"core,omitempty"`
	// Released reports that the EtcdStorage is gone and the data was left.
	Released bool `json:"released,omitempty"`
	// Modified is the revision at which the record was written.
	Modified int64 `json:"-"`
}

// Object is an object as the API server returns it.
type Object struct {
	Kind    string
	Content map[string]any
}

// Names and versions of the kinds that the operator writes.
const (
	KindDeployment    = "Deployment"
	KindService       = "Service"
	KindBudget        = "PodDisruptionBudget"
	KindNetworkPolicy = "NetworkPolicy"
	KindSecret        = "Secret"
	KindConfigMap     = "ConfigMap"
)

// Ref names an object in the operator's namespace.
type Ref struct{ APIVersion, Kind, Name string }

// String is kind/name.
func (r Ref) String() string { return r.Kind + "/" + r.Name }

// Refs lists every object of the operator's namespace that an EtcdStorage of this name uses. The names of Deployment, Service, <name>-ca-cert and
// <name>-server-cert are those of etcdproxy-controller. MUST NOT change.
func Refs(name string) []Ref {
	return []Ref{
		{"v1", KindSecret, SignersName(name)},
		{"v1", KindConfigMap, ClientCAName(name)},
		{"v1", KindSecret, ServingName(name)},
		{"v1", KindSecret, UserSecretName(name)},
		{"v1", KindService, ProxyName(name)},
		{"policy/v1", KindBudget, ProxyName(name)},
		{"networking.k8s.io/v1", KindNetworkPolicy, ProxyName(name)},
		{"apps/v1", KindDeployment, ProxyName(name)},
	}
}

// ProxyName is the name of the Deployment, the Service, the PodDisruptionBudget and the NetworkPolicy.
func ProxyName(name string) string { return "etcd-" + name }

// SignersName is the Secret with the CAs and their keys, which the operator alone reads.
func SignersName(name string) string { return name + "-signers" }

// ClientCAName is the ConfigMap with the bundle that proxies check clients with.
func ClientCAName(name string) string { return name + "-ca-cert" }

// ServingName is the Secret with the proxies' certificate.
func ServingName(name string) string { return name + "-server-cert" }

// UserSecretName is the Secret with the passwords of the tenant's etcd users.
func UserSecretName(name string) string { return name + "-core-user" }

// EtcdRole is the tenant's role in the core, and the beginning of the names of its users, which a '/' and a number follow. MUST NOT change: by
// these names the operator knows its own.
func EtcdRole(name string) string { return "mooring/" + name }

// Prefix is where the keys of an EtcdStorage are.
func Prefix(s *v1alpha1.EtcdStorage) string {
	if s.Spec.Prefix != "" {
		return s.Spec.Prefix
	}
	return "/" + s.Name + "/"
}

// SystemPrefix is where the proxies of a tenant keep their records, as --system-prefix of the proxy has it by default.
func SystemPrefix(name string) string { return tenancy.DefaultSystemPrefix + "tenants/" + name + "/" }

// OwnersPrefix is where the operator keeps the records of owners, out of the reach of the tenants' users.
const OwnersPrefix = tenancy.DefaultSystemPrefix + "owners/"

// Endpoint is the URL that clients use.
func (w World) Endpoint() string {
	return "https://" + ProxyName(w.Storage.Name) + "." + w.Settings.Namespace + ".svc:2379"
}

// exiting reports that the EtcdStorage is being deleted.
func (w World) exiting() bool { return w.Storage.DeletionTimestamp != nil }

// held reports that it has the finalizer.
func (w World) held() bool { return slices.Contains(w.Storage.Finalizers, v1alpha1.Finalizer) }

// object finds one of the objects.
func (w World) object(kind, name string) (Object, bool) {
	i := slices.IndexFunc(w.Objects, func(o Object) bool { return o.Kind == kind && o.meta("name") == name })
	if i < 0 {
		return Object{}, false
	}
	return w.Objects[i], true
}

// Put takes in an object as the API server returned it, in place of the one of that name; nil if there is none.
func (w *World) Put(ref Ref, content map[string]any) {
	named := func(o Object) bool { return o.Kind == ref.Kind && o.meta("name") == ref.Name }
	w.Objects = slices.DeleteFunc(w.Objects, named)
	if content != nil {
		w.Objects = append(w.Objects, Object{Kind: ref.Kind, Content: content})
	}
}

// Version returns UID and resourceVersion of one of the objects, "" if there is none.
func (w World) Version(ref Ref) (uid, version string) {
	o, _ := w.object(ref.Kind, ref.Name)
	return o.meta("uid"), o.meta("resourceVersion")
}

// Claimed takes in what a Claim has written at a revision.
func (c *Core) Claimed(s Claim, revision int64) {
	for _, r := range s.Replaces {
		c.Owners = slices.DeleteFunc(c.Owners, func(o Owner) bool { return o.Tenant == r.Tenant })
	}
	owner := s.Owner
	owner.Modified, c.Revision = revision, revision
	c.Owners = append(c.Owners, owner)
}

// Ensured takes in what EnsureUser has made.
func (c *Core) Ensured(user string) {
	is := func(name string) bool { return name == user }
	c.RoleExists, c.RoleReady = true, true
	c.Users, c.Granted = append(slices.DeleteFunc(c.Users, is), user), append(slices.DeleteFunc(c.Granted, is), user)
}

// own finds one of the objects if it is the EtcdStorage's.
func (w World) own(kind, name string) (Object, bool) {
	o, ok := w.object(kind, name)
	return o, ok && o.ownedBy(string(w.Storage.UID))
}

func (o Object) meta(field string) string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	text, _ := metadata[field].(string)
	return text
}

// ownedBy reports that the object's controller is this one.
func (o Object) ownedBy(uid string) bool {
	metadata, _ := o.Content["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	return slices.ContainsFunc(owners, func(owner any) bool {
		fields, _ := owner.(map[string]any)
		return fields["uid"] == uid && fields["controller"] == true
	})
}

// secretData is the data of a Secret.
func (o Object) secretData() map[string][]byte {
	out := map[string][]byte{}
	data, _ := o.Content["data"].(map[string]any)
	for key, value := range data {
		text, _ := value.(string)
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			out[key] = raw
		}
	}
	return out
}

// configData is one value of a ConfigMap.
func (o Object) configData(key string) []byte {
	data, _ := o.Content["data"].(map[string]any)
	text, _ := data[key].(string)
	return []byte(text)
}

// number is a number of the object, such as status.readyReplicas; 0 if there is none.
func (o Object) number(path ...string) int64 {
	var at any = o.Content
	for _, field := range path {
		fields, _ := at.(map[string]any)
		at = fields[field]
	}
	switch n := at.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
