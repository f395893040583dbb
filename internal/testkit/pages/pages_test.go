// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ want, got, wrong string }{
		"the same":              {"a b\nc\n", "a b\nc\n", ""},
		"columns":               {"NAME  AGE\nx     1\n", "NAME     AGE\nx        1  \n", ""},
		"indented":              {"  a\n", "a\n", ""},
		"nothing":               {"", "", ""},
		"no end of line":        {"a\n", "a", ""},
		"within a line":         {"port …, name …\n", "port 1, name x\n", ""},
		"for nothing":           {"a…b\n", "ab\n", ""},
		"signs of expressions":  {"a.b (c) [d]*\n", "a.b (c) [d]*\n", ""},
		"lines":                 {"a\n…\nz\n", "a\nb\nc\nz\n", ""},
		"no lines":              {"…\na\n…\nb\n…\n", "a\nb\n", ""},
		"lines, then one twice": {"…\na\n", "a\nb\na\n", ""},
		"all":                   {"…\n", "a\nb\n", ""},
		"another word":          {"a b\n", "a c\n", `line 1 of the output, "a c", is not as the page shows it, "a b"`},
		"a sign for any":        {"a.b\n", "axb\n", `line 1 of the output, "axb", is not as the page shows it, "a.b"`},
		"not across lines":      {"a…b\n", "a\nb\n", `line 1 of the output, "a", is not as the page shows it, "a…b"`},
		"more than a part":      {"a…\n", "ba\n", `line 1 of the output, "ba", is not as the page shows it, "a…"`},
		"too little":            {"a\nb\n", "a\n", `the output ends where the page shows more, "b"`},
		"too much":              {"a\n", "a\nb\n", `line 2 of the output, "b", is not as the page shows it, where nothing follows`},
		"nothing of it":         {"a\n", "", `the output ends where the page shows more, "a"`},
		"an empty line":         {"a\nb\n", "a\n\nb\n", `line 2 of the output, "", is not as the page shows it, "b"`},
		"after lines":           {"a\n…\nz\n", "a\nb\n", `the output ends where the page shows more, "z"`},
		"joined words":          {"a b\n", "ab\n", `line 1 of the output, "ab", is not as the page shows it, "a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Compare(c.want, c.got); got != c.wrong {
				t.Errorf("got  %s\nwant %s", got, c.wrong)
			}
		})
	}
}

// ticks writes blocks with three apostrophes, which a string of Go can hold.
func ticks(page string) string { return strings.ReplaceAll(page, "'''", "```") }

func TestTutorial(t *testing.T) {
	t.Parallel()
	got, err := Tutorial(ticks("# A page\n\n'''sh\none\n# no heading\n'''\n\n'''text\n1\n'''\n\n## Part\n\n1. In a list:\n\n   '''sh\n   two\n     more\n   '''\n\nSpeech.\n\n" +
		"## Clean up\n'''sh\nthree\n'''\n'''text\n'''\nEnd.\n"))
	must.Do(t, err)
	want := []Block{
		{Line: 3, Heading: "# A page", Commands: "one\n# no heading\n", Output: "1\n", Shown: true},
		{Line: 16, Heading: "## Part", Commands: "two\n  more\n"},
		{Line: 24, Heading: "## Clean up", Commands: "three\n", Shown: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What would be shown and never compared, or never run, is an error.
func TestTutorialRefuses(t *testing.T) {
	t.Parallel()
	const end = "## Clean up\n'''sh\nx\n'''\n"
	for name, c := range map[string]struct{ page, want string }{
		"output of nothing":       {"'''text\na\n'''\n" + end, "line 1: no block of commands is directly above this output, so nothing can be compared with it"},
		"output behind speech":    {"'''sh\na\n'''\nIt prints:\n'''text\na\n'''\n" + end, "line 5: no block of commands is directly above this output"},
		"a second output":         {"'''sh\na\n'''\n'''text\na\n'''\n'''text\na\n'''\n" + end, "line 7: no block of commands is directly above this output"},
		"commands that are shown": {"'''console\na\n'''\n" + end, `line 1: a tutorial has blocks of sh and of text alone, not of "console"`},
		"no language":             {"'''\na\n'''\n" + end, `line 1: a tutorial has blocks of sh and of text alone, not of ""`},
		"no end of a block":       {end + "'''sh\na\n", "line 5: the block has no end"},
		"no clean up":             {"'''sh\na\n'''\n", `a tutorial ends with commands below "## Clean up"`},
		"something behind it":     {end + "## More\n'''sh\na\n'''\n", `a tutorial ends with commands below "## Clean up"`},
		"no commands":             {"", `a tutorial ends with commands below "## Clean up"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocks, err := Tutorial(ticks(c.page))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %s", blocks, err, c.want)
			}
		})
	}
}
