// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package manager builds the controller-runtime manager of every Mooring binary that talks to a
// Kubernetes API server, from flags with kubebuilder's names.
//
//	flags ─► Options.Validate ─► Options.RESTConfig ─► New ─► Manager (+ Readiness) ─► Start
//
// What it decides once for all binaries:
//   - which cluster: --kubeconfig, or the Pod's own service account, or an error. Never KUBECONFIG,
//     never ~/.kube/config, never a fallback from one to the other: a controller that deletes things
//     must not find itself in whatever cluster a shell happened to point at.
//   - leader election gives its lease back when the process ends in order; the process must exit when
//     Start returns.
//   - metrics are served over TLS to clients whom the API server authenticates and authorizes.
//   - /readyz means "informers synced and dependencies reachable"; /healthz means "the process answers".
//   - informers drop managedFields, which no component reads.
//
// Components must not depend on the flags' values beyond this package.
package manager
