// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func mustPrefix(t *testing.T, text string) tenancy.Prefix {
	t.Helper()
	p := must.Get(tenancy.ParsePrefix(text)).Or(t)
	return p
}

func TestParsePrefix(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"/a/", "/team-a/", "/registry/x.y/", "/.etcd.mooring.dev2/", "/.etcd/", "/" + strings.Repeat("a", 510) + "/", "/ü/"} {
		p, err := tenancy.ParsePrefix(text)
		if err != nil || p.String() != text {
			t.Errorf("ParsePrefix(%q) = %q, %v", text, p, err)
		}
		if want := strings.TrimSuffix(text, "/") + "0"; p.End() != want {
			t.Errorf("the end of %q is %q, want %q", text, p.End(), want)
		}
	}
	for text, sentence := range map[string]string{
		"":                                   `the prefix is empty: it must begin and end with "/", for example /team-a/`,
		"/":                                  `prefix "/" would be the whole of the core: give it a name, for example /team-a/`,
		"team-a/":                            `prefix "team-a/" must begin and end with "/", for example /team-a/`,
		"/team-a":                            `prefix "/team-a" must begin and end with "/", for example /team-a/`,
		"//":                                 `prefix "//" has an empty element: write each "/" once, for example /team-a/`,
		"/a//b/":                             `prefix "/a//b/" has an empty element: write each "/" once, for example /team-a/`,
		"/.etcd.mooring.dev/":                `prefix "/.etcd.mooring.dev/" overlaps "/.etcd.mooring.dev/", which belongs to the proxies themselves: choose another one, for example /team-a/`,
		"/.etcd.mooring.dev/tenants/":        `prefix "/.etcd.mooring.dev/tenants/" overlaps "/.etcd.mooring.dev/", which belongs to the proxies themselves: choose another one, for example /team-a/`,
		"/a b/":                              `prefix "/a b/" holds white space, a control character or bytes that are not UTF-8: use letters, digits, "-" and "."`,
		"/a\x00/":                            `prefix "/a\x00/" holds white space, a control character or bytes that are not UTF-8: use letters, digits, "-" and "."`,
		"/a\xff/":                            `prefix "/a\xff/" holds white space, a control character or bytes that are not UTF-8: use letters, digits, "-" and "."`,
		"/" + strings.Repeat("a", 511) + "/": `the prefix is 513 bytes long: at most 512 are allowed`,
	} {
		p, err := tenancy.ParsePrefix(text)
		if err == nil || err.Error() != sentence || !p.IsZero() {
			t.Errorf("ParsePrefix(%q) = %q, %v\nwant %s", text, p, err, sentence)
		}
	}
}

func TestParseSystemPrefix(t *testing.T) {
	t.Parallel()
	p, err := tenancy.ParseSystemPrefix(tenancy.DefaultSystemPrefix)
	if err != nil || p.String() != tenancy.DefaultSystemPrefix {
		t.Fatalf("ParseSystemPrefix = %q, %v", p, err)
	}
	if _, err := tenancy.ParseSystemPrefix("/x"); err == nil || err.Error() != `system prefix "/x" must begin and end with "/", for example /team-a/` {
		t.Errorf("ParseSystemPrefix(/x): %v", err)
	}
	for text, overlaps := range map[string]bool{"/a/": false, "/.etcd.mooring.de/": false} {
		if got := p.Overlaps(mustPrefix(t, text)); got != overlaps {
			t.Errorf("%s overlaps the system's: %v", text, got)
		}
	}
	a, b, c := mustPrefix(t, "/a/"), mustPrefix(t, "/a/b/"), mustPrefix(t, "/ab/")
	if !a.Overlaps(b) || !b.Overlaps(a) || !a.Overlaps(a) || a.Overlaps(c) || c.Overlaps(a) {
		t.Error("only /a/ and /a/b/ overlap")
	}
	if !a.Overlaps(tenancy.Prefix{}) {
		t.Error("nobody's prefix must not pass for a neighbor")
	}
}

// find is what etcd finds for a range among keys: the meaning that rewriting must keep.
func find(keys [][]byte, key, end []byte) (found []string) {
	for _, k := range keys {
		switch {
		case len(end) == 0 && bytes.Equal(k, key),
			len(end) == 1 && end[0] == 0 && bytes.Compare(k, key) >= 0,
			len(end) != 0 && !bytes.Equal(end, []byte{0}) && bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0:
			found = append(found, string(k))
		}
	}
	return found
}

