// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// Step is one write, or one deed of which each part can be done again. The set of steps is closed: only the types below implement it.
//
//sumtype:decl
type Step interface {
	// What returns what is written, and why.
	What() About
	// String is the step in a line.
	String() string
	step()
}

// About is what a step writes, as Kind/name or as a place in the core, and why.
type About struct{ Object, Reason string }

// What implements Step.
func (a About) What() About { return a }

func (About) step() {}

// Write is an object of the operator's own namespace as a step applies it. What is drawn goes into its data.
type Write struct {
	About
	Ref     Ref
	Content map[string]any
	// UID and ResourceVersion are those of the object that the step was decided on, "" for one that is to be created.
	UID, ResourceVersion string
}

func (w Write) write() Write { return w }

// WriteOf returns the object of the operator's own namespace that a step applies, its zero value for a step that applies none.
func WriteOf(s Step) Write {
	if w, ok := s.(interface{ write() Write }); ok {
		return w.write()
	}
	return Write{}
}

// Delivery is a step at a ConfigMap or Secret of the tenant.
type Delivery struct {
	About
	Destination Destination
}

func (d Delivery) destination() Destination { return d.Destination }

// DestinationOf returns the destination that a step writes to, its zero value for a step that writes to none.
func DestinationOf(s Step) Destination {
	if d, ok := s.(interface{ destination() Destination }); ok {
		return d.destination()
	}
	return Destination{}
}

// Issuance is a certificate that is to be issued, and the CA that signs it.
type Issuance struct {
	Leaf     pki.Leaf
	CA       pki.CA
	Validity time.Duration
}

// Draw issues the certificate, as the data of a Secret.
func (i Issuance) Draw(random io.Reader, now time.Time) (map[string][]byte, error) {
	pair, err := i.CA.Issue(random, now, i.Leaf, i.Validity)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{keyCert: pair.Cert, keyKey: pair.Key}, nil
}

// Record is a step about the tenant's record in the core, or about what that says is the tenant's.
type Record struct {
	About
	Owner Owner
}

type (
	// Hold puts the finalizer on the EtcdStorage, before anything is done for it.
	Hold struct{ About }
	// Unhold removes the finalizer.
	Unhold struct{ About }
	// Claim writes the record in place of others, if nobody has written one since the store's revision at which it was decided.
	Claim struct {
		Record
		Replaces []Owner
		Revision int64
	}
	// Release marks in the record that the data was left.
	Release struct{ Record }
	// Forget removes the record.
	Forget struct{ Record }
	// Bind records in the status the cluster ID of the core at which the prefix was claimed, before anything else is made.
	Bind struct {
		About
		Core string
	}
	// Apply creates or changes an object.
	Apply struct{ Write }
	// MakeCA makes a CA and adds it to the Secret with the CAs.
	MakeCA struct {
		Write
		Purpose    pki.Purpose
		Generation int
		Validity   time.Duration
	}
	// TakeCA adds the CA of an issuer to that Secret.
	TakeCA struct{ Write }
	// Recover writes that Secret, which was deleted, with the certificates of its CAs.
	Recover struct{ Write }
	// Revoke records in that Secret that clients are refused from now on, whose Secrets the spec names no more.
	Revoke struct{ Write }
	// IssueServing issues the proxies' certificate.
	IssueServing struct {
		Write
		Issuance
	}
	// DeliverBundle writes a CA bundle to a ConfigMap of the tenant.
	DeliverBundle struct {
		Delivery
		Bundle []byte
	}
	// DeliverClient issues a certificate into a Secret of the tenant.
	DeliverClient struct {
		Delivery
		Issuance
	}
	// Withdraw removes what was delivered.
	Withdraw struct{ Delivery }
	// MakePassword draws the password of the tenant's next etcd user, which has this number.
	MakePassword struct {
		Write
		Number int
	}
	// EnsureUser makes role and user in the core.
	EnsureUser struct {
		About
		User, Password string
	}
	// RetireUsers removes users from the core, and the role if the tenant goes.
	RetireUsers struct {
		About
		Users []string
		Role  bool
	}
	// Remove deletes the object of the operator's own namespace that has the UID.
	Remove struct {
		About
		Ref Ref
		UID string
	}
	// DeleteKeys deletes the keys under the prefix, in pages.
	DeleteKeys struct{ Record }
	// DeleteRecords deletes the keys of the proxies' records.
	DeleteRecords struct{ Record }
	// RevokeLeases revokes the tenant's leases.
	RevokeLeases struct {
		Record
		Leases []int64
	}
)

func (s Hold) String() string          { return line(s) }
func (s Unhold) String() string        { return line(s) }
func (s Claim) String() string         { return line(s) }
func (s Release) String() string       { return line(s) }
func (s Forget) String() string        { return line(s) }
func (s Bind) String() string          { return line(s) }
func (s Apply) String() string         { return line(s) }
func (s MakeCA) String() string        { return line(s) }
func (s TakeCA) String() string        { return line(s) }
func (s Recover) String() string       { return line(s) }
func (s Revoke) String() string        { return line(s) }
func (s IssueServing) String() string  { return line(s) }
func (s DeliverBundle) String() string { return line(s) }
func (s DeliverClient) String() string { return line(s) }
func (s Withdraw) String() string      { return line(s) }
func (s MakePassword) String() string  { return line(s) }
func (s EnsureUser) String() string    { return line(s) }
func (s RetireUsers) String() string   { return line(s) }
func (s Remove) String() string        { return line(s) }
func (s DeleteKeys) String() string    { return line(s) }
func (s DeleteRecords) String() string { return line(s) }
func (s RevokeLeases) String() string  { return line(s) }

func line(s Step) string { return fmt.Sprintf("%s %s: %s", Kind(s), s.What().Object, s.What().Reason) }

// Kind is the step's type name, as it stands in logs, Events and metrics.
func Kind(s Step) string { return strings.TrimPrefix(fmt.Sprintf("%T", s), "operator.") }

// last reports that what follows depends on what the step makes, so that a plan ends with it.
func last(s Step) bool {
	switch s := s.(type) {
	case Hold, Claim, Bind, MakeCA, TakeCA, Recover, Revoke, MakePassword, Release, Forget, Unhold, DeleteKeys, DeleteRecords, RevokeLeases, RetireUsers:
		return true
	case Apply:
		return s.Ref.Kind == KindSecret || s.Ref.Kind == KindConfigMap
	case IssueServing, DeliverBundle, DeliverClient, Withdraw, EnsureUser, Remove:
	}
	return false
}

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
