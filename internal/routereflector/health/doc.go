// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package health says what is wrong with a topology's reflectors and how far the observed state is to be believed:
// which reflectors are in trouble or lost and who must say so, whether there is an emergency in which the mesh takes
// over, and whether Nodes or labels have vanished that nobody meant to take away. It decides nothing but that.
package health
