// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cases

// buildTags are the tags that the running test was built with.
const buildTags = "e2e"