// TestRangeFindsTheSame is the whole claim: among keys of three tenants a rewritten range finds what the range finds among the tenant's own.
func TestRangeFindsTheSame(t *testing.T) {
	t.Parallel()
	p := mustPrefix(t, "/m/")
	few := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, '/', '0', 'm', 0xff}), 1, 3)
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		mine := rapid.SliceOfN(few, 0, 8).Draw(t, "keys")
		core := [][]byte{[]byte("/l0/x"), []byte("/m"), []byte("/m/"), []byte("/m0"), []byte("/m00"), []byte("/n/x"), {0}, {0xff, 0xff}}
		for _, k := range mine {
			core = append(core, []byte(p.Key(string(k))))
		}
		key := few.Draw(t, "key")
		end := rapid.OneOf(few, rapid.Just([]byte(nil)), rapid.Just([]byte{0})).Draw(t, "end")
		coreKey, coreEnd := p.Range(string(key), string(end))
		head, tail := p.EndParts(end)
		if head+string(tail) != coreEnd {
			t.Fatalf("EndParts(%q) = %q, %q, and Range says %q", end, head, tail, coreEnd)
		}
		if !p.ContainsRange([]byte(coreKey), []byte(coreEnd)) {
			t.Fatalf("[%q, %q) is not inside", coreKey, coreEnd)
		}
		want := find(mine, key, end)
		got := find(core, []byte(coreKey), []byte(coreEnd))
		if len(got) != len(want) {
			t.Fatalf("found %q, want %q", got, want)
		}
		for i, k := range got {
			visible, err := p.Strip([]byte(k))
			if err != nil || string(visible) != want[i] {
				t.Fatalf("found %q, want %q: %v", got, want, err)
			}
		}
	})
}

// TestContainsRangeJudgesAnyRange: what ContainsRange calls contained finds nothing of others, however the range came to be.
func TestContainsRangeJudgesAnyRange(t *testing.T) {
	t.Parallel()
	p := mustPrefix(t, "/m/")
	others := [][]byte{[]byte("/l0/x"), []byte("/m"), []byte("/m/"), []byte("/m0"), []byte("/m00"), []byte("/n/x"), {0}, {0xff, 0xff}, []byte("/m.")}
	piece := rapid.SampledFrom([]string{"/", "m", "/m/", "/m0", "0", "\x00", "\xff", "a", ""})
	text := rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), ""))
	})
	contained := 0
	cases.CheckTimes(t, 2000, 2000, 20_000, func(t *rapid.T) {
		key, end := text.Draw(t, "key"), text.Draw(t, "end")
		if !p.ContainsRange(key, end) {
			return
		}
		contained++
		if found := find(others, key, end); len(found) > 0 {
			t.Fatalf("[%q, %q) finds %q", key, end, found)
		}
	})
	if contained < 20 {
		t.Errorf("only %d ranges were contained: the generator shows nothing", contained)
	}
	for _, tc := range [][2]string{{"/m/", ""}, {"/m/", "/m0"}, {"/m", "/m/a"}, {"/m/a", "\x00"}, {"/m/a", "/m00"}, {"/m/a", "/n"}, {"", ""}, {"", "\x00"}} {
		if p.ContainsRange([]byte(tc[0]), []byte(tc[1])) {
			t.Errorf("[%q, %q) is called contained", tc[0], tc[1])
		}
	}
	if (tenancy.Prefix{}).ContainsRange([]byte("a"), nil) || (tenancy.Prefix{}).Contains([]byte("a")) {
		t.Error("nobody's prefix contains something")
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	p := mustPrefix(t, "/m/")
	for core, visible := range map[string]string{"/m/a": "a", "/m/\x00": "\x00", "/m//m/": "/m/"} {
		if got, err := p.Strip([]byte(core)); err != nil || string(got) != visible {
			t.Errorf("Strip(%q) = %q, %v", core, got, err)
		}
	}
	for _, core := range []string{"", "/", "/m", "/m/", "/m0", "/n/a", "m/a", "a/m/"} {
		if got, err := p.Strip([]byte(core)); !errors.Is(err, tenancy.ErrOutside) || got != nil {
			t.Errorf("Strip(%q) = %q, %v", core, got, err)
		}
	}
	if _, err := (tenancy.Prefix{}).Strip([]byte("a")); !errors.Is(err, tenancy.ErrOutside) {
		t.Errorf("nobody's prefix strips: %v", err)
	}
}

func FuzzParsePrefix(f *testing.F) {
	for _, text := range []string{"/a/", "/", "//", "/a//", "/.etcd.mooring.dev/", "a", "/\xff/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := tenancy.ParsePrefix(text)
		if err != nil {
			if !p.IsZero() || strings.Contains(err.Error(), "\n") {
				t.Fatalf("ParsePrefix(%q) = %q, %v", text, p, err)
			}
			return
		}
		if p.String() != text || p.End() <= text || strings.HasPrefix(p.End(), text) || !p.Contains([]byte(text+"\xff\xff")) ||
			text+strings.Repeat("\xff", 9) >= p.End() {
			t.Fatalf("ParsePrefix(%q) ends at %q", text, p.End())
		}
	})
}
