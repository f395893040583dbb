// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Names of scenarios. They are arguments of `lab scenario`.
const (
	Idle       = "idle"
	Enable     = "enable"
	Steady     = "steady"
	ReplaceOne = "replace-one"
	ReplaceAll = "replace-all"
	Grow       = "grow"
	Shrink     = "shrink"
	Disable    = "disable"
)

// Names lists the scenarios in an order in which each finds what it needs.
func Names() []string {
	return []string{Idle, Enable, Steady, ReplaceOne, ReplaceAll, Grow, Shrink, Disable}
}

// Redundancy is how many reflectors there are at first, Grown how many after Grow.
const (
	Redundancy = 2
	Grown      = 4
)

// topologyName is that of the topology of all scenarios.
const topologyName = "lab"

// check refuses what cannot be run, given who is a reflector now.
func check(name string, burst bool, now []string) error {
	switch {
	case !slices.Contains(Names(), name):
		return fmt.Errorf("scenario %q is unknown; use one of %s", name, strings.Join(Names(), ", "))
	case burst && (name == Idle || name == Steady):
		return fmt.Errorf("scenario %s changes nothing, so that there is nothing to do at once", name)
	case len(now) == 0 && name != Idle && name != Enable:
		return fmt.Errorf("scenario %s needs reflectors, and there are none; run the scenario %s first", name, Enable)
	}
	return nil
}

// wanted is the spec that a scenario moves to, given who is a reflector now; nil for no topology.
func wanted(name string, now []string) *v1alpha1.RouteReflectorTopologySpec {
	count := int32(Redundancy)
	spec := &v1alpha1.RouteReflectorTopologySpec{Redundancy: &count}
	spec.Failure.Stabilization = &metav1.Duration{} // the machines of a lab are young
	switch name {
	case ReplaceOne:
		spec.Reflectors.Excluded = excluding(now[:1])
	case ReplaceAll:
		spec.Reflectors.Excluded = excluding(now)
	case Grow:
		count = Grown
	case Disable:
		return nil
	}
	return spec
}

// excluding selects nodes by name.
func excluding(names []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}
