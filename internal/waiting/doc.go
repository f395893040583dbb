// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package waiting is what Mooring's components hold back until a person confirms it, as values and as text: what kubectl mooring confirm, status and the page
// show. It is pure. What the components report is read by internal/plugin/observe.
package waiting
