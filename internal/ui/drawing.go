// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/internal/topology"
)

// MostDrawn is how large the drawing of the topologies may be, in bytes.
const MostDrawn = 1 << 20

// Drawing says what the drawing of the topologies is.
type Drawing struct {
	// Version changes whenever the drawing does, "" if there is none.
	Version string `json:"version,omitempty"`
	// Text says the same for those who do not see it, or why there is none.
	Text string `json:"text,omitempty"`
}

// SVG is the drawing of the topologies, "" if there is nothing to draw or too much.
func SVG(w World) string {
	if len(w.Topologies) == 0 {
		return ""
	}
	drawn := topology.SVG(sortedMaps(w.Topologies))
	if len(drawn) > MostDrawn {
		return ""
	}
	return drawn
}

func drawingOf(w World) Drawing {
	if len(w.Topologies) == 0 {
		return Drawing{}
	}
	drawn := SVG(w)
	if drawn == "" {
		return Drawing{Text: "The topologies are too large to draw: see kubectl mooring topology."}
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(drawn)) // which never fails
	var titles []string
	for _, m := range sortedMaps(w.Topologies) {
		titles = append(titles, m.Title())
	}
	return Drawing{Version: strconv.FormatUint(sum.Sum64(), 36), Text: tidy(strings.Join(titles, ". "))}
}
