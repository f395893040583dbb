// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package app is the calico-node-sync binary: its flags, and how its parts are put together. It decides nothing.
package app
