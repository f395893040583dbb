// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Format is the value of --log-format.
type Format string

// The formats. FormatAuto is text on a terminal and JSON elsewhere.
const (
	FormatAuto Format = "auto"
	FormatJSON Format = "json"
	FormatText Format = "text"
)

// maxVerbosity bounds -v. Nothing in Kubernetes' libraries logs above V(10).
const maxVerbosity = 10

// Options are the logging flags of a binary. The zero value means: auto format, verbosity 0.
type Options struct {
	// Format is auto, json or text; empty means auto.
	Format Format
	// Verbosity lets through logr's V(0) to V(Verbosity); 0 to 10.
	Verbosity int
}

// AddFlags binds --log-format and -v/--v to o; the values o already holds are the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	if o.Format == "" {
		o.Format = FormatAuto
	}
	fs.StringVar((*string)(&o.Format), "log-format", string(o.Format),
		`Log format: "json", "text", or "auto" (text on a terminal, JSON otherwise).`)
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity,
		"Log verbosity: 0 changes and problems, 1 decisions, 2 flow, 4 debugging, 6 and more every request to the API server.")
}

// Validate reports the first wrong option as one sentence.
func (o Options) Validate() error {
	switch o.Format {
	case "", FormatAuto, FormatJSON, FormatText:
	default:
		return fmt.Errorf("--log-format %q is unknown: use auto, json or text", string(o.Format))
	}
	if o.Verbosity < 0 || o.Verbosity > maxVerbosity {
		return fmt.Errorf("-v %d is out of range: use 0 (quiet) to %d (everything)", o.Verbosity, maxVerbosity)
	}
	return nil
}

// NewHandler returns the handler the options describe, writing to w. FormatAuto asks whether w is a
// terminal; anything that is not an *os.File is not. NewHandler touches no global state.
func NewHandler(w io.Writer, o Options) slog.Handler {
	level := slog.Level(-o.Verbosity)
	if o.Format == FormatText || (o.Format != FormatJSON && isTerminal(w)) {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: replaceText})
	}
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: replaceJSON})
}

// Install makes the handler the destination of slog and of the standard log package, for the whole process, and returns the same logger
// as logr. It is for main packages: call it once, before anything logs.
func Install(h slog.Handler) logr.Logger {
	slog.SetDefault(slog.New(h))
	return logr.FromSlogHandler(h)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
