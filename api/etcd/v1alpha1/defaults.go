// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetDefaults fills in what an EtcdStorage leaves out: what the API server fills in by the markers of this package, for readers of files,
// and what it leaves to anyone who reads it. A test compares the two.
func SetDefaults(e *EtcdStorage) {
	s := &e.Spec
	set(&s.SigningCertificateValidity, hours(26280))
	// These two are not the API server's to fill in: it would refuse a CA of a shorter life for the sake of fields that nobody has written.
	leaf := metav1.Duration{Duration: min(hours(2160).Duration, s.SigningCertificateValidity.Duration)}
	set(&s.ServingCertificateValidity, leaf)
	set(&s.ClientCertificateValidity, leaf)
	if s.IssuerRef != nil {
		set(&s.IssuerRef.Kind, "Issuer")
		set(&s.IssuerRef.Group, "cert-manager.io")
	}
	set(&s.DeletionPolicy, DeletionRetain)
	set(&s.Priority, 50)
	set(&s.Compaction.Mode, CompactionShared)
	set(&s.Replicas, 3)
	if s.TopologySpread.Keys == nil {
		s.TopologySpread.Keys = []string{corev1.LabelTopologyZone, corev1.LabelHostname}
	}
	set(&s.TopologySpread.WhenUnsatisfiable, corev1.ScheduleAnyway)
	if s.NetworkPolicy.Enabled == nil {
		yes := true
		s.NetworkPolicy.Enabled = &yes
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func hours(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Hour} }
