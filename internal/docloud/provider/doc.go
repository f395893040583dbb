// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package provider puts together what Kubernetes' cloud controllers (k8s.io/cloud-provider) ask of a provider: package machines answers the
// controllers of Nodes, package balancers that of Services, and the extras work alongside them.
package provider
