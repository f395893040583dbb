// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// version is the version of the stream that this package writes, and the only one that it reads.
const version = 1

// Bounds of a page, so that it fits one transaction: etcd takes 128 operations and 1.5 MiB in one request by default (server/embed/config.go). One
// key alone may be larger.
const (
	pageKeys  = 100
	pageBytes = 1 << 20
)

// Header is the first line of a stream.
type Header struct {
	Version int `json:"version"`
	// Tenant is the name under which the stream was made. It is for people.
	Tenant string `json:"tenant"`
	// Revision is the store's at which all keys were read.
	Revision int64 `json:"revision"`
}

// Lease is a lease of the tenant's.
type Lease struct {
	// ID is a number within the stream, from 1.
	ID int64 `json:"id"`
	// TTL is how long it was granted for, in seconds.
	TTL int64 `json:"ttl"`
}

// KV is a key with its value.
type KV struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	// Lease is the ID of a Lease that was told before, 0 for none.
	Lease int64 `json:"lease,omitempty"`
}

// mark is what a page or the whole ends with.
type mark struct {
	Keys   int64  `json:"keys"`
	Leases int64  `json:"leases,omitempty"`
	SHA256 string `json:"sha256"`
}

// line is any line of a stream; one field is set.
type line struct {
	Header *Header `json:"mooringTenantStream,omitempty"`
	Lease  *Lease  `json:"lease,omitempty"`
	KV     *KV     `json:"kv,omitempty"`
	Page   *mark   `json:"page,omitempty"`
	End    *mark   `json:"end,omitempty"`
}

// writer writes a stream.
type writer struct {
	to             io.Writer
	sum            hash.Hash
	keys, leases   int64
	inPage, volume int
}

func newWriter(to io.Writer, header Header) (*writer, error) {
	w := &writer{to: to, sum: sha256.New()}
	header.Version = version
	return w, w.line(line{Header: &header})
}

func (w *writer) line(l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the stream: %w", err)
	}
	data = append(data, '\n')
	w.sum.Write(data)
	if _, err := w.to.Write(data); err != nil {
		return fmt.Errorf("writing the stream: %w", err)
	}
	return nil
}

// lease tells of a lease; its ID is the number of leases so far.
func (w *writer) lease(ttl int64) (id int64, err error) {
	w.leases++
	return w.leases, w.line(line{Lease: &Lease{ID: w.leases, TTL: ttl}})
}

// kv tells of a key, behind the end of a page if that is full.
func (w *writer) kv(kv KV) error {
	size := len(kv.Key) + len(kv.Value)
	if w.inPage > 0 && (w.inPage == pageKeys || w.volume+size > pageBytes) {
		if err := w.endPage(); err != nil {
			return err
		}
	}
	w.keys++
	w.inPage++
	w.volume += size
	return w.line(line{KV: &kv})
}

func (w *writer) endPage() error {
	w.inPage, w.volume = 0, 0
	return w.line(line{Page: &mark{Keys: w.keys, SHA256: w.digest()}})
}

// end writes the last lines.
func (w *writer) end() error {
	if w.inPage > 0 {
		if err := w.endPage(); err != nil {
			return err
		}
	}
	return w.line(line{End: &mark{Keys: w.keys, Leases: w.leases, SHA256: w.digest()}})
}

func (w *writer) digest() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// FormatError says what is wrong with a stream.
type FormatError struct {
	// Line is where, from 1; 0 for the whole.
	Line int
	Text string
}

// Error is one sentence.
func (e *FormatError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

// decode reads one line, which must be of the form that this version writes.
func decode(data []byte) (line, error) {
	var l line
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return l, errors.New("it is not a line of a stream")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return l, errors.New("there is something behind the line's object")
	}
	set := 0
	for _, there := range []bool{l.Header != nil, l.Lease != nil, l.KV != nil, l.Page != nil, l.End != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return l, errors.New("it is not a line of a stream")
	}
	return l, nil
}
