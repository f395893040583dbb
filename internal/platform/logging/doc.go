// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package logging gives every binary one log: one slog handler that stands behind slog's default
// logger, the standard library's log package, klog (client-go), and logr (controller-runtime).
//
//	slog.Default ─┐
//	log.Printf   ─┤
//	klog         ─┼─► handler: level gate, redaction ─► JSON (no terminal) or text (terminal) ─► stderr
//	logr         ─┤
//	logrus       ─┘  (package logrusbridge, only linked by binaries that use libcalico-go)
//
// Verbosity is Kubernetes' own: `-v N` lets through V(0) to V(N). logr maps V(n) to slog level -n, so
// slog.Debug (level -4) is V(4). Conventions for what goes where: V(0) a change was made or a person
// is needed; V(1) decisions; V(2) flow. Messages are constant, begin with a capital letter and carry
// no full stop; values travel as key/value pairs.
//
// The package does not rotate, sample or ship logs, and it does not decide what is worth logging.
package logging
