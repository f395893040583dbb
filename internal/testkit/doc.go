// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package testkit gives tests the real thing: a real etcd and a real kube-apiserver, as processes of bin/lab.
//
// A package that uses it has a TestMain that calls [Main]; what is started is shared by the package's tests and stopped after them. It
// is also stopped when the test process dies, however it dies. Without bin/lab the tests are skipped and say so; under CI=true they fail.
//
// It is for tests only; nothing of the product imports it (internal/archtest).
package testkit
