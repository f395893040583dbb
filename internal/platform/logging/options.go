// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"context"
	"errors"
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

// stopped logs as information what klog's and controller-runtime's users call an error because its context was
// canceled: client-go does so of a request that is under way when the program ends, which is no error of a clean stop.
type stopped struct{ slog.Handler }

// Handle hands a record on, at the level that it is worth.
func (s stopped) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		r.Attrs(func(a slog.Attr) bool {
			if err, ok := a.Value.Any().(error); ok && errors.Is(err, context.Canceled) {
				r.Level = slog.LevelInfo
			}
			return r.Level >= slog.LevelError
		})
	}
	if !s.Enabled(ctx, r.Level) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs is as the handler's, with the same levels.
func (s stopped) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stopped{s.Handler.WithAttrs(attrs)}
}

// WithGroup is as the handler's, with the same levels.
func (s stopped) WithGroup(name string) slog.Handler { return stopped{s.Handler.WithGroup(name)} }

// Install makes the handler the destination of slog, the standard log package, klog and
// controller-runtime, for the whole process, and returns the same logger as logr. It is for main
// packages: call it once, before anything logs. klog's setters are not safe for concurrent use.
func Install(h slog.Handler, o Options) logr.Logger {
	out := plain.Install(h)
	logger := slog.New(h)
	klog.SetSlogLogger(slog.New(stopped{h}))
	// klog asks its own verbosity before it asks the logger, so both must agree.
	var klogLevel klog.Level
	if err := klogLevel.Set(strconv.Itoa(o.Verbosity)); err != nil {
		logger.Error("Setting klog's verbosity", "error", err)
	}
	ctrllog.SetLogger(logr.FromSlogHandler(stopped{h})) // leader election logs through it
	return out
}
