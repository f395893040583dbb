// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package birdtemplates patches the templates from which Calico's confd renders the configuration of BIRD, and judges
// on which nodes a patch is in force.
//
// Calico lets its users replace these templates (ConfigMap bird-templates). The patch only inserts lines, each group
// between two comments of the template language, so that it can be taken out and a difference shows what it does:
//
//	before the BGP template    BFD, and a shorter wait of a restart for its neighbors
//	in the BGP template        short waits before a connection is tried again
//	Global_ and Node_ peers    BFD and a hold time of 9 s with Calico's nodes; of two nodes with one AS number
//	                           that with the lower address waits for the other to connect
//
// Neighbors that are not nodes of the cluster, local workloads and the mesh keep their options. A template that is not
// as Calico 3.29 to 3.31 has it is refused: nothing is guessed.
package birdtemplates

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The templates that a patch changes, by the names of their files.
const (
	IPv4File = "bird.cfg.template"
	IPv6File = "bird6.cfg.template"
)

// Files are the names of the templates that a patch changes.
func Files() []string { return []string{IPv4File, IPv6File} }

// The lines around each insertion. The number is increased when what is inserted changes. They render to nothing.
const (
	begin = "{{- /* mooring bird-templates begin 2 */}}"
	end   = "{{- /* mooring bird-templates end */}}"
)

// anyBegin recognizes the first line of an insertion of any version.
var anyBegin = regexp.MustCompile(`^\{\{- /\* mooring bird-templates begin [0-9]+ \*/}}$`)

// State is what a template is to this version of Mooring.
type State string

// The states of a template.
const (
	// Unpatched has no insertion.
	Unpatched State = "unpatched"
	// Patched is as Patch returns it.
	Patched State = "patched"
	// Outdated has insertions of another version, or some that were changed.
	Outdated State = "outdated"
)

// StateOf returns the state of a template. The error says why the template cannot be patched.
func StateOf(file, text string) (State, error) {
	patched, err := Patch(file, text)
	switch {
	case err != nil:
		return "", err
	case patched == text:
		return Patched, nil
	case strings.Contains(text, "mooring bird-templates begin"):
		return Outdated, nil
	}
	return Unpatched, nil
}

