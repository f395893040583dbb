// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Signers are the CAs of one purpose, the oldest first.
type Signers []CA

// Ends of the keys in the Secret with the CAs: <purpose>-<generation> and one of these. MUST NOT change: by them an operator of another version
// finds the CAs, and without them it would make new ones.
const (
	certSuffix      = ".crt"
	keySuffix       = ".key"
	publishedSuffix = ".published"
	originSuffix    = ".issuer"
)

// ParseSigners reads the CAs of a purpose from a Secret's data. What cannot be read is left out, and said so.
func ParseSigners(purpose Purpose, data map[string][]byte) (out Signers, problems []string) {
	for name, cert := range data {
		text, ok := strings.CutPrefix(name, string(purpose)+"-")
		if text, ok = cutSuffix(text, certSuffix, ok); !ok {
			continue
		}
		generation, err := strconv.Atoi(text)
		if err != nil || generation < 1 || strconv.Itoa(generation) != text {
			problems = append(problems, fmt.Sprintf("%s: its number is invalid", name))
			continue
		}
		stem := stem(purpose, generation)
		ca, err := parseCA(generation, cert, data[stem+keySuffix])
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if ca.key == nil {
			problems = append(problems, fmt.Sprintf("%s%s: it is not the key of %s", stem, keySuffix, name))
		}
		if at, err := time.Parse(time.RFC3339, string(data[stem+publishedSuffix])); err == nil {
			ca.Published = at
		}
		ca.Origin = string(data[stem+originSuffix])
		out = append(out, ca)
	}
	slices.SortFunc(out, func(a, b CA) int { return cmp.Compare(a.Generation, b.Generation) })
	slices.Sort(problems)
	return out, problems
}

func cutSuffix(text, suffix string, ok bool) (string, bool) {
	if !ok {
		return text, false
	}
	return strings.CutSuffix(text, suffix)
}

// Data is what the Secret holds of them.
func (s Signers) Data(purpose Purpose) map[string][]byte {
	out := map[string][]byte{}
	for _, ca := range s {
		stem := stem(purpose, ca.Generation)
		out[stem+certSuffix] = ca.CertPEM
		if ca.KeyPEM != nil {
			out[stem+keySuffix] = ca.KeyPEM
		}
		if !ca.Published.IsZero() {
			out[stem+publishedSuffix] = []byte(ca.Published.UTC().Format(time.RFC3339))
		}
		if ca.Origin != "" {
			out[stem+originSuffix] = []byte(ca.Origin)
		}
	}
	return out
}

func stem(purpose Purpose, generation int) string { return fmt.Sprintf("%s-%d", purpose, generation) }

// Bundle is what shall be trusted: the certificates of all CAs that have not expired, and nothing else. A CA whose validity begins later, because
// the clock was set back, is among them.
func (s Signers) Bundle(now time.Time) []byte {
	var out bytes.Buffer
	for _, ca := range s {
		if !now.After(ca.cert.NotAfter) {
			out.Write(ca.CertPEM)
		}
	}
	return out.Bytes()
}

// Recovered are the CAs among certificates in PEM, such as a bundle, numbered in their order and without keys: they are trusted, and sign no
// more. Anything else is left out, and so is except, which may be nil.
func Recovered(certificates []byte, except *CA) (out Signers) {
	all, _ := parseCertificates(certificates)
	for _, cert := range all {
		if cert.IsCA && (except == nil || !cert.Equal(except.cert)) {
			out = append(out, CA{Generation: len(out) + 1, CertPEM: encodePEM(blockCertificate, cert.Raw), cert: cert})
		}
	}
	return out
}

// newest is the last of them.
func (s Signers) newest() (CA, bool) {
	if len(s) == 0 {
		return CA{}, false
	}
	return s[len(s)-1], true
}

// of is the CA of a generation; the zero CA if there is none.
func (s Signers) of(generation int) CA {
	i := slices.IndexFunc(s, func(c CA) bool { return c.Generation == generation })
	if i < 0 {
		return CA{}
	}
	return s[i]
}
