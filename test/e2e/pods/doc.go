// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods runs the product as a cluster does: from its own manifests and by its chart, as pods, in a lab with real ones (`lab up --pods`). Run it
// with `make e2e`, as root or where unprivileged user namespaces are allowed.
package pods
