// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package evidence reads what explains one object, for package explain to judge.
package evidence
