// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package services is the process that makes Services work in a lab with real pods: it stands in for kube-proxy, without nftables, and for the
// cluster's DNS (package names).
//
// Every address of the services' range is local in the lab's network namespace (package podnet), and pods' packets to it come there by their default
// route. So it is enough to listen: at each port of each Service that has an endpoint, from where connections and packets are carried to one
// of the ready endpoints. Where there is none nobody listens, and the kernel refuses.
//
// What differs from kube-proxy: an endpoint sees connections come from the pods' gateway, not from the client; a connection to an endpoint that
// does not answer is accepted and then reset; it ends with this process; session affinity, node ports, external addresses and traffic policies do
// nothing.
package services
