// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package choose picks the nodes that shall be the reflectors of a design, and describes who becomes and ceases to be
// one.
package choose
