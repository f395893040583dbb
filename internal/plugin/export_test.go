// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

// EventSources is for tests.
func EventSources() map[string][]string { return eventSources() }

// Fold is for tests.
func Fold(text string, width int) string { return fold(text, width) }
