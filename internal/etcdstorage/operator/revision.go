// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// CoreRecord is what is kept of the core's revision outside of the core, which forgets it when it is restored from a backup.
type CoreRecord struct {
	// ClusterID is the ID of the etcd cluster that responded last, in hexadecimal.
	ClusterID string `json:"clusterID"`
	// Revision is the newest one that was seen of it.
	Revision int64 `json:"revision"`
	// WentBack is the last time that the core went back; nil if it never did.
	WentBack *WentBack `json:"wentBack,omitempty"`
}

// WentBack is that the core responded with a revision below one that was seen before.
type WentBack struct {
	// At is when it was noticed, in whole seconds.
	At time.Time `json:"at"`
	// From is the highest revision that was seen before, To the one after.
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Observe adds what a linearizable read that began after the record was read has found. A lower revision means that the core went back, whatever its cluster
// ID: any member responds to such a read with all that was committed before (etcd's ReadIndex), so one that lags is no cause.
func (c CoreRecord) Observe(now time.Time, id string, revision int64) CoreRecord {
	out := CoreRecord{ClusterID: id, Revision: revision, WentBack: c.WentBack}
	if revision < c.Revision {
		out.WentBack = &WentBack{At: now.UTC().Truncate(time.Second), From: c.Revision, To: revision}
	}
	return out
}

// Name is how people confirm that they have dealt with it: the value of [v1alpha1.RestartedAnnotation].
func (b *WentBack) Name() string { return b.At.UTC().Format(time.RFC3339) }

// Concerns reports whether an EtcdStorage existed when the core went back, and nobody has confirmed that its API servers were restarted since.
func (b *WentBack) Concerns(s *v1alpha1.EtcdStorage) bool {
	return b != nil && !s.CreationTimestamp.After(b.At) && s.Annotations[v1alpha1.RestartedAnnotation] != b.Name()
}

// Message says what happened and what to do.
func (b *WentBack) Message(storage string) string {
	return fmt.Sprintf("the core etcd went back from revision %d to %d, noticed at %s, as after a restore from a backup: what was written in between is lost, and API servers may still show it; "+
		"restart the tenant's API servers and their clients, then run: kubectl annotate etcdstorage %s --overwrite %s=%s",
		b.From, b.To, b.Name(), quote(storage), v1alpha1.RestartedAnnotation, b.Name())
}
