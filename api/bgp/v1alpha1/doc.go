// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the group bgp.mooring.dev: RouteReflectorTopology.
//
// +kubebuilder:object:generate=true
// +groupName=bgp.mooring.dev
package v1alpha1
