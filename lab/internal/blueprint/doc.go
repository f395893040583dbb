// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package blueprint describes a lab before anything is started: which processes, with which arguments, environment, ports and order, which
// certificates and which files.
//
// It is pure: the same Options give the same Blueprint, byte for byte, and nothing is read or written. What `lab up --dry-run` prints is
// the value that `lab up` starts. The order of work of a lab is therefore: Options, Resolve, ports, Make, and only then effects.
package blueprint
