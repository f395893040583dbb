// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package topology draws topologies of route reflectors as they are seen: reflectors, groups, zones and clients, as a tree for a terminal, for
// Graphviz, for Mermaid, and as SVG. It is pure: equal input gives equal output, whatever its order.
package topology
