// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	// Hold puts the finalizer on the EtcdStorage, before anything is done for it. Unhold takes it away.
	Hold   Kind = "Hold"
	Unhold Kind = "Unhold"
	// Claim writes the tenant's record to the core, if nobody has written one meanwhile. Release marks that its data was left; Forget removes it.
	Claim   Kind = "Claim"
	Release Kind = "Release"
	Forget  Kind = "Forget"
	// Bind records in the status the core at which the prefix was claimed, before anything else is made.
	Bind Kind = "Bind"
	// Apply creates or changes an object in the operator's namespace.
	Apply Kind = "Apply"
	// MakeCA makes a CA and adds it to the Secret with the CAs.
	MakeCA Kind = "MakeCA"
	// TakeCA adds the CA of an issuer to that Secret.
	TakeCA Kind = "TakeCA"
	// Recover writes that Secret, which was deleted, with the certificates of its CAs.
	Recover Kind = "Recover"
	// IssueServing issues the proxies' certificate.
	IssueServing Kind = "IssueServing"
	// DeliverBundle writes a CA bundle to a ConfigMap of the tenant, DeliverClient issues a certificate into a Secret of the tenant. Withdraw takes
	// away what was written there.
	DeliverBundle Kind = "DeliverBundle"
	DeliverClient Kind = "DeliverClient"
	Withdraw      Kind = "Withdraw"
	// Revoke records that clients are refused from now on, whose Secrets the spec names no more.
	Revoke Kind = "Revoke"
	// MakePassword draws the password of the tenant's next etcd user. EnsureUser makes role and user in the core; RetireUsers removes users, and
	// the role when the tenant goes; DropPasswords removes the passwords of deleted users.
	MakePassword Kind = "MakePassword"
	EnsureUser   Kind = "EnsureUser"
	RetireUsers  Kind = "RetireUsers"
	// Remove deletes an object of the operator's namespace.
	Remove Kind = "Remove"
	// DeleteKeys deletes the keys under the prefix, in pages; DeleteRecords those of the proxies' records; RevokeLeases the tenant's leases.
	DeleteKeys    Kind = "DeleteKeys"
	DeleteRecords Kind = "DeleteRecords"
	RevokeLeases  Kind = "RevokeLeases"
)

// Step is one write, or one deed of which each part can be done again.
type Step struct {
	Kind Kind `json:"kind"`
	// Object is what is written, as Kind/name or as a place in the core.
	Object string `json:"object"`
	Reason string `json:"reason"`

	// Ref and Content are the object of Apply, MakeCA, TakeCA, Recover, Revoke, IssueServing, MakePassword and Remove. What is drawn goes into its data.
	Ref     Ref            `json:"-"`
	Content map[string]any `json:"-"`
	// UID and ResourceVersion are those of the object that the step was decided on, "" for one that is to be created.
	UID             string `json:"-"`
	ResourceVersion string `json:"-"`

	// Purpose, Generation, Validity and Leaf say what MakeCA makes, or what IssueServing and DeliverClient issue; CA is who signs.
	Purpose    pki.Purpose   `json:"-"`
	Generation int           `json:"-"`
	Validity   time.Duration `json:"-"`
	Leaf       pki.Leaf      `json:"-"`
	CA         pki.CA        `json:"-"`

	// Destination is that of DeliverBundle, DeliverClient and Withdraw, Bundle what DeliverBundle writes.
	Destination Destination `json:"-"`
	Bundle      []byte      `json:"-"`

	// Core is the cluster ID that Bind records.
	Core string `json:"-"`

	// Owner is the record of Claim, Release and Forget, Replaces the records that Claim replaces, Revision the store's at which it was decided.
	Owner    Owner   `json:"-"`
	Replaces []Owner `json:"-"`
	Revision int64   `json:"-"`

	// User and Password are those of EnsureUser; Number is that of MakePassword; Users are those of RetireUsers, Role says that the role goes, too.
	User     string   `json:"-"`
	Password string   `json:"-"`
	Number   int      `json:"-"`
	Users    []string `json:"-"`
	Role     bool     `json:"-"`
	// Leases are those of RevokeLeases.
	Leases []int64 `json:"-"`
}

// Last reports that what follows depends on what the step makes, so that a plan ends with it.
func (s Step) Last() bool {
	switch s.Kind {
	case Hold, Claim, Bind, MakeCA, TakeCA, Recover, Revoke, MakePassword, Release, Forget, Unhold, DeleteKeys, DeleteRecords, RevokeLeases, RetireUsers:
		return true
	case Apply, IssueServing, DeliverBundle, DeliverClient, Withdraw, EnsureUser, Remove:
	}
	return s.Kind == Apply && (s.Ref.Kind == KindSecret || s.Ref.Kind == KindConfigMap)
}

