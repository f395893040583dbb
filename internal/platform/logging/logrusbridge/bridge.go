// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package logrusbridge carries the records of logrus, which libcalico-go logs to, into the process's
// slog handler, so that one binary writes one log. It is a package of its own so that binaries
// without libcalico-go do not link logrus.
package logrusbridge

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/sirupsen/logrus" //nolint:depguard // the bridge away from it
)

// name is the value of the "logger" attribute on every forwarded record.
const name = "calico"

// Install sends everything the logger writes to h and nowhere else. Levels are moved down by one
// step, since what is news to a library is detail to us: info becomes V(1), debug V(4), trace V(6);
// warnings and errors keep their level. logrus' own level is set to what h lets through, because
// libcalico-go asks it before it builds expensive messages. For the process-wide logger pass
// logrus.StandardLogger().
func Install(l *logrus.Logger, h slog.Handler) {
	l.SetOutput(io.Discard)
	l.SetFormatter(silent{})
	l.ReplaceHooks(logrus.LevelHooks{})
	l.AddHook(hook{handler: h.WithAttrs([]slog.Attr{slog.String("logger", name)})})
	l.SetLevel(enabledLevel(h))
}

// Level is the slog level that a logrus record gets.
func Level(l logrus.Level) slog.Level {
	switch l {
	case logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel:
		return slog.LevelError
	case logrus.WarnLevel:
		return slog.LevelWarn
	case logrus.InfoLevel:
		return slog.Level(-1)
	case logrus.DebugLevel:
		return slog.Level(-4)
	case logrus.TraceLevel:
		return slog.Level(-6)
	}
	return slog.Level(-6)
}

func enabledLevel(h slog.Handler) logrus.Level {
	out := logrus.PanicLevel
	for _, l := range logrus.AllLevels { // from panic, the rarest, to trace
		if h.Enabled(context.Background(), Level(l)) {
			out = l
		}
	}
	return out
}

// silent formats nothing: the hook has already delivered the record.
type silent struct{}

// Format implements logrus.Formatter.
func (silent) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

type hook struct{ handler slog.Handler }

// Levels implements logrus.Hook: all of them, since Fire decides.
func (hook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook: it hands the record to the slog handler.
func (k hook) Fire(e *logrus.Entry) error {
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	level := Level(e.Level)
	if !k.handler.Enabled(ctx, level) {
		return nil
	}
	record := slog.NewRecord(e.Time, level, e.Message, 0)
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		record.AddAttrs(slog.Any(key, e.Data[key]))
	}
	return k.handler.Handle(ctx, record)
}
