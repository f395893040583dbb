// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package buildinfo says which build is running: for `--version`, for the user agent towards API
// servers, and for the metric mooring_build_info. It decides nothing by version.
package buildinfo
