// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// What a Request asks for.
const (
	// VerbForget removes what machines have left, by name, as `calico-node-sync apply NODE...` does.
	VerbForget = "forget"
	// VerbRestore puts back entries of the journal, as `calico-node-sync restore` does.
	VerbRestore = "restore"
)

// What has become of a Request.
const (
	// AnswerRunning reports that the controller is at it: it goes on no matter who waits.
	AnswerRunning = "running"
	// AnswerDone reports that all of it has been done.
	AnswerDone = "done"
	// AnswerHeld reports that something was left alone, for the reasons in the lines.
	AnswerHeld = "held"
	// AnswerFailed reports that it could not be done, or not begun.
	AnswerFailed = "failed"
)

const (
	// longestRequest bounds a request, and longestAnswer an answer, as JSON, in bytes: an object's annotations may hold 256 KiB together.
	longestRequest = 16 << 10
	longestAnswer  = 16 << 10
	// mostNames bounds the names of one request.
	mostNames = 50
	// LongestRequestTime is how far in the future a request may end at most: it is for a person who waits.
	LongestRequestTime = time.Hour
)

// Request is what a person asks the controller to do with its own rights, by nodesync.RequestAnnotation on the controller's ConfigMap. Its
// JSON form is a contract between versions of the plugin and of the controller.
type Request struct {
	// ID tells it from others.
	ID string `json:"id"`
	// Verb is VerbForget or VerbRestore.
	Verb string `json:"verb"`
	// Names are of Calico Nodes, or of machines or entries of the journal.
	Names []string `json:"names"`
	// AlsoRemove are the kinds of users' objects that go as well.
	AlsoRemove []nodesync.ResourceKind `json:"alsoRemove,omitempty"`
	// IgnoreSigns says that the machines are gone although something in Calico's datastore speaks for them.
	IgnoreSigns bool `json:"ignoreSignsOfLife,omitempty"`
	// DryRun asks what would be done.
	DryRun bool `json:"dryRun,omitempty"`
	// Until is when it may no longer be begun, and when the controller stops to try what is held back for a time.
	Until time.Time `json:"until"`
}

// Answer is what the controller says of a Request, in nodesync.AnswerAnnotation.
type Answer struct {
	// ID is that of the request.
	ID string `json:"id"`
	// State is one of the Answer constants.
	State string `json:"state"`
	// Lines are what was done, and what was left alone and why.
	Lines []string `json:"lines,omitempty"`
	// At is when it was given.
	At time.Time `json:"at"`
}

// Final reports whether nothing more will be done.
func (a Answer) Final() bool { return a.State != "" && a.State != AnswerRunning }

// ParseRequest reads a request. One that is not a request, or asks for something that there is not, is an error, with the ID by which it can be
// answered all the same: its own, or one made of the text.
func ParseRequest(text string) (Request, error) {
	sum := sha256.Sum256([]byte(text))
	request := Request{ID: hex.EncodeToString(sum[:6])}
	if len(text) > longestRequest {
		return request, fmt.Errorf("the request has %d bytes, more than %d", len(text), longestRequest)
	}
	var read Request
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return request, fmt.Errorf("the request is not a JSON object of this form: %w", err)
	}
	if read.ID == "" || len(read.ID) > 64 || !printable(read.ID) {
		return request, errors.New("the request has no ID, or one of more than 64 characters")
	}
	request.ID = read.ID
	removable := nodesync.ResourceKinds()
	switch {
	case read.Verb != VerbForget && read.Verb != VerbRestore:
		return request, fmt.Errorf("the request's verb %q is unknown: it must be %s or %s", read.Verb, VerbForget, VerbRestore)
	case len(read.Names) == 0 || len(read.Names) > mostNames:
		return request, fmt.Errorf("the request has %d names: it must have 1 to %d", len(read.Names), mostNames)
	case slices.ContainsFunc(read.Names, func(name string) bool { return name == "" || len(name) > 512 || !printable(name) }):
		return request, errors.New("a name of the request is empty, too long, or has invalid characters")
	case slices.ContainsFunc(read.AlsoRemove, func(kind nodesync.ResourceKind) bool { return !slices.Contains(removable, kind) }):
		return request, fmt.Errorf("the request's kinds are %q: each must be one of %q", read.AlsoRemove, removable)
	case read.Until.IsZero():
		return request, errors.New("the request does not say until when it is valid")
	}
	return read, nil
}

func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return false
		}
	}
	return true
}

// encode returns an answer's JSON, with as many of its lines as there is room for: escaping can make a line six times as long. Errors are shown before all
// else is cut: what is stored also says to the next attempt why this one failed.
func (a Answer) encode() (string, error) {
	lines := a.Lines
	for shown := len(lines); ; shown = shown * 3 / 4 {
		a.Lines = make([]string, 0, shown+1)
		for _, line := range lines[:shown] {
			a.Lines = append(a.Lines, clip(line, 1024))
		}
		if more := len(lines) - shown; more > 0 {
			a.Lines = append(a.Lines, fmt.Sprintf("and %d more lines: see the log of calico-node-sync", more))
		}
		text, err := json.Marshal(a)
		if err != nil {
			return "", fmt.Errorf("encoding a response: %w", err)
		}
		if len(text) <= longestAnswer || shown == 0 {
			return string(text), nil
		}
		if shown == len(lines) {
			lines = errorsFirst(lines)
		}
	}
}

func errorsFirst(lines []string) []string {
	isError := func(line string) bool { return strings.HasPrefix(line, errorMark) }
	failed := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !isError(line) })
	return append(failed, slices.DeleteFunc(slices.Clone(lines), isError)...)
}

// ParseAnswer reads an answer; what is none is the zero value.
func ParseAnswer(text string) Answer {
	var answer Answer
	if json.Unmarshal([]byte(text), &answer) != nil {
		return Answer{}
	}
	return answer
}
