// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
)

// stream is a small one with everything in it.
func stream(tb testing.TB) string {
	tb.Helper()
	var out bytes.Buffer
	w := must.Get(newWriter(&out, Header{Tenant: "team-a", Revision: 4711})).Or(tb)
	lease := must.Get(w.lease(3600)).Or(tb)
	for i := range pageKeys + 5 {
		kv := KV{Key: fmt.Appendf(nil, "/key/%03d", i), Value: []byte("value")}
		if i%2 == 0 {
			kv.Lease = lease
		}
		must.Do(tb, w.kv(kv))
	}
	must.Do(tb, w.end())
	return out.String()
}

// The form of a stream is a contract with those that people keep. MUST NOT change but with the version.
func TestTheFormOfAStream(t *testing.T) {
	t.Parallel()
	const file = "testdata/version-1.stream"
	if os.Getenv("MOORING_UPDATE_STREAM") != "" {
		must.Do(t, os.WriteFile(file, []byte(stream(t)), 0o600))
	}
	want := must.Get(os.ReadFile(file)).Or(t)
	if stream(t) != string(want) {
		t.Error("the stream is not written as version 1 was")
	}
	got, err := Verify(bytes.NewReader(want))
	if err != nil || !reflect.DeepEqual(got, Summary{Tenant: "team-a", Revision: 4711, Keys: 105, Bytes: 105 * 13, Leases: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	if lines := strings.Count(string(want), "\n"); lines != 1+1+105+2+1 {
		t.Errorf("%d lines", lines)
	}
}

// An empty tenant has a stream too, and a value larger than a page has one of its own.
func TestPages(t *testing.T) {
	t.Parallel()
	for want, sizes := range map[string][]int{"[]": nil, "[1]": {7}, "[1 1 1]": {1, pageBytes + 1, 1}, "[2 1]": {pageBytes / 2, pageBytes/2 - 3, 2}} {
		var out bytes.Buffer
		w := must.Get(newWriter(&out, Header{})).Or(t)
		for i, size := range sizes {
			must.Do(t, w.kv(KV{Key: []byte{byte('a' + i)}, Value: make([]byte, size)}))
		}
		must.Do(t, w.end())
		r := must.Get(NewReader(&out)).Or(t)
		pages := []int{}
		for {
			page, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Do(t, err)
			pages = append(pages, len(page.KVs))
		}
		if fmt.Sprint(pages) != want {
			t.Errorf("%v: pages of %v, want %s", sizes, pages, want)
		}
	}
}

// Each thing that can be wrong with a stream has its sentence.
func TestWrongStreams(t *testing.T) {
	t.Parallel()
	whole := stream(t)
	lines := strings.SplitAfter(whole, "\n")
	without := func(n int) string { return strings.Join(lines[:n-1], "") + strings.Join(lines[n:], "") }
	with := func(n int, text string) string {
		return strings.Join(lines[:n-1], "") + text + "\n" + strings.Join(lines[n-1:], "")
	}
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":        {"", "the input is empty: it must be what 'kubectl mooring etcd export' has written"},
		"something else": {"apiVersion: v1\n", "line 1: this is not what 'kubectl mooring etcd export' writes"},
		"no line at all": {"{", "line 1: this is not what 'kubectl mooring etcd export' writes"},
		"gzip":           {"\x1f\x8b\x08", "the input is compressed by gzip: unpack it first"},
		"a later version": {`{"mooringTenantStream":{"version":2,"tenant":"a","color":"red"}}` + "\n",
			"line 1: the stream is of version 2, and this program reads version 1: use the one that wrote it, or a newer one"},
		"cut between lines":   {strings.Join(lines[:50], ""), "the stream ends behind line 50 without its last line: it was truncated"},
		"cut before its end":  {strings.Join(lines[:len(lines)-2], ""), "the stream ends behind line 109 without its last line: it was truncated"},
		"cut within a line":   {whole[:len(whole)/2], "line 57: the stream ends within this line: it was truncated"},
		"cut at the very end": {strings.TrimSuffix(whole, "\n"), "line 110: the stream ends within this line: it was truncated"},
		"a value changed": {strings.Replace(whole, "dmFsdWU=", "dmFsdWY=", 1),
			"line 103: its sum is not that of the lines before it: the stream was changed or damaged"},
		"a changed header":    {strings.Replace(whole, "team-a", "team-b", 1), "line 103: its sum is not that of the lines before it: the stream was changed or damaged"},
		"a key is missing":    {without(7), "line 102: its sum is not that of the lines before it: the stream was changed or damaged"},
		"a page is missing":   {without(103), "line 108: its sum is not that of the lines before it: the stream was changed or damaged"},
		"the lease's missing": {without(2), "line 2: the key is attached to lease 1, which the stream does not define"},
		"a key twice":         {with(8, strings.TrimSpace(lines[6])), "line 8: the key is not behind the one before it"},
		"an empty key":        {with(4, `{"kv":{"key":"","value":""}}`), "line 4: the key is empty"},
		"an unknown line":     {with(4, `{"comment":"x"}`), "line 4: it is not a line of a stream"},
		"two in one line":     {with(4, `{"kv":{"key":"YQ=="},"lease":{"id":1,"ttl":1}}`), "line 4: it is not a line of a stream"},
		"two objects":         {with(4, strings.TrimSpace(lines[3])+"{}"), "line 4: there is something behind the line's object"},
		"no base64":           {with(4, `{"kv":{"key":"%"}}`), "line 4: it is not a line of a stream"},
		"a wrong lease":       {with(3, `{"lease":{"id":7,"ttl":1}}`), "line 3: it is not a line of a stream"},
		"two streams":         {whole + whole, "line 111: something follows the end of the stream"},
		"a stream in another": {with(9, strings.TrimSpace(lines[0])), "line 9: a second stream begins here: give one at a time"},
		"a blank line":        {with(9, ""), "line 9: it is not a line of a stream"},
		"lines of another OS": {strings.ReplaceAll(whole, "\n", "\r\n"), "line 103: its sum is not that of the lines before it: the stream was changed or damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Verify(strings.NewReader(tt.text))
			if _, ok := errors.AsType[*FormatError](err); !ok || err.Error() != tt.want {
				t.Errorf("%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// A page is never handed out before its sum was right.
func TestDamageIsSeenBeforeThePageIsUsed(t *testing.T) {
	t.Parallel()
	whole := stream(t)
	for at := range len(whole) - 1 {
		damaged := whole[:at] + string(whole[at]^1) + whole[at+1:]
		r, err := NewReader(strings.NewReader(damaged))
		for pages := 0; err == nil; pages++ {
			var page *Page
			if page, err = r.Next(); err == nil && at < strings.Index(whole, `{"page"`) {
				t.Fatalf("a bit at %d was changed, and a page of %d keys came out", at, len(page.KVs))
			}
		}
		if errors.Is(err, io.EOF) {
			t.Fatalf("a bit at %d was changed, and the stream is whole", at)
		}
	}
}

// FuzzReader: whatever comes, the reader ends, and what it takes for whole is just what a writer writes for it.
func FuzzReader(f *testing.F) {
	f.Add([]byte(stream(f)))
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte(`{"mooringTenantStream":{"version":1,"tenant":"a","revision":1}}` + "\n" + `{"lease":{"id":1,"ttl":0}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewReader(bytes.NewReader(data))
		if err != nil {
			return
		}
		last := []byte(nil)
		for {
			page, err := r.Next()
			if err != nil {
				return
			}
			for _, kv := range page.KVs {
				if bytes.Compare(kv.Key, last) <= 0 || kv.Lease > r.leases {
					t.Fatalf("key %q behind %q", kv.Key, last)
				}
				last = kv.Key
			}
		}
	})
}
