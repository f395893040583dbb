// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// Format is the value of --log-format.
type Format = plain.Format

// The formats. FormatAuto is text on a terminal and JSON elsewhere.
const (
	FormatAuto = plain.FormatAuto
	FormatJSON = plain.FormatJSON
	FormatText = plain.FormatText
)

// Redacted is what stands in the log in place of a secret value.
const Redacted = plain.Redacted

// Options are the logging flags of a binary. The zero value means: auto format, verbosity 0.
type Options = plain.Options

// NewHandler returns the handler the options describe, writing to w; see [plain.NewHandler].
func NewHandler(w io.Writer, o Options) slog.Handler { return plain.NewHandler(w, o) }

// Install makes the handler the destination of slog, the standard log package, klog and
// controller-runtime, for the whole process, and returns the same logger as logr. It is for main
// packages: call it once, before anything logs. klog's setters are not safe for concurrent use.
func Install(h slog.Handler, o Options) logr.Logger {
	out := plain.Install(h)
	logger := slog.New(h)
	klog.SetSlogLogger(logger)
	// klog asks its own verbosity before it asks the logger, so both must agree.
	var klogLevel klog.Level
	if err := klogLevel.Set(strconv.Itoa(o.Verbosity)); err != nil {
		logger.Error("Setting klog's verbosity", "error", err)
	}
	ctrllog.SetLogger(out)
	return out
}
