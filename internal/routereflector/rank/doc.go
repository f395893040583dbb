// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package rank says of each node how well it suits as a reflector, and why not.
package rank
