// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package machines is the list of machines that exist in a lab: the file machines.json, its changes as pure functions, and the lock
// under which it is changed.
//
// The list is the truth and is level-triggered: `lab node add`, `remove`, `freeze` and `thaw` change the file, the nodes process makes
// the cluster follow whatever the file says now, and neither waits for the other.
package machines
