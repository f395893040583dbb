// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds tests of whole labs with real machines: what traffic, probes and machines that fail do to pods, and that nothing of a lab is left however
// it ends. They run with the build tag e2e, as root, and need what `make real-nodes` builds.
//
//	go test -tags e2e ./internal/realnode/e2e                        three starts and stops among others: about five minutes
//	MOORING_CASES=night go test -tags e2e ./internal/realnode/e2e    twenty of them
package e2e
