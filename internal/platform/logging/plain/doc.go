// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package plain is the log of package logging for binaries that link nothing of Kubernetes: the same flags, the same form, the same
// redaction, with slog, the standard log package and logr in front. Package logging adds klog and controller-runtime to it.
package plain
