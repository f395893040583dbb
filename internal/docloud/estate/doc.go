// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package estate decides what of a DigitalOcean account is this cluster's, what in the cluster refers to each object, and
// what each costs. It is pure: the plugin, the doctor and the cloud controller manager read, and judge by [Judge].
//
//	load balancer  this cluster's by a proof in a Service, or by the tag k8s:<DO_CLUSTER_ID>
//	certificate    this cluster's by its name mooring-…, unless a load balancer that is not this cluster's uses it
//	firewall       this cluster's by the name that the cloud controller manager is configured with
//	volume,        judged by package volumes; only its verdict is taken
//	snapshot
//	droplet        counted
//
// What nothing refers to is said of a list that was read, with tags that were shown, and of an object that is not new.
// Everything else is unknown. The tag of another cluster makes an object another cluster's, unless a Service of this one
// has a proof that it holds it.
package estate
