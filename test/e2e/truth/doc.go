// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package truth walks over faults: one part of a cluster is broken at a time, and every view of kubectl mooring is asked
// about it. It reads what the views print, and nothing else. Its laws: a view never calls a faulty part, or one whose
// evidence nobody keeps, good; some view names the part and a next step; no view is red about anything else; and each
// command that a next step names is run where it is named, as a person copies it: it must not fail, and what changes
// objects must change what the views say.
//
// A world is written into the etcd of a real kube-apiserver, so that objects are as old as a fault needs, and
// DigitalOcean is the simulator. `make e2e E2E_FLAGS=test/e2e/truth` runs it and prints the table; with -short every
// third fault is tried, beginning where the seed says.
package truth
