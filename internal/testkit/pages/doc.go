// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package pages lets tests do what a page of docs/ tells its readers to do, with a shell and in the page's order, so that a page that has become wrong
// fails a test.
//
// A block of commands is fenced with three backticks and sh. A block fenced with text, directly below one of commands, is what these print. It is
// compared line by line:
//
//   - "…" stands for anything within a line, also for nothing;
//   - a line that is nothing but "…" stands for any number of lines, also for none;
//   - how many blanks are between two words, and at the end of a line, does not matter, since columns are as wide as what is in them.
//
// A [Reader] runs blocks of a page one by one. [Follow] does all of a tutorial, and sees to it that nothing of it stays behind.
package pages
