// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Sizes of the drawing, in pixels.
const (
	margin    = 24
	gap       = 16
	boxWidth  = 216
	boxHeight = 46
	cellWidth = 132
	cellHigh  = 22
	rowGap    = 64 // room for the lines between two rows of boxes
	pageWidth = 1500
	zoneHead  = 26
	lineHigh  = 18
)

// style is everything that the drawing needs in addition to its shapes: no font, no image and no script is fetched.
const style = `<style>
svg{background:#fff;font:12px system-ui,sans-serif}
text{fill:#1f2933}.title{font-size:15px;font-weight:600}.small{font-size:11px;fill:#52606d}
.group{fill:#f5f7fa;stroke:#cbd2d9}.zone{fill:#fff;stroke:#9aa5b1}.client{fill:#e4e7eb}
.reflector{fill:#e3f8ee;stroke:#178a5c;stroke-width:1.5}.ill{fill:#fff3e0;stroke:#c2570c;stroke-dasharray:5 3}
line{stroke:#9aa5b1;stroke-width:1}.link{stroke:#178a5c}
@media (prefers-color-scheme:dark){svg{background:#14191f}text{fill:#e4e7eb}.small{fill:#9aa5b1}.group{fill:#1b222b;stroke:#3e4c59}
.zone{fill:#14191f;stroke:#52606d}.client{fill:#323f4b}.reflector{fill:#123d2c;stroke:#3ebd93}.ill{fill:#44260c;stroke:#f0864a}line{stroke:#52606d}.link{stroke:#3ebd93}}
</style>
`

