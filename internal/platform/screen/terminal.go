// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Terminal returns how many columns a person sees, 0 for as many as there are, and whether text may have colors: on a terminal alone, and not when
// NO_COLOR is set (no-color.org) or the terminal says that it is dumb. What goes to a file or another program is neither wrapped nor colored.
func Terminal(w io.Writer) (columns int, colors bool) {
	if s, ok := w.(*Sized); ok {
		return s.Columns, false
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

// Paint makes text green if it tells of something that is well, else yellow (ECMA-48, SGR 32 and 33).
func Paint(text string, well bool) string {
	if well {
		return "\x1b[32m" + text + "\x1b[0m"
	}
	return "\x1b[33m" + text + "\x1b[0m"
}

// Sized is a writer, such as a buffer, that is shown on a terminal of that many columns.
type Sized struct {
	io.Writer
	Columns int
}
