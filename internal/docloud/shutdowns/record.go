// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
)

// mostRecorded bounds Record.Machines.
const mostRecorded = 100

// recordKeeper keeps the record as annotations of a Lease of its own, for the reasons of docs/adr/0007. Each write carries the resourceVersion of what was
// read, so that of two leaders one is refused before it sets a taint.
type recordKeeper struct {
	leases coordinationclient.LeaseInterface
	name   string

	lease        *coordinationv1.Lease // as it was last read or written, nil if there is none
	readAt       time.Time
	now          outofservice.Record
	confirmation string
}

// recordAge is how long the record is believed without reading it again, while nothing waits.
const recordAge = 30 * time.Second

// refresh reads the record where it may be old. While something waits it is read each time: a person may have confirmed it.
func (k *recordKeeper) refresh(ctx context.Context, now time.Time) error {
	old := now.Sub(k.readAt) >= recordAge && len(k.now.Machines) > 0
	if !k.readAt.IsZero() && k.now.Awaiting.Hash == "" && !old {
		return nil
	}
	lease, err := k.leases.Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.lease, k.now, k.confirmation, k.readAt = nil, outofservice.Record{}, "", now
		return nil
	case err != nil:
		return fmt.Errorf("reading Lease %s/%s: %w", outofservice.RecordNamespace, k.name, err)
	}
	k.lease, k.readAt = lease, now
	k.now, k.confirmation, err = outofservice.Recorded(lease)
	if err != nil {
		k.now = outofservice.Record{} // it is written again
	}
	return nil
}

// save writes the record if it is still what was read; otherwise another process has written it since, which is a conflict.
func (k *recordKeeper) save(ctx context.Context, r outofservice.Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the record: %w", err)
	}
	var saved *coordinationv1.Lease
	if k.lease == nil {
		saved, err = k.leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: outofservice.RecordNamespace, Name: k.name, Annotations: map[string]string{outofservice.RecordAnnotation: string(text)}},
		}, metav1.CreateOptions{})
	} else {
		changed := k.lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, outofservice.RecordAnnotation, string(text))
		saved, err = k.leases.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		k.readAt = time.Time{} // read it again before the next attempt
		return fmt.Errorf("writing Lease %s/%s: %w", outofservice.RecordNamespace, k.name, err)
	}
	k.lease, k.now = saved, r
	k.confirmation = saved.Annotations[outofservice.ConfirmAnnotation]
	return nil
}

// remember is what is to be recorded before the plan's first step, nil if the record says it already.
func (c *Controller) remember(p outofservice.Plan, doubt bool) *outofservice.Record {
	next := outofservice.Record{SavedAt: c.Clock.Now().UTC(), Enabled: c.Enabled, Awaiting: p.Awaiting, Memory: p.Memory}
	for _, v := range p.Verdicts {
		if v.Reason == outofservice.ReasonInService {
			continue
		}
		if len(next.Machines) < mostRecorded {
			next.Machines = append(next.Machines, v)
		} else {
			next.More++
		}
	}
	before := c.record.now
	switch {
	case !c.Enabled:
		return nil // nothing is recorded without the flag, which has no right to it
	case c.record.lease == nil, before.Enabled != next.Enabled, !slices.Equal(before.Machines, next.Machines), before.More != next.More, before.Awaiting.Hash != next.Awaiting.Hash,
		before.Awaiting.Count != next.Awaiting.Count, before.Memory.Offered.Hash != next.Memory.Offered.Hash, added(before.Memory, next.Memory):
	case doubt && next.SavedAt.Sub(before.SavedAt) >= c.timing.RecordEvery:
	default:
		return nil
	}
	return &next
}

// added reports whether there are intents that were not recorded. Those that do not count any more are dropped with the next change.
func added(before, after outofservice.Memory) bool {
	return slices.ContainsFunc(after.Intents, func(i outofservice.Intent) bool {
		return !slices.ContainsFunc(before.Intents, func(o outofservice.Intent) bool { return o.UID == i.UID && o.At.Equal(i.At) })
	})
}
