// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the dependency directions of this repository as a table and the checker that compares them with what the code
// imports.
//
//	cmd ──► app ──► controller | provider | proxy ──► pure packages ──► api
//	                      │                                ▲
//	                      └──► adapters (internal/calico …) ┘      components never import each other; only plugin and lab see several
//
// The rules stand in rules.go, each with the reason that a reviewer would give. The tests of this package load the import graph with
// go list and fail on the first edge that no rule allows; the checker itself is tested on small made-up graphs. depguard, in
// .golangci.yaml, says the same while one is typing; this package says it where no linter runs and also follows edges transitively.
//
// It is not for style, global state or init functions: those are the linter's.
package archtest