// Patch returns a template with the insertions of this version in place of those of any version. The error says which
// file is not as expected, where, and what was expected there.
func Patch(file, text string) (string, error) {
	f, err := familyOf(file)
	if err != nil {
		return "", err
	}
	lines, err := strip(strings.Split(text, "\n"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	p := patcher{family: f, lines: lines, insert: map[int][]string{}}
	if err := p.run(); err != nil {
		return "", fmt.Errorf("%s: %w; Mooring patches the templates of Calico 3.29 to 3.31 only", file, err)
	}
	return p.result(), nil
}

// family is what differs between the templates of IPv4 and IPv6.
type family struct{ nodeIP, key string }

func familyOf(file string) (family, error) {
	switch file {
	case IPv4File:
		return family{"$node_ip", "ip_addr_v4"}, nil
	case IPv6File:
		return family{"$node_ip6", "ip_addr_v6"}, nil
	}
	return family{}, fmt.Errorf("%q is not a template that is patched: expected %s", file, strings.Join(Files(), " or "))
}

// strip removes the insertions of any version.
func strip(lines []string) ([]string, error) {
	var out []string
	since := -1
	for i, line := range lines {
		switch {
		case anyBegin.MatchString(line):
			if since >= 0 {
				return nil, fmt.Errorf("line %d: expected the end of Mooring's insertion of line %d before the next begins", i+1, since+1)
			}
			since = i
		case line == end:
			if since < 0 {
				return nil, fmt.Errorf("line %d: expected the begin of Mooring's insertion before its end", i+1)
			}
			since = -1
		case since < 0:
			out = append(out, line)
		}
	}
	if since >= 0 {
		return nil, fmt.Errorf("line %d: expected an end of Mooring's insertion", since+1)
	}
	return out, nil
}

// patcher finds the places of the insertions. insert holds them by the index of the line that they stand before.
type patcher struct {
	family
	lines  []string
	insert map[int][]string
}

func (p *patcher) run() error {
	if err := p.refuseForeign(); err != nil {
		return err
	}
	if err := p.clients(); err != nil {
		return err
	}
	return p.peers()
}

// result is the template with the insertions.
func (p *patcher) result() string {
	var out []string
	for i, line := range p.lines {
		if inserted, ok := p.insert[i]; ok {
			out = append(out, begin)
			out = append(append(out, inserted...), end)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// foreign are options that Calico's templates do not have: someone has added them, and the insertions could
// contradict them.
var foreign = regexp.MustCompile(`^\s*(bfd|protocol bfd|hold time|startup hold time|keepalive time|graceful restart wait)\b`)

func (p *patcher) refuseForeign() error {
	for i, line := range p.lines {
		if found := foreign.FindString(line); found != "" {
			return fmt.Errorf("line %d: expected no %q, which somebody has added: remove it, or keep your own template", i+1, strings.TrimSpace(found))
		}
	}
	return nil
}

// squeezed is a line without the blanks that do not matter.
func squeezed(line string) string { return strings.Join(strings.Fields(line), " ") }

// find returns the index of the only sequence of such lines in [from, to).
func (p *patcher) find(what string, from, to int, want ...string) (int, error) {
	at := -1
	for i := from; i+len(want) <= to; i++ {
		if !slices.EqualFunc(p.lines[i:i+len(want)], want, func(have, want string) bool { return squeezed(have) == want }) {
			continue
		}
		if at >= 0 {
			return 0, fmt.Errorf("line %d: expected %q once in %s, and line %d has it as well", i+1, want[0], what, at+1)
		}
		at = i
	}
	if at < 0 {
		return 0, fmt.Errorf("expected %q in %s", strings.Join(want, " / "), what)
	}
	return at, nil
}

// clients inserts what stands before and in the template that all sessions are made from.
func (p *patcher) clients() error {
	const head = "template bgp bgp_template {"
	at, err := p.find("the file", 0, len(p.lines), "# Template for all BGP clients", head)
	if err != nil {
		return err
	}
	closing, err := p.closing(head, at+1)
	if err != nil {
		return err
	}
	waits, err := p.find(head, at, closing, "connect delay time 2;", "connect retry time 5;", "error wait time 5,30;")
	if err != nil {
		return err
	}
	p.insert[at] = []string{
		"# Mooring: a neighbor that is silent for 3 s is lost, and a restart waits 20 s for its neighbors.",
		"graceful restart wait 20;",
		"protocol bfd {",
		"  multihop { interval 500 ms; multiplier 6; };",
		"}",
		`{{- $calico_nodes := " "}}`,
		`{{- range gets "/bgp/v1/host/*/` + p.key + `"}}`,
		`{{- $calico_nodes = printf "%s%s " $calico_nodes .Value}}`,
		`{{- end}}`,
	}
	p.insert[waits+3] = []string{"  connect delay time 1;", "  connect retry time 2;", "  error wait time 1,3;"}
	return nil
}

// closing is the index of the line that ends the block that begins at a line.
func (p *patcher) closing(what string, from int) (int, error) {
	for i := from + 1; i < len(p.lines); i++ {
		if strings.HasPrefix(p.lines[i], "}") {
			return i, nil
		}
		if header.MatchString(p.lines[i]) {
			break
		}
	}
	return 0, fmt.Errorf("line %d: expected a line that begins with } after %q", from+1, what)
}

var (
	// header is the first line of a session, which may stand behind parts of the template language.
	header = regexp.MustCompile(`protocol bgp (.*)_\{\{\$id\}\} from bgp_template \{$`)
	// protocol is a first line of any protocol.
	protocol = regexp.MustCompile(`(?:^|\}\})protocol (\w+)`)
	// sameAS is where a session compares the AS number of its neighbor with that of this node.
	sameAS = regexp.MustCompile(`^calico_export_to_bgp_peers\(\{\{eq \$data\.as_num (\$\w+)\}\}\);$`)
)

// peers inserts the options of the sessions that BGPPeers ask for.
func (p *patcher) peers() error {
	seen := map[string]int{}
	for i, line := range p.lines {
		kind := protocol.FindStringSubmatch(line)
		if kind == nil || slices.Contains([]string{"kernel", "device", "direct"}, kind[1]) {
			continue
		}
		session := header.FindStringSubmatch(line)
		if session == nil {
			return fmt.Errorf("line %d: expected no other protocol than kernel, device, direct and sessions from bgp_template", i+1)
		}
		seen[session[1]]++
		if err := p.session(session[1], i); err != nil {
			return err
		}
	}
	for _, name := range []string{"Mesh", "Global", "Node"} {
		if seen[name] != 1 {
			return fmt.Errorf("expected one protocol bgp %s_{{$id}} and found %d", name, seen[name])
		}
	}
	return nil
}

// session inserts the options of one session.
func (p *patcher) session(name string, at int) error {
	switch name {
	case "Mesh", "Local_Workload":
		return nil
	case "Global", "Node":
	default:
		return fmt.Errorf("line %d: expected no session %s_", at+1, name)
	}
	what := "protocol bgp " + name + "_"
	closing, err := p.closing(what, at)
	if err != nil {
		return err
	}
	multihop, err := p.find(what, at, closing, "{{- if $data.ttl_security }}", "ttl security on;", "multihop {{ $data.ttl_security }};",
		"{{- else }}", "ttl security off;", "multihop;", "{{- end }}")
	if err != nil {
		return err
	}
	restart, err := p.find(what, at, closing, `{{- if ne $data.restart_time ""}}`)
	if err != nil {
		return err
	}
	passive := []string{"{{- if $data.passive_mode}}", "{{- if and ($data.calico_node) (gt $data.ip " + p.nodeIP + ")}}"}
	as := ""
	for i, line := range p.lines[at:closing] {
		if strings.HasPrefix(squeezed(line), "passive") && !slices.Contains(passive, squeezed(p.lines[at+i-1])) {
			return fmt.Errorf("line %d: expected no %q, which somebody has added", at+i+1, "passive on;")
		}
		if found := sameAS.FindStringSubmatch(squeezed(line)); found != nil {
			as = found[1]
		}
	}
	if as == "" {
		return fmt.Errorf("expected %q in %s", "calico_export_to_bgp_peers({{eq $data.as_num ...}});", what)
	}
	const isNode = `contains $calico_nodes (printf " %s " $data.ip)`
	p.insert[multihop+7] = []string{"{{- if " + isNode + "}}", "  bfd on;", "  hold time 9;", "{{- end}}"}
	p.insert[restart] = []string{
		"{{- if and (" + isNode + ") (eq $data.as_num " + as + ") (gt $data.ip " + p.nodeIP + ")}}",
		"  passive on; # Of two nodes the one with the higher address connects.",
		"{{- end}}",
	}
	return nil
}
