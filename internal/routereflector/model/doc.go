// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package model says by the rules of BGP which paths there are in a state of the cluster, and what a step would break,
// for a moment and for good.
package model
