// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud gives tests of the cloud component a [World]: a cluster, an account at DigitalOcean, and the
// connections of the program to both, which a test can cut.
//
// [Simulated] runs a test in a testing/synctest bubble, where waiting takes no time, on a simulated API server: a test
// costs what happens in it. [Both] also runs it on a real kube-apiserver in real time, which judges whether the
// simulated one behaves like it. The tests of one controller run about five of their stories in both.
package cloud
