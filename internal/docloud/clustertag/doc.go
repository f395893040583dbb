// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package clustertag puts the cluster's tag (k8s:<DO_CLUSTER_ID>) on the load balancers of its Services that lack it: those that were made before
// the cluster had an ID, or by somebody else, or whose tag was taken off. The API takes the tags of a load balancer only when it is made, so
// that this has a call of its own.
//
// It is the upstream project's tag controller at the upstream project's pace (resources.go of v0.1.68), with these differences: the list of
// load balancers is the one that is read anyway, nothing is sent when no tag is missing, all that lack it get it in one call, and what may
// be another cluster's is left alone (loadbalancer.Untagged).
package clustertag
