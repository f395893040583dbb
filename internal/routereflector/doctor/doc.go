// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor finds what is dangerous in the route reflectors of any cluster with Calico, no matter who made them: by a topology, by hand, by the
// project that Mooring's operator succeeds. It is pure: it is given Nodes, BGPPeers and the mesh's switch, asks the reachability model, and says
// what is the case, why it matters and what to do.
package doctor
