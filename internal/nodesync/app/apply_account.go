// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// account tells people, or scripts, what apply does.
type account struct {
	out, errs io.Writer
	json      bool

	// applied counts steps that were written; did are their texts.
	applied int
	did     map[string]bool
	// host is the machine whose steps were told last.
	host string
}

func newAccount(out, errs io.Writer, output string) *account {
	return &account{out: out, errs: errs, json: output == screen.FormatJSON, did: map[string]bool{}, host: noHost}
}

// noHost is the name of no machine. The empty name is that of steps about none.
const noHost = "\x00"

// record is one document of -o json. Type and the names of the fields MUST NOT change: scripts read them.
type record struct {
	// Type is waiting, plan, repairs, step, left-alone or summary; exactly the fields of that type are there.
	Type string `json:"type"`

	// Of waiting.
	Until    *time.Time `json:"until,omitempty"`
	For      string     `json:"for,omitempty"`
	Machines []string   `json:"machines,omitempty"`

	// Of plan.
	Plan *nodesync.Plan `json:"plan,omitempty"`

	// Of repairs.
	Repairs *ipamcheck.Plan `json:"repairs,omitempty"`

	// Of step: outcome is done, conflict (it no longer applied) or error.
	Outcome string `json:"outcome,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Step    string `json:"step,omitempty"`
	Because string `json:"because,omitempty"`

	// Of step and left-alone.
	Host           string        `json:"host,omitempty"`
	KubernetesNode string        `json:"kubernetesNode,omitempty"`
	Gate           nodesync.Gate `json:"gate,omitempty"`
	Message        string        `json:"message,omitempty"`

	// Of summary: verdict is one of the constants below.
	Verdict          string `json:"verdict,omitempty"`
	StepsApplied     *int   `json:"stepsApplied,omitempty"`
	MachinesLeft     *int   `json:"machinesLeftAlone,omitempty"`
	EverythingIsHeld bool   `json:"everythingHeldBack,omitempty"`
}

// The verdicts of a summary. They MUST NOT change, as above.
const (
	verdictDone        = "done"
	verdictHeld        = "held-back"
	verdictDeclined    = "declined"
	verdictInterrupted = "interrupted"
	verdictFailed      = "failed"
)

// tell writes the document, or the text.
func (a *account) tell(r record, text string) {
	if a.json {
		// A record holds nothing that JSON cannot express.
		data, err := json.Marshal(r)
		if err != nil {
			a.warn(err.Error())
			return
		}
		text = string(data) + "\n"
	}
	fmt.Fprint(a.out, prose.Printable(text))
}

func (a *account) warn(message string) {
	fmt.Fprintln(a.errs, "warning: "+prose.Printable(command.OneLine(message)))
}

// waiting says until when apply waits, and for what.
func (a *account) waiting(until, now time.Time, machines []string, what string) {
	end := until.UTC().Truncate(time.Second)
	a.tell(record{Type: "waiting", Until: &end, For: what, Machines: machines},
		fmt.Sprintf("waiting until %s (%s) for %s\n", end.Format(time.RFC3339), until.Sub(now).Round(time.Second), what))
}

func (a *account) showPlan(plan nodesync.Plan) {
	a.tell(record{Type: "plan", Plan: &plan}, plan.String())
}

// step tells one step that was tried, below the reason for it, which is the same for all steps of a machine.
func (a *account) step(r record) {
	r.Type = "step"
	if r.Outcome == "done" {
		a.applied++
		a.did[r.Step] = true
	}
	var text strings.Builder
	if r.Host != a.host {
		a.host = r.Host
		text.WriteString(cmp.Or(r.Host, "the datastore"))
		if r.Outcome == "done" {
			text.WriteString(": " + r.Because)
		}
		text.WriteString("\n")
	}
	switch r.Outcome {
	case "done":
		fmt.Fprintf(&text, "  done: %s\n", r.Step)
	case "conflict":
		fmt.Fprintf(&text, "  no longer applies: %s: %s\n", r.Step, command.OneLine(r.Because))
	default:
		fmt.Fprintf(&text, "  failed: %s: %s\n", r.Step, command.OneLine(r.Because))
	}
	a.tell(r, text.String())
}

// summarize ends the account.
func (a *account) summarize(verdict string, left []nodesync.Refusal) {
	machines, everything := map[string]bool{}, false
	for _, r := range left {
		everything = everything || r.Of.Host == ""
		machines[r.Of.Host] = true
	}
	delete(machines, "")
	delete(machines, nodesync.RemoveHandles{}.Subject().Host) // that is not a machine
	applied, count := a.applied, len(machines)
	text := fmt.Sprintf("%s applied, %s left alone", prose.Plural(applied, "step"), prose.Plural(count, "machine"))
	if everything {
		text = prose.Plural(applied, "step") + " applied, everything is held back"
	}
	switch {
	case verdict != verdictDone && verdict != verdictHeld:
		text = verdict + ": " + text
	case applied == 0 && len(left) == 0:
		text = "nothing to do: " + text
	}
	a.tell(record{
		Type: "summary", Verdict: verdict, StepsApplied: &applied, MachinesLeft: &count, EverythingIsHeld: everything,
	}, text+"\n")
	a.tellLeftAlone(left)
}

// tellLeftAlone says what is left alone and why: in JSON one document for each, in text one line for all with the same reason.
func (a *account) tellLeftAlone(left []nodesync.Refusal) {
	type reason struct {
		gate    nodesync.Gate
		message string
	}
	hosts := map[reason][]string{}
	for _, r := range left {
		why := reason{r.Gate, r.Message}
		hosts[why] = append(hosts[why], cmp.Or(r.Of.Host, "everything"))
	}
	for _, r := range left {
		why, text := reason{r.Gate, r.Message}, ""
		if all := hosts[why]; len(all) > 0 {
			text = fmt.Sprintf("left alone: %s: %s (%s)\n", some(all, 20), r.Message, r.Gate)
		}
		delete(hosts, why)
		a.tell(record{Type: "left-alone", Host: r.Of.Host, KubernetesNode: r.Of.KubernetesNode, Gate: r.Gate, Message: r.Message}, text)
	}
}

// log is the account as the controller's log: its lines about steps are told, its errors are warnings, and the rest is told otherwise.
func (a *account) log() logr.Logger { return logr.New(accountSink{account: a}) }

// accountSink turns the lines about steps that the controller logs (controller/report.go) into the account. Their words are a contract with
// anyone who reads logs, and tests of apply break when they change.
type accountSink struct {
	account *account
	values  []any
}

// Init implements logr.LogSink.
func (accountSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (accountSink) Enabled(level int) bool { return level == 0 }

// WithName implements logr.LogSink.
func (s accountSink) WithName(string) logr.LogSink { return s }

// WithValues implements logr.LogSink.
func (s accountSink) WithValues(keysAndValues ...any) logr.LogSink {
	s.values = slices.Concat(s.values, keysAndValues)
	return s
}

// Info implements logr.LogSink.
func (s accountSink) Info(_ int, message string, keysAndValues ...any) {
	values := s.strings(keysAndValues)
	switch message {
	case "Applied step":
		s.account.step(values.step("done", values["did"], values["because"]))
	case "A step no longer applies, will plan again":
		s.account.step(values.step("conflict", values["wanted"], values["because"]))
	}
}

// Error implements logr.LogSink.
func (s accountSink) Error(err error, message string, keysAndValues ...any) {
	values := s.strings(keysAndValues)
	switch {
	case errors.Is(err, errNotShown):
	case values["wanted"] != "":
		s.account.step(values.step("error", values["wanted"], err.Error()))
	default:
		s.account.warn(fmt.Sprintf("%s: %v", message, err))
	}
}

// logValues are the values of one line of the log that are text.
type logValues map[string]string

func (s accountSink) strings(more []any) logValues {
	all, out := slices.Concat(s.values, more), logValues{}
	for i := 0; i+1 < len(all); i += 2 {
		key, isKey := all[i].(string)
		if value, isText := all[i+1].(string); isKey && isText {
			out[key] = value
		}
	}
	return out
}

func (v logValues) step(outcome, step, because string) record {
	return record{Outcome: outcome, Kind: v["step"], Step: step, Because: because, Host: v["host"], KubernetesNode: v["node"]}
}

// readLine reads one line in lower case and without spaces around it, or returns when ctx ends. A line that never comes keeps one goroutine,
// which ends with the process.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // that is not a yes
		}
		answers <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-answers:
		if a.err != nil {
			return "", fmt.Errorf("reading the response: %w", a.err)
		}
		return strings.ToLower(strings.TrimSpace(a.line)), nil
	}
}

// these is "this step" or "these 2 steps".
func these(n int, noun string) string {
	if n == 1 {
		return "this 1 " + noun
	}
	return "these " + prose.Plural(n, noun)
}

// few are the first of many names.
func few(names []string) string { return some(names, 5) }

func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
