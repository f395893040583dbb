// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultSystemPrefix is where the proxies keep their own notes in the core (compact revisions). No tenant may live above, at or below it,
// whatever --system-prefix says, because another tenant's proxy may use it.
const DefaultSystemPrefix = "/.etcd.mooring.dev/"

// maxPrefix bounds a prefix in bytes: it is added to each key of each request, and etcd bounds a request to 1.5 MiB by default.
const maxPrefix = 512

// ErrOutside reports that a key of the core is not one of the tenant's. It names no key on purpose.
var ErrOutside = errors.New("a key of the core lies outside the tenant's prefix")

// Prefix is the part of the core's key space that belongs to one tenant. The zero value is nobody's: it contains no key.
type Prefix struct {
	// start is the prefix; end is the first key behind all keys that begin with it.
	start, end string
}

// ParsePrefix reads a tenant's prefix, as in --prefix: it must begin and end with "/", hold no empty element, white space or control
// character, and not overlap DefaultSystemPrefix, which "/" alone would. The error is one sentence for the operator.
func ParsePrefix(text string) (Prefix, error) {
	p, err := parsePrefix("prefix", text)
	if err != nil {
		return Prefix{}, err
	}
	if p.Overlaps(Prefix{start: DefaultSystemPrefix}) {
		return Prefix{}, fmt.Errorf("prefix %q overlaps %q, which belongs to the proxies themselves: choose another one, for example /team-a/",
			text, DefaultSystemPrefix)
	}
	return p, nil
}

// ParseSystemPrefix reads the proxies' own prefix, as in --system-prefix: the same rules, but it may be DefaultSystemPrefix.
// Whether it overlaps a tenant's is for the caller to ask.
func ParseSystemPrefix(text string) (Prefix, error) {
	return parsePrefix("system prefix", text)
}

func parsePrefix(what, text string) (Prefix, error) {
	switch {
	case text == "":
		return Prefix{}, fmt.Errorf("the %s is empty: it must begin and end with \"/\", for example /team-a/", what)
	case text == "/":
		return Prefix{}, fmt.Errorf("%s \"/\" would be the whole of the core: give it a name, for example /team-a/", what)
	case !strings.HasPrefix(text, "/") || !strings.HasSuffix(text, "/"):
		return Prefix{}, fmt.Errorf("%s %q must begin and end with \"/\", for example /team-a/", what, text)
	case strings.Contains(text, "//"):
		return Prefix{}, fmt.Errorf("%s %q has an empty element: write each \"/\" once, for example /team-a/", what, text)
	case len(text) > maxPrefix:
		return Prefix{}, fmt.Errorf("the %s is %d bytes long: at most %d are allowed", what, len(text), maxPrefix)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable):
		return Prefix{}, fmt.Errorf("%s %q holds white space, a control character or bytes that are not UTF-8: use letters, digits, \"-\" and \".\"",
			what, text)
	}
	// "0" is "/" plus one: the first key behind all keys that begin with text.
	return Prefix{start: text, end: text[:len(text)-1] + "0"}, nil
}

func unprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// String returns the prefix as it was parsed.
func (p Prefix) String() string { return p.start }

// End returns the first key of the core that is greater than all keys of the prefix: [String, End) is the tenant's whole range.
func (p Prefix) End() string { return p.end }

// IsZero tells whether p is the zero value, which contains nothing.
func (p Prefix) IsZero() bool { return p.start == "" }

// Overlaps tells whether a key could lie in both prefixes, that is whether one of them begins the other. A zero prefix overlaps everything.
func (p Prefix) Overlaps(other Prefix) bool {
	return strings.HasPrefix(p.start, other.start) || strings.HasPrefix(other.start, p.start)
}

// Key returns the core's name of a tenant's key.
func (p Prefix) Key(visible string) string { return p.start + visible }

// Range returns the core's range for a tenant's key and range_end, with etcd's meanings of range_end: empty is the one key, "\0" is all keys
// from key on (here: to the end of the prefix), everything else is the first key that is not in the range. A range_end at or below key stays
// so, because both get the same prefix: etcd answers it with nothing (package mvcc; a watch is refused).
func (p Prefix) Range(key, end string) (coreKey, coreEnd string) {
	switch end {
	case "":
		return p.Key(key), ""
	case "\x00":
		return p.Key(key), p.end
	default:
		return p.Key(key), p.Key(end)
	}
}

// EndParts returns the core's range_end for a tenant's, as Range describes, in two parts that follow each other, so that who writes it needs
// no room between. An empty one stays empty.
func (p Prefix) EndParts(visible []byte) (head string, tail []byte) {
	switch {
	case len(visible) == 0:
		return "", nil
	case len(visible) == 1 && visible[0] == 0:
		return p.end, nil
	default:
		return p.start, visible
	}
}

// Contains tells whether a key of the core belongs to the tenant: it begins with the prefix and goes on.
func (p Prefix) Contains(core []byte) bool {
	return p.start != "" && len(core) > len(p.start) && string(core[:len(p.start)]) == p.start
}

// ContainsRange tells whether all keys that the core could find for key and range_end belong to the tenant. It knows nothing of how the two
// were made, so that it can judge the code that made them. A "\0" as end means all keys of the core and is never contained.
func (p Prefix) ContainsRange(key, end []byte) bool {
	if !p.Contains(key) {
		return false
	}
	return len(end) == 0 || string(end) == p.end || (len(end) >= len(p.start) && string(end[:len(p.start)]) == p.start)
}

// Strip returns the tenant's name of a key of the core, as a part of core, or ErrOutside.
func (p Prefix) Strip(core []byte) ([]byte, error) {
	if !p.Contains(core) {
		return nil, ErrOutside
	}
	return core[len(p.start):], nil
}
