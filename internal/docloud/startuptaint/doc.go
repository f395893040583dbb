// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package startuptaint removes the taint dobs.csi.digitalocean.com/agent-not-ready from Nodes on which the volume driver is
// registered. A kubelet that registers its Node with that taint gets no Pods before: until the kubelet has written the driver
// and the number of its volumes into the Node's CSINode, the scheduler places Pods as if a machine could have any number of
// volumes, and those beyond it wait on a machine that never gets them.
//
// The proof is the CSINode: it has the Node's name, it is owned by that very Node (one of an earlier Node of the name is not
// evidence), and it lists the driver. Nothing is ever tainted here, and no other taint is touched. The node plugin itself
// could do it only with the right to change Nodes on every machine.
package startuptaint
