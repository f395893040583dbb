// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job of calico-node-sync on a running lab, step by step and for people: a machine is destroyed, its Node goes, and
// Calico's datastore follows, with every removed thing and the reason for it; at last the datastore itself is read to see that nothing of the
// machine is left and that nothing of any other has changed.
//
// What is said is what was seen: the removals come from the component's own log, the verdict from the datastore's keys, values and revisions.
package demo
