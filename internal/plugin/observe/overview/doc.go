// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package overview reads all that kubectl mooring status and its page show, seldom where that is expensive. What each part shows of it is decided by package ui.
package overview
