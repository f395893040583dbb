// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package page serves the page of `kubectl mooring ui`: embedded files, what package ui decides to show, and the drawing of the topologies.
//
// It answers GET and HEAD alone, and writes nothing anywhere. A request must
//
//	name the loopback address as its host   (a page elsewhere whose name is made to point here does not)
//	come from no other site                 (Sec-Fetch-Site, Origin)
//	have the token in its path              (other users of the machine reach the port as well)
//
// and what is answered may load nothing from anywhere else, run no script but its own, and turn no text into markup.
package page
