// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package migration moves clusters to calico-node-sync and back, as docs/migration says: from kube-calico-controller, from Calico's own
// kube-controllers (the real program, bin/kube-controllers), and clusters that kops made. Run it with `make e2e`.
package migration
