// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package conditions keeps lists of metav1.Condition by the rules that kstatus, Flux, Argo CD and
// `kubectl wait` rely on: one entry per type, observedGeneration on each, lastTransitionTime that moves
// with the status only, and Ready as the summary of the others.
//
// The package is pure: time is an argument, and nothing is written to the API server. An update that
// changes nothing says so, so that a reconcile without news makes no request.
package conditions
