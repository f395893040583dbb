// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/explain"
)

// Paint is given what is well and what is not, and nothing else; where there is no room alongside a topic the text stands below.
func TestText(t *testing.T) {
	t.Parallel()
	e := explain.Explanation{Kind: "Node", Name: "n", Attention: true, Sections: []explain.Section{{Title: "S", Lines: []explain.Line{
		{Topic: "a", Text: "well"}, {Topic: "topic", Text: "one two three four", Attention: true}, {Topic: "b", Text: "a-word-of-thirty-nine-columns-and-no-more"},
	}}}}
	paint := func(text string, well bool) string {
		if well {
			return "<" + text + ">"
		}
		return "[" + text + "]"
	}
	for width, want := range map[int]string{
		0:  "Node n: [needs attention]\n\nS\n    a      well\n  [!] topic  one two three four\n    b      a-word-of-thirty-nine-columns-and-no-more\n",
		41: "Node n: [needs attention]\n\nS\n    a      well\n  [!] topic  one two three four\n    b\n        a-word-of-thirty-nine-columns-and-no-more\n",
		20: "Node n: [needs attention]\n\nS\n    a\n        well\n  [!] topic\n        one two\n        three four\n    b\n        a-word-of-thirty-nine-columns-and-no-more\n",
	} {
		if got := explain.Text(e, width, paint); got != want {
			t.Errorf("at %d columns:\n%swant\n%s", width, got, want)
		}
	}
	if got := explain.Text(explain.Explanation{Kind: "Service", Namespace: "a", Name: "b"}, 0, paint); got != "Service a/b: <nothing needs attention>\n" {
		t.Error(got)
	}
}
