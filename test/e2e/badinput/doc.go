// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package badinput gives the programs that run in a cluster the mistakes that anybody makes. Those of kubectl mooring are tested in internal/plugin.
package badinput
