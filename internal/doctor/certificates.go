// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// notice is how long before its end a certificate is a warning; for a short one it is a sixth of its life. Automatic
// renewal happens after two thirds of it (cert-manager), so that it is late then. Certificates of EtcdStorages, of
// which the operator's periods are known, are judged by package tenants.
const notice = 14 * 24 * time.Hour

// CertificateEvidence is what was read of certificates. All of it is public.
type CertificateEvidence struct {
	Now     time.Time
	Bundles []Bundle
	// Unread are the sides that could not be read.
	Unread []finding.Side
	// Closed is how many Secrets with certificates were not opened, as nobody asked for it; ClosedProblem is why even that
	// is not known.
	Closed        int
	ClosedProblem string
}

// Bundle is an object with certificates in PEM.
type Bundle struct {
	// Where names the object, and its part.
	Where string
	PEM   []byte
	// Leaf reports that the first certificate is one that is shown to others, with those that sign it behind. Otherwise
	// all are authorities that are trusted: one that has ended does no harm alongside its successor.
	Leaf bool
	// Problem is why it cannot be used, "" if it can as far as is known without its certificates.
	Problem string
}

// end is when a certificate ends, and for how long it was made.
type end struct {
	where, what string
	at          time.Time
	lasts       time.Duration
}

// Certificates judges which certificates have ended, or end soon. The name of the check stands in JSON and MUST NOT
// change.
func Certificates(e CertificateEvidence) []finding.Finding {
	return finding.Make([]finding.Check[CertificateEvidence]{{Name: "certificates", Find: certificates}}, e)
}

func certificates(e CertificateEvidence) (out []finding.Finding) {
	var well []end
	for _, b := range e.Bundles {
		ends, found := b.judge(e.Now)
		if found.What == "" || found.Severity == finding.Note {
			well = append(well, ends)
		}
		if found.What != "" {
			out = append(out, found)
		}
	}
	if len(well) > 0 {
		first := slices.MinFunc(well, func(a, b end) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.where, b.where), cmp.Compare(a.what, b.what))
		})
		out = append(out, finding.OK.Say("%s not about to expire; the first is %s of %s, on %s",
			prose.Are(len(well), "certificate"), first.what, first.where, day(first.at)).At(first.where))
	}
	return append(out, e.unread()...)
}

// unread is what was not looked at.
func (e CertificateEvidence) unread() []finding.Finding {
	const secrets = "Secrets of type kubernetes.io/tls"
	out := finding.NotRead(e.Unread)
	switch {
	case e.ClosedProblem != "":
		out = append(out, finding.Note.Say("not read: %s: %s", secrets, e.ClosedProblem).At(secrets))
	case e.Closed > 0:
		out = append(out,
			finding.Note.Say("not read: %s of type kubernetes.io/tls", prose.Plural(e.Closed, "Secret")).At(secrets).
				Because("they contain serving certificates").
				Advise("with --secrets their tls.crt is read; the API server also sends their keys, which are neither read nor printed"))
	}
	return out
}

// judge finds what is wrong with a bundle. ends is when the certificate does that decides it.
func (b Bundle) judge(now time.Time) (ends end, found finding.Finding) {
	problem := func(what, do string) finding.Finding {
		return finding.Problem.Say("%s %s", b.Where, what).At(b.Where).
			Because("every client that needs it refuses the connection").Advise(do)
	}
	all, err := parse(b.PEM)
	switch {
	case b.Problem != "":
		return end{}, problem("cannot be used: "+b.Problem, "put a valid certificate there")
	case err != nil:
		return end{}, problem("has a certificate that cannot be read: "+err.Error(), "write it again, as PEM")
	case len(all) == 0:
		return end{}, problem("has no certificate where one is expected", "write it again, as PEM")
	}
	deciding := all[0]
	if !b.Leaf {
		deciding = slices.MaxFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	}
	name := cmp.Or(deciding.Subject.String(), "a certificate without a name")
	ends = end{b.Where, name, deciding.NotAfter, deciding.NotAfter.Sub(deciding.NotBefore)}
	if now.Before(deciding.NotBefore) {
		from := deciding.NotBefore.UTC().Format(time.RFC3339)
		return ends, problem(fmt.Sprintf("has %s, which is not valid before %s", name, from), "check the clocks")
	}
	if found = ends.judge(now); found.What != "" {
		return ends, found
	}
	ended := 0
	for _, c := range all {
		if !b.Leaf && now.After(c.NotAfter) {
			ended++
		}
	}
	if ended > 0 {
		found = finding.Note.Say("%s has %s that expired, next to %d valid",
			b.Where, prose.Plural(ended, "certificate"), len(all)-ended).At(b.Where)
	}
	return ends, found
}

// parse reads all certificates of a text. Text between them is a comment; another block is none of ours.
func parse(text []byte) (out []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}

// judge reports that a certificate has ended, or will soon.
func (n end) judge(now time.Time) finding.Finding {
	const renew = "renew it, and find out why it was not renewed: automatic renewal happens after two thirds of the validity"
	switch left := n.at.Sub(now); {
	case left <= 0:
		return finding.Problem.Say("%s: %s expired on %s", n.where, n.what, day(n.at)).At(n.where).
			Because("every client that verifies it refuses the connection").Advise(renew)
	case left < min(notice, n.lasts/6):
		return finding.Warning.Say("%s: %s expires in %s, on %s", n.where, n.what, span(left), day(n.at)).At(n.where).
			Because("from then on every client that verifies it refuses the connection").Advise(renew)
	}
	return finding.Finding{}
}

// day is a moment for people, to the minute.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

// span is a length of time for people: days, or hours and minutes for less than two.
func span(d time.Duration) string {
	if days := int(d.Hours() / 24); days >= 2 {
		return prose.Plural(days, "day")
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}
