// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package machines is the list of machines that exist in a lab: the file machines.json, its changes as pure functions, and the lock
// under which it is changed.
//
// The list is level-triggered: the nodes process makes the cluster follow whatever the file says now, and nobody waits for it. In a lab with a cloud
// the process of the simulated cloud writes it, after its droplets, and only freeze and thaw are written here; without one it is the truth, which
// `lab node add`, `remove`, `freeze` and `thaw` change.
package machines