// String is the step in a line.
func (s Step) String() string { return fmt.Sprintf("%s %s: %s", s.Kind, s.Object, s.Reason) }

// Reason classifies a Refusal. The words become reasons of conditions. MUST NOT change.
type Reason string

// The reasons for which nothing, or not everything, is done.
const (
	// ReasonInvalidSpec of CertificatesReady=False, Ready=False, Stalled=True: the spec is invalid. If the object
	// cannot be decoded, all other conditions are Unknown.
	ReasonInvalidSpec Reason = "InvalidSpec"
	// ReasonPrefixTaken of Conflict=True, CertificatesReady=False, Ready=False, Stalled=True: the prefix in the core is
	// another tenant's, or overlaps one.
	ReasonPrefixTaken Reason = "PrefixTaken"
	// ReasonExistingData of Conflict=True, CertificatesReady=False, Ready=False, Stalled=True: the core has keys under
	// the prefix already, and spec.adoptExistingData is not true.
	ReasonExistingData Reason = "ExistingData"
	// ReasonCoreOvercommitted of CoreOvercommitted=True, CertificatesReady=False, Ready=False, Stalled=True: the
	// tenants of the core may store and write more than the quota of its smallest member. On the last two, a new
	// EtcdStorage is refused for it.
	ReasonCoreOvercommitted Reason = "CoreOvercommitted"
	// ReasonForeignObject of Conflict=True, CertificatesReady=False, Ready=False, Stalled=True: an object with a
	// required name was not created by the operator, or a destination has keys of another owner.
	ReasonForeignObject Reason = "ForeignObject"
	// ReasonForeignCore of Conflict=True, CertificatesReady=False, Ready=False, Stalled=True: the core etcd that
	// responds is not the one that the EtcdStorage is bound to; the message has the command that accepts it.
	ReasonForeignCore Reason = "ForeignCore"
	// ReasonCoreUnreachable of CoreReachable=False, Conflict=Unknown, Ready=False: the core etcd does not respond.
	ReasonCoreUnreachable Reason = "CoreUnreachable"
	// ReasonCoreCredentials of CoreReachable=False, Ready=False, Stalled=True: the operator's credentials for the core
	// are missing or unusable.
	ReasonCoreCredentials Reason = "CoreCredentials"
	// ReasonSharedUser of CoreReachable=False, Ready=False, Stalled=True: the certificate that all proxies share is
	// that of an etcd user, so that each would have its rights.
	ReasonSharedUser Reason = "SharedCoreUser"
	// ReasonMissingPermission of CertificatesReady=False, Ready=False, Stalled=True: the operator may not write to a
	// destination; the message has the command that grants it.
	ReasonMissingPermission Reason = "MissingPermission"
	// ReasonMissingObject of CertificatesReady=False, Ready=False, Stalled=True: a destination does not exist, and the
	// operator may not create it; the message has the command.
	ReasonMissingObject Reason = "MissingObject"
	// ReasonDestination of CertificatesReady=False, Ready=False, Stalled=True: a destination is in the operator's own
	// namespace.
	ReasonDestination Reason = "InvalidDestination"
	// ReasonDestinationTaken of Conflict=True, CertificatesReady=False, Ready=False, Stalled=True: a destination
	// belongs to another EtcdStorage.
	ReasonDestinationTaken Reason = "DestinationTaken"
	// ReasonNoCertManager of CertificatesReady=False, Ready=False, Stalled=True: spec.issuerRef is set, and there is no
	// cert-manager.
	ReasonNoCertManager Reason = "CertManagerMissing"
	// ReasonIssuerNotReady of CertificatesReady=False, Ready=False: the issuer has not issued or renewed a CA, or cert-manager does not respond.
	ReasonIssuerNotReady Reason = "IssuerNotReady"
	// ReasonUnusableCA of CertificatesReady=False, Ready=False, Stalled=True: the issuer has not issued a usable CA.
	ReasonUnusableCA Reason = "UnusableCA"
)

// Refusal is a reason not to act: one sentence that says what is wrong, where, and what to do.
type Refusal struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

func refuse(reason Reason, format string, args ...any) Refusal {
	return Refusal{reason, fmt.Sprintf(format, args...)}
}
