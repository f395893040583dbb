// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud tests digitalocean-cloud-controller-manager end to end, as users of the lab see it: the real binary with the rights that ship in
// config/, a real API server and kube-controller-manager, and a simulated DigitalOcean, each a process that can be killed.
//
//	story    droplets become Nodes and vanish with them; a Service gets a load balancer whose targets follow
//	kills    the component and the cloud are killed at any time: nothing is lost, and nothing is there twice
//	end      nothing stays behind
//	memory   a thousand machines
//	migration  from the upstream project and back, with the commands of docs/migration
//	failover   how long it takes until the other replica acts, and that nothing is done twice
package cloud
