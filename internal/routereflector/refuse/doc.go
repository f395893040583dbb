// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package refuse says why nothing is planned for a topology: what is wrong, where, and what to do.
package refuse
