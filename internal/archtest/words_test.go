// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// retired are words and phrases that were replaced by the terms of Kubernetes' documentation, in lower case, each with its replacement.
var retired = []struct{ phrase, use string }{
	{"anew", "again"},
	{"afresh", "again"},
	{"once more", "again"},
	{"beside the", "alongside, in addition to"},
	{"beside those", "alongside, in addition to"},
	{"beside these", "alongside, in addition to"},
	{"beside it", "alongside"},
	{"besides the", "in addition to"},
	{"whoever", "anyone who"},
	{"how the token fares", "token health"},
	{"taken unseen", "admitted without validation"},
	{"vanished unseen", "whose deletion was not observed"},
	{"cannot be said", "is unknown"},
	{"mends routes", "restores routes"},
	{"heeds", "respects"},
	{"reflector no more", "no longer a reflector"},
	{"the framework's reason", "the reason is that of Kubernetes' framework"},
	{"slip of the pen", "typing error"},
	{"the world had moved on", "a conflict"},
	{"the message has the cure", "the message says what to do"},
	{"the message counts why", "the message counts the reasons"},
	{"what is seen", "the observed state"},
	{"calls that were put off", "delayed calls"},
	{"for want of", "for lack of"},
	{"what would grow", "writes that need space"},
	{"machines that live", "existing machines"},
	{"says whether", "reports whether"},
	{"nobody gets", "name the subject"},
	{"nobody watched", "name the subject"},
	{"nobody looks after", "is not reconciled"},
	{"short form of", "the short run"},
	{"long form of", "the full run"},
	{"the predecessor", "the upstream project"},
	{"a predecessor", "an upstream project"},
	{"its predecessor", "its upstream project"},
}

// TestRetiredWordsStayAway searches what people read of this repository (pages, charts, manifests, messages and comments) for words and phrases that
// a maintainer of other controllers would have to learn first.
func TestRetiredWordsStayAway(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	searched := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return ignoreGone(err)
		case d.IsDir() && isNotSearched(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !isReadByPeople(d.Name()):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		searched++
		for _, found := range findRetired(string(content)) {
			t.Errorf("%s: %s", strings.TrimPrefix(path, root+"/"), found)
		}
		return nil
	})
	if err != nil || searched < 500 {
		t.Fatalf("searched %d files: %v", searched, err)
	}
}

// isNotSearched reports folders that hold builds, other projects' texts, or what was published before.
func isNotSearched(folder string) bool {
	switch folder {
	case ".git", "bin", ".lab", "testdata", "releases", "adr":
		return true
	}
	return false
}

// isReadByPeople reports files whose text people read. Tests name cases and imitate others; this file names the words themselves.
func isReadByPeople(name string) bool {
	if strings.HasSuffix(name, "_test.go") || name == "CHANGELOG.md" {
		return false
	}
	switch filepath.Ext(name) {
	case ".go", ".md", ".yaml", ".tpl", ".txt":
		return true
	}
	return false
}

// lineBreak is a break within a sentence: of a comment, of a literal that is continued, or of prose.
var lineBreak = regexp.MustCompile(`[ \t]*"? ?\+?\n[ \t]*(//|#|")?[ \t]*`)

// findRetired returns one sentence for each retired phrase in a text. Breaks are joined only in a text that has a phrase's longest word.
func findRetired(text string) []string {
	text = strings.ToLower(text)
	joined := ""
	var found []string
	for _, r := range retired {
		if !strings.Contains(text, longestWord(r.phrase)) {
			continue
		}
		if joined == "" {
			joined = lineBreak.ReplaceAllString(text, " ")
		}
		if at := indexWords(joined, r.phrase); at >= 0 {
			found = append(found, "…"+joined[max(0, at-40):min(len(joined), at+len(r.phrase)+40)]+"…: use "+r.use)
		}
	}
	return found
}

// longestWord returns the longest word of a phrase.
func longestWord(phrase string) string {
	longest := ""
	for word := range strings.FieldsSeq(phrase) {
		if len(word) > len(longest) {
			longest = word
		}
	}
	return longest
}

// indexWords returns where a phrase begins in text as whole words, -1 if nowhere.
func indexWords(text, phrase string) int {
	isLetter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] == '_')
	}
	for from := 0; ; {
		at := strings.Index(text[from:], phrase)
		if at < 0 {
			return -1
		}
		at += from
		if !isLetter(at-1) && !isLetter(at+len(phrase)) {
			return at
		}
		from = at + 1
	}
}

// TestRetiredWordsAreFound shows that the search sees through line breaks and leaves names alone.
func TestRetiredWordsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"// It is read once\n\t// more.":       1,
		"\"it is made \" +\n\t\t\"anew\"":      1,
		"Whoever reads it\nsays whether it is": 2,
		"import \"example/predecessor\"":       0,
		"it is read again":                     0,
	} {
		if got := findRetired(text); len(got) != want {
			t.Errorf("found %q in %q, want %d", got, text, want)
		}
	}
}
