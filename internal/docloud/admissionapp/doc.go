// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package admissionapp is the program digitalocean-cloud-controller-manager-admission-server: a validating webhook for Services.
//
//	API server ──HTTPS /lb-service──► handler ──► admission.Review ──► refused, or allowed with warnings
//	                                                    │
//	                                                    └─ worth a question ─► asker ──► DigitalOcean, changing nothing
//
// It needs nothing of Kubernetes: no account, no role, no client. It fails open: whatever keeps it from an answer, or DigitalOcean from one, is a
// warning, and its webhook is registered with failurePolicy Ignore.
//
// DigitalOcean is asked only about what differs from before, as seldom as [askEvery] says, and not at all for a while after it has asked to wait
// or has not answered, so that neither people nor the cloud controller manager, which has the same limits, wait for this program.
package admissionapp