// SVG is the topologies as one drawing that needs nothing else: light and dark, with the names of clients up to [GroupedAbove] nodes.
func SVG(maps []Map) string {
	d := drawing{counts: grouped(maps), width: 2 * margin, y: margin}
	for _, m := range maps {
		d.topology(m)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", d.width, d.y, d.width, d.y)
	b.WriteString("<title>Route reflectors</title>\n" + style)
	for _, layer := range []*strings.Builder{&d.frames, &d.lines, &d.boxes} {
		b.WriteString(layer.String())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawing has three layers, so that lines are above the frames of groups and beneath boxes.
type drawing struct {
	frames, lines, boxes strings.Builder
	counts               bool
	width, y             int
}

// at is the place of a box.
type at struct{ x, y, w, h int }

func (p at) top() (x, y int)    { return p.x + p.w/2, p.y }
func (p at) bottom() (x, y int) { return p.x + p.w/2, p.y + p.h }

func (d *drawing) topology(m Map) {
	d.text(&d.boxes, margin, d.y+14, "title", m.Title())
	d.width = max(d.width, 2*margin+8*utf8.RuneCountInString(m.Title()))
	d.y += 36
	groups := m.Groups
	var spines []at
	if len(groups) > 0 && groups[0].Name == spine {
		size := d.size(groups[0])
		spines = d.group(groups[0], at{margin, d.y, size.w, size.h})
		d.y += size.h + rowGap
		groups = groups[1:]
	}
	x, high := margin, 0
	for _, g := range groups {
		size := d.size(g)
		if x > margin && x+size.w > pageWidth {
			x, d.y, high = margin, d.y+high+rowGap, 0
		}
		for _, r := range d.group(g, at{x, d.y, size.w, size.h}) {
			for _, s := range spines {
				d.line("link", s, r)
			}
		}
		x, high = x+size.w+gap, max(high, size.h)
	}
	d.y += high + margin
}

// zoneSize is the size of a zone's box.
func (d *drawing) zoneSize(z Zone) (w, h, columns int) {
	if d.counts {
		return boxWidth, boxHeight, 1
	}
	columns = 1
	for columns*columns*2 < len(z.Clients) && columns < 6 {
		columns++
	}
	rows := (len(z.Clients) + columns - 1) / columns
	return max(columns*(cellWidth+4)+12, boxWidth), zoneHead + rows*(cellHigh+4) + 8, columns
}

// size is the size of a group's frame.
func (d *drawing) size(g Group) at {
	w := len(g.Reflectors)*(boxWidth+gap) + gap
	zones, high := gap, 0
	for _, z := range g.Zones {
		zw, zh, _ := d.zoneSize(z)
		zones, high = zones+zw+gap, max(high, zh)
	}
	h := lineHigh + gap
	if len(g.Reflectors) > 0 {
		h += boxHeight + gap
	}
	if len(g.Zones) > 0 {
		h += high + gap
		if len(g.Reflectors) > 0 {
			h += rowGap - gap
		}
	}
	return at{w: max(w, zones, 2*gap+7*utf8.RuneCountInString(g.heading())), h: h}
}

// group draws a group and returns the places of its reflectors.
func (d *drawing) group(g Group, p at) []at {
	d.width = max(d.width, p.x+p.w+margin)
	d.rect(&d.frames, p, "group", 10, "")
	d.text(&d.boxes, p.x+gap, p.y+lineHigh+2, "small", g.heading())
	y := p.y + lineHigh + gap
	var reflectors []at
	for i, r := range g.Reflectors {
		place := at{p.x + gap + i*(boxWidth+gap), y, boxWidth, boxHeight}
		if i > 0 {
			fmt.Fprintf(&d.lines, `<line class="link" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", place.x-gap, y+boxHeight/2, place.x, y+boxHeight/2)
		}
		d.reflector(r, place)
		reflectors = append(reflectors, place)
	}
	if len(reflectors) > 0 {
		y += boxHeight + rowGap
	}
	x := p.x + gap
	for _, z := range g.Zones {
		w, h, columns := d.zoneSize(z)
		place := at{x, y, w, h}
		for _, r := range reflectors {
			d.line("", r, place)
		}
		d.zone(z, place, columns)
		x += w + gap
	}
	return reflectors
}

func (d *drawing) reflector(r Reflector, p at) {
	state, well := r.State()
	class := "reflector"
	if !well {
		class = "reflector ill"
	}
	zone := Zone{Name: r.Zone}.label()
	d.rect(&d.boxes, p, class, 20, r.Node+", "+zone+": "+state)
	d.text(&d.boxes, p.x+14, p.y+19, "", fit(r.Node, boxWidth-24, letter))
	d.text(&d.boxes, p.x+14, p.y+35, "small", fit(zone+" · "+r.brief(state), boxWidth-24, smallLetter))
}

// brief is a state that a box has room for: where a sentence would be cut, what matters most of it.
func (r Reflector) brief(state string) string {
	switch {
	case r.Missing:
		return "no such Node"
	case r.NotReady:
		return "NotReady"
	case r.Role == NotReported:
		return "not reported"
	}
	return state
}

func (d *drawing) zone(z Zone, p at, columns int) {
	d.rect(&d.boxes, p, "zone", 6, "")
	d.text(&d.boxes, p.x+10, p.y+lineHigh, "", fit(z.label()+": "+prose.Plural(len(z.Clients), "client"), p.w-16, letter))
	if d.counts {
		return
	}
	for i, name := range z.Clients {
		cell := at{p.x + 8 + i%columns*(cellWidth+4), p.y + zoneHead + i/columns*(cellHigh+4), cellWidth, cellHigh}
		d.rect(&d.boxes, cell, "client", 4, name)
		d.text(&d.boxes, cell.x+8, cell.y+15, "small", fit(name, cellWidth-12, smallLetter))
	}
}

func (d *drawing) line(class string, from, to at) {
	x1, y1 := from.bottom()
	x2, y2 := to.top()
	fmt.Fprintf(&d.lines, `<line%s x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", classOf(class), x1, y1, x2, y2)
}

// rect draws a box; title is what a pointer over it shows.
func (*drawing) rect(b *strings.Builder, p at, class string, radius int, title string) {
	fmt.Fprintf(b, `<rect%s x="%d" y="%d" width="%d" height="%d" rx="%d">`, classOf(class), p.x, p.y, p.w, p.h, radius)
	if title != "" {
		b.WriteString("<title>" + escape(title) + "</title>")
	}
	b.WriteString("</rect>\n")
}

func (*drawing) text(b *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(b, `<text%s x="%d" y="%d">%s</text>`+"\n", classOf(class), x, y, escape(text))
}

func classOf(class string) string {
	if class == "" {
		return ""
	}
	return ` class="` + class + `"`
}

// What a letter takes on average, in pixels, in the two sizes of text in boxes.
const (
	letter      = 7
	smallLetter = 6
)

// fit shortens text to a width in pixels. The middle goes: names differ at their ends.
func fit(text string, width, letter int) string {
	most := max(width/letter, 3)
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	head := most * 2 / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-head-1):])
}

// escape is text for XML: what XML cannot hold becomes U+FFFD.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(clean(text))
}

// clean is text on one line without what no format can hold.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r), r == utf8.RuneError:
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
