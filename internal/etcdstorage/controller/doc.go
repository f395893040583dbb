// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps EtcdStorages: observe.go reads everything into a World, package operator plans, apply.go writes, report.go tells.
//
// Everything that a write depends on is read live: caches only say when to look. Each write has what it was decided on as its precondition, so that
// two operators that both believe to lead, and one that was away for a while, do no harm.
package controller
