// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package gate says what the first step of a plan waits for, how many steps are done at once, and whose word is needed.
package gate
