// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods runs the product as a cluster does: from its own manifests and by its chart, as pods, in a lab with real machines (`lab up --real-nodes`). Run it
// with `make e2e-nodes`, as root.
package pods
