// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// answer is what one view printed of a world.
type answer struct {
	view      string
	code      int
	out, errs string
	// said is what it says of each part that it shows.
	said map[part]said
	// red are sentences of the view in red that are about no part by name.
	red []string
}

func newAnswer(view string) *answer { return &answer{view: view, said: map[part]said{}} }

// say adds what a view says of a part: the worse state counts, and every next step.
func (a *answer) say(p part, s said) {
	old, known := a.said[p]
	if !known || s.state < old.state {
		s.next = append(slices.Clone(old.next), s.next...)
		a.said[p] = s
		return
	}
	old.next = append(old.next, s.next...)
	a.said[p] = old
}

// run is the plugin's main function, in this process.
func run(ctx context.Context, args []string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command.Run(ctx, plugin.NewCommand(plugin.Builtin()...), args, &out, &errs)
	return code, out.String(), errs.String()
}

// command runs a view that prints JSON, and decodes that; a view that fails prints one sentence instead.
func (s *stage) command(view string, into any, args ...string) *answer {
	s.Helper()
	a := newAnswer(view)
	args = append(args, "--kubeconfig", s.kubeconfig, "-o", "json")
	a.code, a.out, a.errs = run(s.Context(), append(args, s.flags...))
	if a.code == command.ExitError {
		return a
	}
	if err := json.Unmarshal([]byte(a.out), into); err != nil {
		s.Fatalf("%q: %v: %s%s", args, err, a.out, a.errs)
	}
	return a
}

// findings are what a doctor says, in doctor, status and page.
func (a *answer) findings(list []finding.Finding) {
	for _, f := range list {
		about := mentioned(f.What + " " + f.Where)
		state := good
		switch {
		case f.Unread:
			state = unread
		case f.Severity == finding.Problem, f.Severity == finding.Warning:
			state = bad
		case f.Severity == finding.Note:
			state = noted
		}
		if len(about) == 0 && state < noted {
			a.red = append(a.red, f.What)
		}
		for _, p := range about {
			a.say(p, said{state: state, text: f.What, next: compact(f.Do)})
		}
	}
}

// rows are what agreement says, in agreement, status and page.
func (a *answer) rows(list []agreement.Row) {
	for _, r := range list {
		x := said{state: verdict(r.Verdict)}
		for _, f := range r.Findings {
			x.text = cmp.Or(x.text, f.What)
			x.next = append(x.next, compact(f.Next)...)
		}
		a.say(part{"machine", r.Machine}, x)
	}
}

// tile is the list of a page that shows the parts of a kind.
func tile(kind string) string {
	return map[string]string{
		"machine": "machines", "component": "components", "service": "balancers", "claim": "volumes",
		"tenant": "tenants", "topology": "reflectors",
	}[kind]
}

func stateOf(s ui.State) state {
	return map[ui.State]state{ui.Bad: bad, ui.Unread: unread, ui.Changing: changing, ui.Good: good, ui.Absent: absent}[s]
}

func verdict(v finding.State) state {
	switch v {
	case finding.Agree:
		return good
	case finding.Settling:
		return changing
	case finding.Unknown, finding.OneSide:
		return unread
	case finding.Down, finding.Disagree, finding.Held:
	}
	return bad
}

// tiles are the parts of a page of which only the tile says how they are.
func (a *answer) tiles(health []ui.Tile) {
	for _, p := range parts() {
		at := slices.IndexFunc(health, func(t ui.Tile) bool { return t.Key == tile(p.kind) })
		if at >= 0 && p.kind != "machine" && p.kind != "component" {
			a.say(p, said{state: stateOf(health[at].State), text: health[at].Text})
		}
	}
	for _, t := range health {
		if state := stateOf(t.State); state <= unread && t.Key != "doctor" {
			a.red = append(a.red, "tile "+t.Key+": "+t.Text)
		}
	}
}

func (s *stage) status() *answer {
	var r struct {
		Health     []ui.Tile           `json:"health"`
		Machines   []agreement.Row     `json:"machines"`
		Components []finding.Component `json:"components"`
		Findings   []finding.Finding   `json:"findings"`
	}
	a := s.command("status", &r, "status")
	if a.code == command.ExitError {
		return a
	}
	a.rows(r.Machines)
	a.findings(r.Findings)
	a.tiles(r.Health)
	for _, c := range r.Components {
		x := said{state: good, text: c.Problem + c.Unread}
		switch {
		case c.Problem != "":
			x.state = bad
		case c.Unread != "":
			x.state = unread
		}
		a.say(part{"component", c.Name}, x)
	}
	return a
}

func (s *stage) doctor() *answer {
	var r struct {
		Findings []finding.Finding `json:"findings"`
	}
	a := s.command("doctor", &r, "doctor")
	a.findings(r.Findings)
	silence := good // the doctor's last line calls fine what it has no finding about, if it read everything
	if slices.ContainsFunc(r.Findings, func(f finding.Finding) bool { return f.Unread }) {
		silence = absent
	}
	for _, p := range parts() {
		if _, known := a.said[p]; !known && slices.Contains([]string{"component", "tenant", "topology"}, p.kind) &&
			a.code != command.ExitError {
			a.say(p, said{state: silence})
		}
	}
	return a
}

