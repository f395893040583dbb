// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds tests of whole labs with real pods: their namespaces, Services and names, and how all of it ends. They run with the build tag e2e.
//
//	go test -tags e2e ./internal/enclave/e2e           every way in which a lab may end: about two minutes
//	go test -tags e2e -short ./internal/enclave/e2e    two of these: about 80 s
package e2e
