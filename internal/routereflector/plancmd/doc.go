// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package plancmd is the command that shows what the route reflectors' operator would write: "calico-route-reflector-operator plan" and "kubectl mooring plan
// routereflectors" are this one, with the same flags, output and exit codes. The plugin's reads a cluster as well.
package plancmd