func (s *stage) agreement() *answer {
	var r struct {
		Machines []agreement.Row `json:"machines"`
	}
	a := s.command("agreement", &r, "agreement")
	a.rows(r.Machines)
	return a
}

func (s *stage) volumes() *answer {
	var r volumes.Report
	a := s.command("volumes", &r, "volumes")
	for _, v := range r.Volumes {
		x := said{state: verdict(v.Verdict)}
		for _, f := range v.Findings {
			x.text = cmp.Or(x.text, f.What)
			x.next = append(x.next, compact(f.Next)...)
		}
		if v.Claim == "" && v.Volume == "pvc-data" {
			v.Claim = "shop/data"
		}
		a.say(part{"claim", v.Claim}, x)
	}
	for _, v := range r.Snapshots {
		if v.Verdict.NeedsAttention() {
			a.say(part{"snapshot", v.Name}, said{state: bad, text: v.Finding.What, next: compact(v.Finding.Next)})
		}
	}
	a.red = append(a.red, r.NotRead...)
	return a
}

func (s *stage) version() *answer {
	var r struct {
		Components []finding.Component `json:"components"`
	}
	a := s.command("version", &r, "version")
	for _, c := range r.Components {
		x := said{state: good, text: c.Problem}
		if c.Problem != "" {
			x.state = bad
		}
		a.say(part{"component", c.Name}, x)
	}
	return a
}

// explain asks about one object.
func (s *stage) explain(p part) *answer {
	kinds := map[string]string{"machine": "node", "service": "service", "claim": "pvc", "tenant": "etcdstorage", "topology": "node"}
	namespace, name, found := strings.Cut(p.name, "/")
	if !found {
		namespace, name = "default", p.name
	}
	if p.kind == "topology" {
		name = "w1" // one of its reflectors
	}
	var e explain.Explanation
	a := s.command("explain", &e, "explain", kinds[p.kind], name, "-n", namespace)
	if a.code == command.ExitError {
		return a
	}
	x := said{state: good}
	if e.Attention {
		x.state = bad
	}
	for _, section := range e.Sections {
		for _, l := range section.Lines {
			if l.Attention {
				x.text = cmp.Or(x.text, l.Text)
			}
			if l.Topic == "next" || l.Attention && (strings.Contains(l.Text, "kubectl ") || strings.Contains(l.Text, "check ")) {
				x.next = append(x.next, l.Text)
			}
		}
	}
	a.say(p, x)
	return a
}

// page runs kubectl mooring ui, and reads the JSON of its page as the page's script does.
func (s *stage) page() *answer {
	s.Helper()
	a := newAnswer("page")
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	urls, out := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		args := append([]string{"ui", "--no-browser", "--kubeconfig", s.kubeconfig}, s.flags...)
		done <- command.Run(ctx, plugin.NewCommand(plugin.Builtin()...), args, out, &errs)
		_ = out.Close()
	}()
	url, _ := bufio.NewReader(urls).ReadString('\n') // none if the cluster cannot be read
	if url == "" {
		a.code, a.errs = <-done, errs.String()
		return a
	}
	p := s.pageJSON(ctx, strings.TrimSpace(url))
	cancel()
	<-done
	a.page(p)
	return a
}

func (s *stage) pageJSON(ctx context.Context, url string) (p ui.Page) {
	s.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"page.json", http.NoBody)
	s.must(err)
	response, err := http.DefaultClient.Do(request)
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	s.must(json.Unmarshal(text, &p))
	return p
}

// page is what a page says.
func (a *answer) page(p ui.Page) {
	text, _ := json.Marshal(p) // which was decoded just now
	a.out = string(text)
	states := map[string]state{}
	for _, t := range p.Health {
		states[t.Key] = stateOf(t.State)
	}
	for _, z := range p.Machines.Zones {
		for _, m := range z.Machines {
			a.rows([]agreement.Row{{Machine: m.Name, Verdict: m.Verdict, Findings: m.Findings}})
		}
	}
	for _, l := range p.Lists {
		for _, r := range l.Rows {
			a.row(l.Key, r, states[l.Key])
		}
	}
	for _, t := range p.Health {
		if (t.State == ui.Bad || t.State == ui.Unread) && t.Key != "doctor" {
			a.red = append(a.red, "tile "+t.Key+": "+t.Text)
		}
	}
	if ui.NeedsAttention(p.Health) {
		a.code = command.ExitAttention
	}
	if p.Stale != "" {
		a.code = command.ExitError
	}
}

// row is one row of a list of the page.
func (a *answer) row(list string, r ui.Row, whole state) {
	var texts []string
	for _, c := range r.Cells {
		texts = append(texts, c.Text)
	}
	x := said{state: good, text: strings.Join(texts, ", ")}
	switch {
	case r.Ill:
		x.state = bad
	case whole == unread || whole == changing:
		x.state = whole
	}
	switch list {
	case "journal", "waits":
	case "doctor":
		f := finding.Finding{Severity: finding.Severity(texts[0]), What: texts[2], Do: texts[4]}
		a.findings([]finding.Finding{f})
	default:
		for _, p := range parts() {
			if tile(p.kind) == list && (texts[0] == p.name || strings.HasPrefix(texts[0], p.name+" ")) {
				a.say(p, x)
			}
		}
	}
}
