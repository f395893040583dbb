// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package ipamcheck finds disagreements in the data of Calico's IPAM: between blocks, handles, affinities, pools,
// endpoints, Nodes and pods.
//
// It is pure: [Check] turns one reading ([Data]) into disagreements. Calico changes these objects one after the
// other, so a reading may show a change that is under way: an assignment counts its address in the handle before it
// writes the block, and a release does it the other way round (libcalico-go, lib/ipam). Only what two readings some
// time apart show alike is a disagreement ([Confirmed]).
package ipamcheck
