// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package redact takes values out of text that look like secrets, before the text leaves a cluster. It errs on the side
// of taking too much. It is pure.
package redact

import (
	"regexp"
	"strings"
)

// Mark stands in place of what was taken out.
const Mark = "[redacted]"

// secretWords are parts of names whose values are secrets.
const secretWords = `token|passw(?:or)?d|passphrase|secret|credential|api[-_]?key|access[-_]?key|private[-_]?key|client[-_]?key|authorization`

// rule replaces what a pattern matches.
type rule struct {
	pattern *regexp.Regexp
	with    string
}

// rules are applied in this order.
func rules() []rule {
	of := func(pattern, with string) rule { return rule{regexp.MustCompile(pattern), with} }
	return []rule{
		of(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`, Mark),
		of(`\bdo[a-z]_v1_[0-9A-Za-z]{8,}`, Mark),                                // DigitalOcean's tokens
		of(`\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]*)?`, Mark), // JSON Web Tokens, as of service accounts
		of(`\bgh[a-z]_[0-9A-Za-z]{20,}`, Mark),
		of(`(?i)\b((?:set-)?cookie["']?\s*[:=]\s*)[^\n]+`, "${1}"+Mark),
		// A name and a value beside each other, as variables have them.
		of(`(?i)(["']?name["']?\s*[:=]\s*["']?[0-9a-z_.-]*(?:`+secretWords+`)[0-9a-z_.-]*["']?,?\s*["']?value["']?\s*[:=]\s*)`+
			`("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"'{}\[\],;]+)`, "${1}"+Mark),
		of(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`, Mark), // AWS access keys
		of(`(?i)\b(bearer|basic)\s+[0-9A-Za-z._~+/=-]{8,}`, "$1 "+Mark),
		of(`([a-z][a-z0-9+.-]*://)[^\s/@"']+@`, "${1}"+Mark+"@"), // users and passwords in addresses
		// Names with values: NAME=value, --name value, "name": "value", name: value. A name that ends with _FILE, File or
		// Ref names the place of a secret.
		of(`(?i)(["']?[0-9a-z_.-]*(?:`+secretWords+`)s?["']?\s*[=:]\s*)("(?:[^"\\\n]|\\.)+"|'[^'\n]+'|[^\s"'{}\[\],;]+)`, "${1}"+Mark),
		of(`(?i)(--?[0-9a-z-]*(?:`+secretWords+`)\s+)([^\s-][^\s]*)`, "${1}"+Mark),
		of(`(^|[^0-9A-Za-z:+/])[0-9a-f]{64}\b`, "${1}"+Mark),                   // keys of 32 bytes, but not sha256:…
		of(`(^|[^0-9A-Za-z+/:])[0-9A-Za-z+/]{43}=(?:[^=]|$)`, "${1}"+Mark+" "), // the same in base64
	}
}

// Text is the text without what looks like a secret: private keys, tokens, values of names such as password, users in
// addresses, and keys of 32 bytes.
func Text(text string) string {
	text = blocks(text)
	for _, r := range rules() {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// blocks takes out the lines of YAML that belong to a name of a secret: those below it with more indentation.
func blocks(text string) string {
	opens := regexp.MustCompile(`(?i)^(\s*(?:- )?)["']?[0-9a-z_.-]*(?:` + secretWords + `)s?["']?:\s*[|>][0-9+-]*\s*$`)
	var out []string
	inside := -1
	for line := range strings.SplitSeq(text, "\n") {
		indented := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case inside >= 0 && (indented > inside || strings.TrimSpace(line) == ""):
			continue
		case opens.MatchString(line):
			inside = len(opens.FindStringSubmatch(line)[1])
		default:
			inside = -1
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// IsName reports that the value of a variable or a field of this name is a secret, and not the place of one.
func IsName(name string) bool {
	lower := strings.ToLower(name)
	for _, place := range []string{"_file", "file", "ref", "path", "name"} {
		if strings.HasSuffix(lower, place) {
			return false
		}
	}
	return regexp.MustCompile(`(?i)` + secretWords).MatchString(name)
}
