// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package tutorials follows the tutorials of docs/tutorials as they stand there. That of the route reflectors needs BIRD, and is followed in
// lab/internal/bgp/e2e.
package tutorials
