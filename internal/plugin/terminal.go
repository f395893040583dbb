// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal says how many columns a person sees, 0 for as many as there are, and whether text may have colors: on a terminal alone, and not when
// NO_COLOR is set (no-color.org) or the terminal says that it is dumb. What goes to a file or another program is neither wrapped nor colored.
func terminal(w io.Writer) (columns int, colors bool) {
	if s, ok := w.(*sized); ok {
		return s.columns, false
	}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		columns = 0
	}
	return columns, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// paint makes text green if it tells of something that is well, else yellow (ECMA-48, SGR 32 and 33).
func paint(text string, well bool) string {
	if well {
		return "\x1b[32m" + text + "\x1b[0m"
	}
	return "\x1b[33m" + text + "\x1b[0m"
}
