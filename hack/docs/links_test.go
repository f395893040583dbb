// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// target matches the target of a Markdown link. None of ours has brackets or stars, which regular expressions in the reference of kinds have.
var target = regexp.MustCompile(`\]\(([^)\s\[\]*]+)\)`)

// TestLinksResolve follows every link between files of the repository; links elsewhere are not followed, tests need no network.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == ".lab" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".md") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range target.FindAllStringSubmatch(string(content), -1) {
			link, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(link, "://") {
				continue
			}
			seen++
			to := path
			if link != "" {
				to = filepath.Join(filepath.Dir(path), link)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", strings.TrimPrefix(path, root+"/"), link)
			} else if anchor != "" && strings.HasSuffix(to, ".md") && !hasHeading(t, to, anchor) {
				t.Errorf("%s links to %s, which has no heading for #%s", strings.TrimPrefix(path, root+"/"), to, anchor)
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("followed %d links: %v", seen, err)
	}
}

// TestEveryPageIsFound follows links from docs/README.md: each page below docs is reached, or lies in a folder that a page which is reached
// links to or names as `docs/folder/`.
func TestEveryPageIsFound(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	folder := regexp.MustCompile("`(docs/[a-z/-]+)/`")
	start := filepath.Join(root, "docs", "README.md")
	reached, queue := map[string]bool{start: true}, []string{start}
	for len(queue) > 0 {
		page := queue[0]
		queue = queue[1:]
		content := must.Get(os.ReadFile(page)).Or(t)
		for _, match := range folder.FindAllStringSubmatch(string(content), -1) {
			reached[filepath.Join(root, match[1])] = true
		}
		for _, match := range target.FindAllStringSubmatch(string(content), -1) {
			link, _, _ := strings.Cut(match[1], "#")
			to := filepath.Join(filepath.Dir(page), link)
			if link == "" || strings.Contains(link, "://") || reached[to] {
				continue
			}
			reached[to] = true
			if strings.HasSuffix(to, ".md") {
				queue = append(queue, to)
			}
		}
	}
	pages := 0
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			pages++
			if !reached[path] && !reached[filepath.Dir(path)] {
				t.Errorf("no link leads from docs/README.md to %s: add one", strings.TrimPrefix(path, root+"/"))
			}
		}
		return err
	})
	if err != nil || pages == 0 {
		t.Fatalf("%d pages: %v", pages, err)
	}
}

// hasHeading reports whether a page has a heading with the anchor that GitHub makes of it: lower case, blanks as dashes, other signs left out.
func hasHeading(t *testing.T, path, anchor string) bool {
	t.Helper()
	content := must.Get(os.ReadFile(path)).Or(t)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(content), -1) {
		plain := regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		if strings.ReplaceAll(plain, " ", "-") == anchor {
			return true
		}
	}
	return false
}
