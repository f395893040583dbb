// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the product's own binaries against a real etcd and a real kube-apiserver, with the service account and the rights that
// ship in config/. Run it with `make e2e`; E2E_FLAGS=-short takes samples where the full run tries everything.
//
//	killpoints, rejoin  something happens at every single write: the test stands between the product and its servers (interposer), holds the
//	                    n-th write, and kills the product, or lets the machine come back, before it or after it
//	servers, replicas   etcd and the API server restart, compact or lose answers; leaders die or sleep
//	badinput and others what is wrong is named in one sentence, and nothing is written
//	nodesync            a campaign that kills anything at any time; MOORING_E2E_ROUNDS makes it longer
//	storm               machines come, go, come back and are renamed, or sandboxes of pods leave something, beside two replicas, while these and their
//	                    servers are killed and freeze: the history of Calico's datastore, either one, is judged change by change;
//	                    MOORING_E2E_STORM_SECONDS is its length, half an hour each in `make nightly`, MOORING_E2E_STORM_MACHINES how many others there are
//	departures          a benchmark: 50 machines leave, with calico-node-sync and with Calico's kube-controllers (MOORING_E2E_MACHINES)
//	truth               one part of a cluster is broken at a time, in more than a hundred ways, and no view of kubectl mooring calls it good
//	lab, terminal       the lab's demo and its end
//	pods                a lab with real machines: all components as pods by the chart, the etcd storage operator from its own manifests, its upgrade
//	driver              the controller of the volume driver with its sidecars and rights: a volume's life, on any version of kube-apiserver
//	cloud               the cloud component in the lab: droplets and Nodes, Services and load balancers, kills at any time, memory
//
// What a clean-up must end in is what an undisturbed one left, byte for byte; that one is judged against the datastore as it was before the
// machine came (scene).
package e2e
