// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

// Files names what is kept current. Cert and Key go together; CA may be given with them or alone.
// Each file is PEM: Cert holds the leaf first and then its intermediates.
type Files struct {
	Cert string
	Key  string
	CA   string
	// Extra is a file of another format that belongs with the others, such as a list of revoked identities; "" for none. Snapshot.Extra is what it holds, and
	// Options.Check judges it.
	Extra string
}

// Validate reports a combination that cannot work as one sentence.
func (f Files) Validate() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return fmt.Errorf("certificate file %q and key file %q must be given together", f.Cert, f.Key)
	case f.Cert == "" && f.CA == "":
		return errors.New("neither a key pair nor a CA bundle is given")
	}
	return nil
}

func (f Files) paths() []string {
	var out []string
	for _, p := range []string{f.Cert, f.Key, f.CA, f.Extra} {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// Snapshot is one complete, verified set. It is never modified after it was made.
type Snapshot struct {
	// Certificate is nil when no key pair is configured; its Leaf is set.
	Certificate *tls.Certificate
	// CAs is nil when no CA bundle is configured.
	CAs *x509.CertPool
	// Bundle is what CAs was made of, in the order of the file.
	Bundle []*x509.Certificate
	// Extra is what Files.Extra holds.
	Extra []byte

	raw contents
}

// NotAfter is when the leaf certificate expires; the zero time without a key pair.
func (s *Snapshot) NotAfter() time.Time {
	if s.Certificate == nil {
		return time.Time{}
	}
	return s.Certificate.Leaf.NotAfter
}

// Expired tells whether the leaf in use has run out, and when it did or will.
func (r *Reloader) Expired() (notAfter time.Time, expired bool) {
	end := r.Current().NotAfter()
	return end, !end.IsZero() && r.now().After(end)
}

// CANotAfter is when the last certificate of the CA bundle expires, which is when nobody is trusted any more; the zero time without a
// bundle. The first one to expire says nothing: during a rotation the old CA is meant to run out.
func (s *Snapshot) CANotAfter() time.Time {
	var last time.Time
	for _, ca := range s.Bundle {
		if ca.NotAfter.After(last) {
			last = ca.NotAfter
		}
	}
	return last
}

// contents are the files' bytes as they were read.
type contents struct{ cert, key, ca, extra []byte }

func (c contents) equal(o contents) bool {
	return bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key) && bytes.Equal(c.ca, o.ca) && bytes.Equal(c.extra, o.extra)
}

// readAttempts bounds how often a set that changes under our hands is read again at once.
const readAttempts = 3

var errUnstable = errors.New("the files are being replaced right now")

// read returns the files' bytes as of one moment: two reads in a row must agree, since a swap between
// two files would give a set that never existed.
func (f Files) read() (contents, error) {
	last, err := f.readOnce()
	if err != nil {
		return contents{}, err
	}
	for range readAttempts {
		next, err := f.readOnce()
		if err != nil {
			return contents{}, err
		}
		if next.equal(last) {
			return next, nil
		}
		last = next
	}
	return contents{}, errUnstable
}

func (f Files) readOnce() (contents, error) {
	var out contents
	for _, file := range []struct {
		path string
		into *[]byte
	}{{f.Cert, &out.cert}, {f.Key, &out.key}, {f.CA, &out.ca}, {f.Extra, &out.extra}} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return contents{}, err // names the file already
		}
		*file.into = data
	}
	return out, nil
}

// parse turns bytes into a verified snapshot.
func (f Files) parse(c contents) (*Snapshot, error) {
	out := &Snapshot{Extra: c.extra, raw: c}
	if f.Cert != "" {
		if _, err := certificates(c.cert); err != nil {
			return nil, fmt.Errorf("certificate file %s: %w", f.Cert, err)
		}
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		out.Certificate = &pair
	}
	if f.CA != "" {
		cas, err := certificates(c.ca)
		if err != nil {
			return nil, fmt.Errorf("CA bundle %s: %w", f.CA, err)
		}
		out.CAs, out.Bundle = x509.NewCertPool(), cas
		for _, ca := range cas {
			out.CAs.AddCert(ca)
		}
	}
	return out, nil
}

// certificates parses PEM certificates strictly. The standard library's helpers skip what they cannot
// read, which would turn a half-written bundle into a smaller one.
func certificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // a key in the same file is common and no harm
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	switch {
	case bytes.Contains(data, []byte("-----BEGIN")):
		return nil, errors.New("the last PEM block is incomplete")
	case len(out) == 0:
		return nil, errors.New("no PEM certificate found")
	}
	return out, nil
}
