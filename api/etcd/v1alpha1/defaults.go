// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetDefaults fills in what the API server fills in for an EtcdStorage, by the markers of this package, for readers of files. A test compares the two.
func SetDefaults(e *EtcdStorage) {
	s := &e.Spec
	set(&s.SigningCertificateValidity, hours(26280))
	set(&s.ServingCertificateValidity, hours(2160))
	set(&s.ClientCertificateValidity, hours(2160))
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
