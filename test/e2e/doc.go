// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds fault campaigns: the product's own binaries against a real etcd and kube-apiserver, with processes killed at random.
// A campaign prints its seed, and MOORING_E2E_SEED replays it. MOORING_E2E_ROUNDS makes it longer. Run it with `make e2e`.
package e2e
