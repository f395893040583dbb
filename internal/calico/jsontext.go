// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import "strings"

// jsonText reads JSON of the form in which Calico writes it, several times as fast as encoding/json and without
// copies: what it returns are parts of the text. Its methods return false for what is not JSON, and also for what it
// leaves to encoding/json: escapes, characters beyond ASCII, fractions, and nesting deeper than [deepest].
type jsonText struct {
	text string
	at   int
}

// deepest is how deep a jsonText skips: more than any object of Calico's is nested.
const deepest = 30

// next is the next character that is not white space, 0 at the end.
func (j *jsonText) next() byte {
	for ; j.at < len(j.text); j.at++ {
		if c := j.text[j.at]; c > ' ' || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
	}
	return 0
}

// take moves beyond the next character, if it is this one.
func (j *jsonText) take(c byte) bool {
	if j.next() != c {
		return false
	}
	j.at++
	return true
}

// end reports whether nothing but white space is left.
func (j *jsonText) end() bool { return j.next() == 0 && j.at == len(j.text) }

// str reads a string into the place.
func (j *jsonText) str(into *string) bool {
	if !j.take('"') {
		return false
	}
	for i := j.at; i < len(j.text); i++ {
		switch c := j.text[i]; {
		case c == '"':
			*into, j.at = j.text[j.at:i], i+1
			return true
		case c < ' ' || c >= 0x7f || c == '\\':
			return false
		}
	}
	return false
}

// object reads an object, the value of each field by the function. The names of fields that matter are given: for
// encoding/json the case of letters makes no difference, and so a name that is like one of them is left to it, as is
// one that occurs twice.
func (j *jsonText) object(field func(name string) bool, names ...string) bool {
	seen := 0
	return j.list('{', '}', func() bool {
		var name string
		if !j.str(&name) || !j.take(':') {
			return false
		}
		for i, known := range names {
			if len(name) == len(known) && strings.EqualFold(name, known) {
				first := seen&(1<<i) == 0
				seen |= 1 << i
				return first && name == known && field(name)
			}
		}
		return field(name)
	})
}

// list reads what stands between two brackets, separated by commas.
func (j *jsonText) list(open, closed byte, each func() bool) bool {
	if !j.take(open) {
		return false
	}
	if j.take(closed) {
		return true
	}
	for each() {
		if !j.take(',') {
			return j.take(closed)
		}
	}
	return false
}

// skip reads a value of any kind.
func (j *jsonText) skip() bool { return j.skipTo(deepest) }

func (j *jsonText) skipTo(depth int) bool {
	if depth == 0 {
		return false
	}
	var text string
	switch j.next() {
	case '"':
		return j.str(&text)
	case '{':
		return j.object(func(string) bool { return j.skipTo(depth - 1) })
	case '[':
		return j.list('[', ']', func() bool { return j.skipTo(depth - 1) })
	case 'n', 't', 'f':
		return j.word("null") || j.word("true") || j.word("false")
	}
	_, ok := j.integer()
	return ok
}

// word moves beyond the word, if it is next.
func (j *jsonText) word(word string) bool {
	if j.next() == 0 || !strings.HasPrefix(j.text[j.at:], word) {
		return false
	}
	j.at += len(word)
	return true
}

// integer reads a number without a fraction.
func (j *jsonText) integer() (digits string, ok bool) {
	first := j.at
	j.take('-')
	begin := j.at
	for j.at < len(j.text) && '0' <= j.text[j.at] && j.text[j.at] <= '9' {
		j.at++
	}
	return j.text[first:j.at], j.at-begin == 1 || j.at-begin > 1 && j.text[begin] != '0'
}
