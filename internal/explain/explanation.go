// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Explanation is why an object is as it is. Its JSON form is a contract with programs.
type Explanation struct {
	// Kind is Node, Service, PersistentVolumeClaim or EtcdStorage.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Attention reports that a line needs a person's attention.
	Attention bool      `json:"attention"`
	Sections  []Section `json:"sections"`
}

// Section is what one side or component has to say.
type Section struct {
	Title string `json:"title"`
	Lines []Line `json:"lines"`
}

// Line is one sentence about one thing.
type Line struct {
	// Topic says in a word or two what it is about.
	Topic string `json:"topic"`
	Text  string `json:"text"`
	// Attention reports that it needs a person's attention.
	Attention bool `json:"attention,omitempty"`
}

// say adds a line.
func (s *Section) say(topic, format string, args ...any) {
	s.Lines = append(s.Lines, Line{Topic: plain(topic), Text: plain(fmt.Sprintf(format, args...))})
}

// heed adds a line that needs attention.
func (s *Section) heed(topic, format string, args ...any) {
	s.say(topic, format, args...)
	s.Lines[len(s.Lines)-1].Attention = true
}

// sayIf is [Section.heed] if something is wrong, else [Section.say].
func (s *Section) sayIf(wrong bool, topic, format string, args ...any) {
	s.say(topic, format, args...)
	s.Lines[len(s.Lines)-1].Attention = wrong
}

// unkept says why what a component has reported may be old, "" for what is kept up to date: it is not well by itself
// then.
func (s *Section) unkept(why string) {
	if why != "" {
		s.heed("reported", "%s", why)
		s.say("next", "kubectl mooring doctor controllers")
	}
}

// plain makes one line of anybody's text, without what a terminal would take for an order.
func plain(text string) string { return strings.Join(strings.Fields(prose.Printable(text)), " ") }

// explanation puts the sections together; those that have nothing to say are left out.
func explanation(kind, namespace, name string, sections ...Section) Explanation {
	out := Explanation{Kind: kind, Namespace: namespace, Name: name}
	for _, s := range sections {
		if len(s.Lines) == 0 {
			continue
		}
		out.Sections = append(out.Sections, s)
		out.Attention = out.Attention || slices.ContainsFunc(s.Lines, func(l Line) bool { return l.Attention })
	}
	return out
}

// told says what became of a side that was not read, and whether it was. What could not be read needs attention; what
// nobody asked does not.
func (s *Section) told(side finding.Side, topic string) (read bool) {
	switch {
	case side.NotAsked != "":
		s.say(topic, "not queried: %s", side.NotAsked)
	case side.Problem != "":
		s.heed(topic, "not known: %s", side.Problem)
	}
	return side.Read()
}

// verdict says what is known of an object, and what happens next.
func (s *Section) verdict(topic string, v finding.Verdict, now time.Time) {
	s.sayIf(v.State.NeedsAttention(), topic, "%s", v.Text(now))
	if v.Next != "" {
		s.say("next", "%s", v.Next)
	}
}

// compared says that sides were compared and agree, or that none was compared.
func (s *Section) compared(state finding.State, agree string) {
	if state == finding.Agree {
		s.say("verdict", "%s", agree)
	}
	if state == finding.OneSide {
		s.heed("verdict", "only Kubernetes was queried, so that nothing was compared")
	}
}

// ago is how long ago a time was, as in [prose.Span].
func ago(now, then time.Time) string { return prose.Span(now.Sub(then)) }

// The bounds of what is shown of names and Events. A warning is news for as long as a controller that fails goes
// without trying again.
const (
	mostEvents = 10
	mostNamed  = 5
	news       = 10 * time.Minute
)

// events are the Events, the last one first, if they could be read. If fresh is set, a recent warning needs attention.
func events(all []finding.Event, side finding.Side, fresh bool, now time.Time) Section {
	s := Section{Title: "Events"}
	if !s.told(side, "Events") {
		return s
	}
	list := slices.SortedFunc(slices.Values(all), finding.Event.Compare)
	for i, e := range list[:min(len(list), mostEvents)] {
		text := e.Reason + ": " + e.Said()
		if e.Warning {
			text = "Warning " + text
		}
		// An old warning is history: what still holds is said above.
		source := cmp.Or(e.Source, "without a source")
		if e.Unverified {
			source = "unverified, source " + source
		}
		isNews := fresh && e.Warning && now.Sub(e.At) < news && !overtaken(list[:i], e)
		s.sayIf(isNews, ago(now, e.At)+" ago", "%s (%s)", text, source)
	}
	if more := len(list) - mostEvents; more > 0 {
		s.say("older", "%d more", more)
	}
	return s
}

// overtaken reports that the same source has since told of something that went well.
func overtaken(later []finding.Event, e finding.Event) bool {
	return slices.ContainsFunc(later,
		func(l finding.Event) bool { return !l.Warning && l.Source == e.Source && l.At.After(e.At) })
}
