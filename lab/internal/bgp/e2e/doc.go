// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs `lab up --network bgp` and the scenarios of the BGP network: Calico's real confd and Debian's bird on each node of a lab, an
// all-pairs probe, and calico-route-reflector-operator itself (build tag e2e). It needs bird 1.6, network namespaces and the operator's binary.
//
//	go test -tags e2e ./internal/bgp/e2e            ten nodes, every scenario, the operator killed on the way, and the control: about eight minutes, and failures, about six
//	go test -tags e2e -short ./internal/bgp/e2e     six nodes, two scenarios, two failures and the control, about two and a half minutes
//	go test -tags e2e -run TestModel -timeout 30m ./internal/bgp/e2e    sixty generated topologies, the model against BIRD: about eight minutes
//	MOORING_BGP_NODES=50 go test -tags e2e -run TestSize ./internal/bgp/e2e
//
// What must hold in every scenario: no pair of nodes that both keep their role has an outage of two or more probes in a row; roles change one
// at a time, label and cluster ID in one write, each on evidence that what was done before works; the mesh goes off last; every node has every
// route at the end, and no question to calico-node is left over. While there is nothing to do the operator writes nothing. The control applies
// the same steps in one burst, and must show an outage: if it does not, the harness would not see one either.
//
// TestFailures has reflectors fail, alone and together: BIRD, a kubelet, a machine, a zone, a pool that is replaced, all of them. The short
// run has two of these parts. No pair may have an outage unless one of its nodes failed or changed its role; only where all reflectors die
// at once the others have one.
//
// TestEtcd does the same with Calico's data in etcd (`lab up --calico-datastore etcdv3`): confd and Calico's status reporter read and write
// there, and the operator's roles, BGPPeers and questions are there alone. The short run enables reflectors and adds one.
//
// TestHierarchy has Auto make a hierarchy of a flat topology and back, twice, and ends it while it is one; in each shape the model is
// compared with BIRD. Nobody whose role stays may have an outage. The full run only.
//
// The model against reality: a network is taken through generated topologies, and what package routereflector predicts of them is compared with
// what BIRD has: sessions, paths, routes. Scenarios run in dual stack and with IPv6 alone, too.
//
// TestBIRDTemplates cuts a reflector off, and restarts a BIRD without routes, with the templates that kubectl mooring bird-templates patches: both
// take less than a quarter of BIRD's hold time. The full run does the same with Calico's own templates, where both take longer. TestDeaths measures
// more of it with MOORING_BGP_TEMPLATES=mooring.
//
// TestTutorial follows docs/tutorials/calico-route-reflector-operator.md, block by block: about a minute, in both forms.
//
// In addition, machines and pods come and go, the network is killed and comes back, and `lab down` leaves no process, namespace or interface.
package e2e
