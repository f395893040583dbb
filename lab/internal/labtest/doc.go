// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package labtest holds the tests of the whole lab: they run its binary as users do, with the build tag e2e, since each boots whole labs. It has no code of
// its own.
//
// The binary is $MOORING_LAB_BINARY or bin/lab of the repository. Without it the tests are skipped, saying so, or fail when CI=true.
package labtest
