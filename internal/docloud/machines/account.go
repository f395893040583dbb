// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// Where the account's record is kept. These MUST NOT change: a version that looks elsewhere finds no record and binds the cluster again.
const (
	// RecordNamespace and RecordName name the Lease that holds the record.
	RecordNamespace = metav1.NamespaceSystem
	RecordName      = "digitalocean-cloud-controller-manager-account"
	// AccountAnnotation on the Lease kube-system/digitalocean-cloud-controller-manager-account: the UUID of the account that the cluster is bound to.
	AccountAnnotation = "cloud.mooring.dev/account"
	// TeamAnnotation on the Lease of the account: the UUID of the account's team, if there is one.
	TeamAnnotation = "cloud.mooring.dev/team"
	// LossesAnnotation on the Lease of the account: the record of machines that are gone (instance.Memory), as JSON.
	LossesAnnotation = "cloud.mooring.dev/losses"
	// TokenAnnotation on the Lease of the account: the token's health, for people and their tools: a condition of type TokenHealthy, as JSON.
	// The controller does not read it.
	TokenAnnotation = "cloud.mooring.dev/token-healthy"
)

// accountRecord is what outlives the process: whose droplets this cluster's are, and which were declared gone of late.
type accountRecord struct {
	Account instance.Account
	Memory  instance.Memory
	// Token is the token's health, nil if that is not recorded.
	Token *metav1.Condition
}

// ledger keeps the record as annotations of a Lease of its own.
//
// It is a Lease because the upstream project's ClusterRole, which an operator who changes only the image still has, allows Leases to be read and
// written in every namespace and neither ConfigMaps nor Secrets. Nobody holds this Lease: it has no holder and is never renewed. Each write
// carries the resourceVersion of what was read, so that of two leaders one is refused (docs/adr/0007).
type ledger struct {
	leases coordinationclient.LeaseInterface
	name   string

	lease *coordinationv1.Lease // as it was last read or written, nil if there is none
}

// load reads the record. A zero record without an error means that there is none yet. A Lease that has no account, or one that cannot be
// read, is an error: it was written by somebody, so that the cluster may be bound already.
func (l *ledger) load(ctx context.Context) (accountRecord, error) {
	lease, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		l.lease = nil
		return accountRecord{}, nil
	case err != nil:
		return accountRecord{}, fmt.Errorf("reading the account's record, Lease %s/%s: %w", RecordNamespace, l.name, err)
	}
	r, err := parseRecord(lease.Annotations)
	if err != nil {
		return accountRecord{}, fmt.Errorf("the account's record, Lease %s/%s, is damaged: %w; delete the Lease to bind the cluster to the account of the "+
			"token", RecordNamespace, l.name, err)
	}
	l.lease = lease
	return r, nil
}

// errRecordMoved means that the record was written by another process since it was read.
var errRecordMoved = errors.New("another process has changed it since it was read")

// save writes the record if it is still what load or save left, and is errRecordMoved otherwise.
func (l *ledger) save(ctx context.Context, r accountRecord) error {
	annotations, err := formatRecord(r)
	if err != nil {
		return err
	}
	var saved *coordinationv1.Lease
	if l.lease == nil {
		saved, err = l.leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: RecordNamespace, Name: l.name, Annotations: annotations},
		}, metav1.CreateOptions{})
	} else {
		changed := l.lease.DeepCopy()
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		maps.Copy(changed.Annotations, annotations)
		if r.Account.Team == "" {
			delete(changed.Annotations, TeamAnnotation)
		}
		saved, err = l.leases.Update(ctx, changed, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		err = errRecordMoved
		fallthrough
	case err != nil:
		return fmt.Errorf("writing the account's record, Lease %s/%s: %w", RecordNamespace, l.name, err)
	}
	l.lease = saved
	return nil
}

// Notes returns the annotations of the account's Lease, where controllers keep what else must outlive the process, nil for
// no Lease. It is an error while the token belongs to another account, or that cannot be read: what is recorded is not
// about what DigitalOcean shows then. It makes no call to DigitalOcean if the account is known.
func (m *Instances) Notes(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
	defer cancel()
	g := m.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.identify(ctx)
	switch {
	case g.recordErr != nil:
		return nil, g.recordErr
	case g.ledger.lease == nil:
		return nil, nil
	case g.current == instance.Account{}:
		return nil, fmt.Errorf("the account of the token could not be read: %w", g.currentErr)
	case !g.recorded.Account.SameOwner(g.current):
		return nil, fmt.Errorf("the token is one of account %s, but this cluster is in account %s", g.current, g.recorded.Account)
	}
	return maps.Clone(g.ledger.lease.Annotations), nil
}

// Note writes an annotation of the account's Lease, or removes it if the value is empty. Without a Lease it is an error.
func (m *Instances) Note(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
	defer cancel()
	g := m.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readRecord(ctx, g.clock.Now()) // somebody may have deleted it, or another leader may have written it
	switch {
	case g.recordErr != nil:
		return g.recordErr
	case g.ledger.lease == nil:
		return fmt.Errorf("annotation %s cannot be written: there is no Lease %s/%s", name, RecordNamespace, g.ledger.name)
	}
	changed := g.ledger.lease.DeepCopy()
	if delete(changed.Annotations, name); value != "" {
		changed.Annotations[name] = value
	}
	saved, err := g.ledger.leases.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		g.readAt = time.Time{}
		return fmt.Errorf("writing annotation %s of Lease %s/%s: %w", name, RecordNamespace, g.ledger.name, err)
	}
	g.ledger.lease = saved
	return nil
}

// parseRecord is the inverse of formatRecord.
func parseRecord(annotations map[string]string) (accountRecord, error) {
	r := accountRecord{Account: instance.Account{UUID: annotations[AccountAnnotation], Team: annotations[TeamAnnotation]}}
	if r.Account.UUID == "" {
		return accountRecord{}, fmt.Errorf("annotation %s is missing or empty", AccountAnnotation)
	}
	if text, ok := annotations[LossesAnnotation]; ok {
		if err := json.Unmarshal([]byte(text), &r.Memory); err != nil {
			return accountRecord{}, fmt.Errorf("annotation %s: %w", LossesAnnotation, err)
		}
	}
	token := &metav1.Condition{}
	if text, ok := annotations[TokenAnnotation]; ok && json.Unmarshal([]byte(text), token) == nil && token.Type == instance.ConditionTokenHealthy {
		r.Token = token // what cannot be read is written again, and stops nothing
	}
	return r, nil
}

func formatRecord(r accountRecord) (map[string]string, error) {
	if r.Account.UUID == "" {
		return nil, errors.New("a record names an account")
	}
	losses, err := json.Marshal(r.Memory)
	if err != nil {
		return nil, fmt.Errorf("encoding what was lost: %w", err)
	}
	annotations := map[string]string{AccountAnnotation: r.Account.UUID, LossesAnnotation: string(losses)}
	if r.Account.Team != "" {
		annotations[TeamAnnotation] = r.Account.Team
	}
	if r.Token != nil {
		token, err := json.Marshal(r.Token)
		if err != nil {
			return nil, fmt.Errorf("encoding the token's health: %w", err)
		}
		annotations[TokenAnnotation] = string(token)
	}
	return annotations, nil
}
