// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SilentClient is a client without a session.
type SilentClient struct {
	// node is the name of the Node.
	Node string `json:"node"`
	// since is when it was first seen without one.
	Since metav1.Time `json:"since"`
	// lastObserved is when its reflectors were last asked.
	LastObserved metav1.Time `json:"lastObserved"`
	// reason is what the reflectors reported, and what to look at.
	Reason string `json:"reason"`
}

// LostReflector is a reflector that other nodes reported to have lost.
type LostReflector struct {
	// node is the name of the Node.
	Node string `json:"node"`
	// since is when the second of them lost it.
	Since metav1.Time `json:"since"`
	// until is when two of them had a session with it again, or when it ceased to be a reflector; absent while it is lost.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// Spare is a node that takes the place of a reflector that is lost.
type Spare struct {
	// node is the name of the Node.
	Node string `json:"node"`
	// zone is the value of the first topology key on the node.
	// +optional
	Zone string `json:"zone,omitempty"`
	// reflector is the lost reflector whose place it takes, which has not lost its role yet; absent while no reflector
	// needs it.
	// +optional
	Reflector string `json:"reflector,omitempty"`
	// since is when it was decided that it takes that place.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// until is when the reflector returned. One of the two ceases to be a reflector when that has stood for
	// failure.stabilization.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// DescribeSpares is a list of spares in words.
func DescribeSpares(all []Spare) string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		text := s.Node
		if s.Zone != "" {
			text += " (zone " + s.Zone + ")"
		}
		switch {
		case s.Until != nil:
			text += " alongside " + s.Reflector + ", which has returned"
		case s.Reflector != "":
			text += " in place of " + s.Reflector
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
