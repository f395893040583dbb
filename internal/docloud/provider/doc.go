// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package provider is the glue between Kubernetes' cloud controllers (k8s.io/cloud-provider) and DigitalOcean: it reads both sides, lets the
// pure packages decide, and makes the calls.
//
// [Machines] answers what the controllers of Nodes ask. [Balancers] answers what the controller of Services asks, and keeps load balancers as
// they must be by itself: the framework's calls only say that something may have changed.
package provider
