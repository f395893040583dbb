// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package footprint measures the product's programs: how large each is, and how much memory it has once it is ready.
// `make footprint` prints a table, for one folder of programs or several.
package footprint
