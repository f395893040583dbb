// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"

	"github.com/mooring-dev/mooring/internal/platform/screen"
)

func terminal(w io.Writer) (columns int, colors bool) { return screen.Terminal(w) }

func paint(text string, well bool) string { return screen.Paint(text, well) }
