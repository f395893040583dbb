// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package csiapp reads the flags of digitalocean-csi-driver and starts it: the controller with a token, the node plugin without one.
package csiapp
