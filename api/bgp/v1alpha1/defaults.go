// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetDefaults fills in what the API server fills in for a RouteReflectorTopology, by the markers of this package, for readers of files. A test
// compares the two.
func SetDefaults(t *RouteReflectorTopology) {
	s := &t.Spec
	set(&s.Mode, ModeAuto)
	set(&s.ClusterID, "244.0.0.1")
	set(&s.ClusterIDRange, "244.0.0.0/16")
	set(&s.Mesh, MeshManage)
	if s.TopologyKeys == nil {
		s.TopologyKeys = []string{corev1.LabelTopologyZone}
	}
	if s.Reflectors.Tolerations == nil {
		s.Reflectors.Tolerations = []corev1.Toleration{
			{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		}
	}
	setPointer(&s.Reflectors.AvoidWorkloads, true)
	set(&s.Sizing.MaxClientsPerReflector, 1000)
	set(&s.Sizing.MaxMeshNodes, 200)
	setPointer(&s.Sizing.HysteresisPercent, 20)
	if p := s.Sizing.PerZone; p != nil {
		set(&p.Min, 1)
		set(&p.Max, 3)
		set(&p.RatioPermille, 5)
	}
	set(&s.Failure.NotReadyGrace, minutes(2))
	set(&s.Failure.UnreachableGrace, minutes(1))
	setPointer(&s.Failure.Stabilization, minutes(5))
	setPointer(&s.Failure.PromoteAfter, metav1.Duration{Duration: 3 * time.Second})
	set(&s.Rollout.Mode, RolloutAuto)
	set(&s.Rollout.MaxUnavailable, 1)
	set(&s.Rollout.SessionTimeout, minutes(3))
	set(&s.Session.SourceAddress, "UseNodeIP")
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func minutes(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Minute} }
