// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:   "not a JSON object",
		`{}`: "no ID",
		`{"id":"a","verb":"reboot","names":["n"],"until":"2026-01-01T00:00:00Z"}`:                                       `verb "reboot" is unknown`,
		`{"id":"a","verb":"forget","until":"2026-01-01T00:00:00Z"}`:                                                     "0 names",
		`{"id":"a","verb":"forget","names":["n"]}`:                                                                      "until when",
		`{"id":"a","verb":"forget","names":["\u001b[2J"],"until":"2026-01-01T00:00:00Z"}`:                               "invalid characters",
		`{"id":"a","verb":"forget","names":["n"],"alsoRemove":["PodLeftovers"],"until":"2026-01-01T00:00:00Z"}`:         "kinds",
		`{"id":"a","verb":"forget","names":["n"],"alsoRemove":["HostEndpoint"],"until":"2026-01-01T00:00:00Z"}`:         "",
		`{"id":"a","verb":"restore","names":["n-1"],"until":"2026-01-01T00:00:00Z","dryRun":true,"later":"is ignored"}`: "",
	} {
		request, err := ParseRequest(text)
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) || request.ID == "" {
			t.Errorf("%s: got %+v, %v; want %q", text, request, err, want)
		}
	}
}

// However its lines look, an answer has its size, says what state it is in, and can be read again.
func TestAnswerIsBounded(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"plain": "removed", "escaped": strings.Repeat("\x00<\"", 500), "long": strings.Repeat("x", 100_000)} {
		for _, n := range []int{0, 1, 10, 5000} {
			answer := Answer{ID: "a", State: AnswerHeld, At: time.Unix(0, 0).UTC()}
			for i := range n {
				answer.Lines = append(answer.Lines, fmt.Sprint(i, " ", line))
			}
			text, err := answer.encode()
			if err != nil || len(text) > longestAnswer {
				t.Fatalf("%s, %d lines: %d bytes, %v", name, n, len(text), err)
			}
			read := ParseAnswer(text)
			if read.ID != "a" || read.State != AnswerHeld || n > 0 && len(read.Lines) == 0 {
				t.Errorf("%s, %d lines: read %+v", name, n, read)
			}
		}
	}
}

// What failed is not among the lines for which there is no room.
func TestAnAnswersErrorIsNeverCut(t *testing.T) {
	t.Parallel()
	answer := Answer{ID: "a", State: AnswerRunning, Lines: []string{errorMark + "etcd does not respond"}}
	for i := range 100 {
		answer.Lines = slices.Insert(answer.Lines, i, removedMark+strings.Repeat("x", 900))
	}
	text := must.Get(answer.encode()).Or(t)
	if read := ParseAnswer(text); read.atTheEnd() != AnswerFailed || len(removedLines(read.Lines)) == 0 {
		t.Errorf("read %d lines, in the end it is %s", len(read.Lines), read.atTheEnd())
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(`{"id":"a","verb":"forget","names":["n"],"until":"2026-01-01T00:00:00Z"}`)
	f.Add(`{"id":"a","names":[""],"alsoRemove":["x"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		request, err := ParseRequest(text)
		if request.ID == "" {
			t.Fatal("it has no ID to be answered by")
		}
		if err != nil {
			return
		}
		again := must.Get(json.Marshal(request)).Or(t)
		if len(again) <= longestRequest {
			if other, err := ParseRequest(string(again)); err != nil || other.ID != request.ID {
				t.Fatalf("%s: %+v, %v", again, other, err)
			}
		}
	})
}
