// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Bounds of what is held in memory, far above what a writer makes.
const (
	mostLine     = 64 << 20
	mostPageKeys = 10 * pageKeys
)

// A Page is some keys of a stream, in their order, and the leases that were told with them.
type Page struct {
	Leases []Lease
	KVs    []KV
}

// A Reader reads a stream and trusts nothing in it: a page is handed out when its sum was right.
type Reader struct {
	from         *bufio.Reader
	sum          hash.Hash
	at           int // number of the line
	keys, leases int64
	last         []byte // the key before
	header       Header
	ended        bool
}

// NewReader reads the first line. What is wrong with the stream is a [*FormatError].
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, 64<<10), sum: sha256.New()}
	if magic, _ := r.from.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return nil, &FormatError{Text: "the input is compressed by gzip: unpack it first"}
	}
	data, err := r.line()
	if errors.Is(err, io.EOF) {
		return nil, &FormatError{Text: "the input is empty: it must be what 'kubectl mooring etcd export' has written"}
	}
	if err != nil {
		return nil, err
	}
	var lenient struct { // a later version may have more in its header
		Header *struct {
			Version int `json:"version"`
		} `json:"mooringTenantStream"`
	}
	if json.Unmarshal(data, &lenient) != nil || lenient.Header == nil {
		return nil, r.wrong("this is not what 'kubectl mooring etcd export' writes")
	}
	if lenient.Header.Version != version {
		return nil, r.wrong("the stream is of version %d, and this program reads version %d: use the one that wrote it, or a newer one", lenient.Header.Version, version)
	}
	l, err := decode(data)
	if err != nil || l.Header == nil {
		return nil, r.wrong("this is not what 'kubectl mooring etcd export' writes")
	}
	r.header = *l.Header
	r.sum.Write(data)
	return r, nil
}

// Header is the first line.
func (r *Reader) Header() Header { return r.header }

// Keys is the number of keys in the pages so far.
func (r *Reader) Keys() int64 { return r.keys }

// Next returns the next page. io.EOF means that the stream has ended as it must, and that its sum was right.
func (r *Reader) Next() (*Page, error) {
	if r.ended {
		return nil, io.EOF
	}
	page := &Page{}
	for volume := 0; ; {
		data, err := r.line()
		if errors.Is(err, io.EOF) {
			return nil, &FormatError{Text: fmt.Sprintf("the stream ends behind line %d without its last line: it was truncated", r.at)}
		}
		if err != nil {
			return nil, err
		}
		l, err := decode(data)
		if err != nil {
			return nil, r.wrong("%v", err)
		}
		switch {
		case l.Lease != nil:
			err = r.lease(page, *l.Lease)
		case l.KV != nil:
			volume += len(data)
			if len(page.KVs) == mostPageKeys || volume > mostLine {
				return nil, r.wrong("the page is larger than any that is written")
			}
			err = r.kv(page, *l.KV)
		case l.Page != nil:
			if err := r.check(l.Page.Keys, l.Page.SHA256); err != nil {
				return nil, err
			}
			r.sum.Write(data)
			return page, nil
		case l.End != nil:
			return nil, r.end(page, *l.End)
		default:
			err = r.wrong("a second stream begins here: give one at a time")
		}
		if err != nil {
			return nil, err
		}
		r.sum.Write(data)
	}
}

func (r *Reader) lease(page *Page, l Lease) error {
	r.leases++
	if l.ID != r.leases || l.TTL <= 0 {
		return r.wrong("it is not a line of a stream")
	}
	page.Leases = append(page.Leases, l)
	return nil
}

func (r *Reader) kv(page *Page, kv KV) error {
	switch {
	case len(kv.Key) == 0:
		return r.wrong("the key is empty")
	case bytes.Compare(kv.Key, r.last) <= 0:
		return r.wrong("the key is not behind the one before it")
	case kv.Lease < 0 || kv.Lease > r.leases:
		return r.wrong("the key is attached to lease %d, which the stream does not define", kv.Lease)
	}
	r.last = kv.Key
	r.keys++
	page.KVs = append(page.KVs, kv)
	return nil
}

func (r *Reader) check(keys int64, digest string) error {
	if keys != r.keys || digest != hex.EncodeToString(r.sum.Sum(nil)) {
		return r.wrong("its sum is not that of the lines before it: the stream was changed or damaged")
	}
	return nil
}

// end returns io.EOF if the stream may end here.
func (r *Reader) end(page *Page, m mark) error {
	if err := r.check(m.Keys, m.SHA256); err != nil {
		return err
	}
	if m.Leases != r.leases || len(page.KVs) > 0 {
		return r.wrong("its sum is not that of the lines before it: the stream was changed or damaged")
	}
	r.ended = true
	if _, err := r.line(); err == nil {
		return r.wrong("something follows the end of the stream")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return io.EOF
}

// line reads one line with its end.
func (r *Reader) line() ([]byte, error) {
	var out []byte
	r.at++
	for {
		part, err := r.from.ReadSlice('\n')
		out = append(out, part...)
		switch {
		case len(out) > mostLine:
			return nil, r.wrong("it is longer than %d MiB", mostLine>>20)
		case err == nil:
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(out) == 0:
			r.at--
			return nil, io.EOF
		case errors.Is(err, io.EOF) && r.at > 1:
			return nil, r.wrong("the stream ends within this line: it was truncated")
		case errors.Is(err, io.EOF):
			return nil, r.wrong("this is not what 'kubectl mooring etcd export' writes")
		default:
			return nil, fmt.Errorf("reading the stream: %w", err)
		}
	}
}

func (r *Reader) wrong(format string, args ...any) error {
	return &FormatError{Line: r.at, Text: fmt.Sprintf(format, args...)}
}

// Verify reads a stream to its end and returns what is in it.
func Verify(from io.Reader) (Summary, error) {
	r, err := NewReader(from)
	if err != nil {
		return Summary{}, err
	}
	out := Summary{Tenant: r.header.Tenant, Revision: r.header.Revision}
	for {
		page, err := r.Next()
		if errors.Is(err, io.EOF) {
			out.Leases = r.leases
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.add(page.KVs...)
	}
}

// Summary says what is in a stream.
type Summary struct {
	Tenant   string
	Revision int64
	Keys     int64
	// Bytes is the size of keys and values.
	Bytes  int64
	Leases int64
	// Ended is the number of keys that were left out since their lease had ended meanwhile.
	Ended int64
	// Foreign is the number of keys that were left out since their lease is older than the proxy that was read through: a tenant cannot read
	// such a lease, and without it the keys would stay for ever. ForeignKeys are the first of them. An export of the core itself has them.
	Foreign     int64
	ForeignKeys []string
}

// mostNamed is how many keys are named that were left out.
const mostNamed = 10

func (s *Summary) add(kvs ...KV) {
	for _, kv := range kvs {
		s.Keys++
		s.Bytes += int64(len(kv.Key) + len(kv.Value))
	}
}
