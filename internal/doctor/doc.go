// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor judges what runs in a cluster: whether two programs do the same work, whether each of Mooring's is at work and has the rights that its
// manifests give it, and which certificates end soon. It is for what concerns several components; what concerns one of them its own doctor knows.
//
// Everything is decided from values that the plugin has read. A side that could not be read is a finding of its own: nothing that was not looked at is
// ever called well. Equal evidence gives equal findings, in whichever order it was read.
package doctor
