// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"strconv"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Kind is a form of values that can be checked by looking at one value alone.
type Kind string

// The kinds. What [Parse] refuses of a value by itself is exactly what its kind does not allow; a test of package policy compares the two.
const (
	// KindText is any text.
	KindText Kind = ""
	// KindChoice is one of Form.Choices.
	KindChoice Kind = "choice"
	// KindBoolean is what strconv.ParseBool takes.
	KindBoolean Kind = "boolean"
	// KindInteger is what strconv.Atoi takes: an optional sign, digits, 64 bits.
	KindInteger Kind = "integer"
	// KindCount is a KindInteger that is not negative.
	KindCount Kind = "count"
	// KindSeconds is what strconv.ParseUint takes: digits only, 64 bits.
	KindSeconds Kind = "seconds"
	// KindPorts is a list of KindInteger with commas and without blanks.
	KindPorts Kind = "ports"
	// KindUUID is what Form.Pattern matches.
	KindUUID Kind = "uuid"
	// KindDomains is a list, with commas and without blanks, of what Form.Pattern matches, none longer than [LongestDomain].
	KindDomains Kind = "domains"
)

// Form is what may stand in an annotation, for programs: the policies of the API server are made of it. Entry.Values says the same to people.
type Form struct {
	Kind Kind
	// Choices are the values of a KindChoice, in the order in which people are told of them.
	Choices []string
	// Blank reports that an empty value counts as none.
	Blank bool
	// Pattern is the regular expression (RE2) of a KindUUID, or of each element of a KindDomains.
	Pattern string
	// From and To bound the numbers that DigitalOcean documents to take; others are sent, with a warning that ends with Doubt. Both are 0 for
	// no bounds.
	From, To int64
	Doubt    string
	// Override reports that the annotation counts only alongside [OverrideHealthCheck].
	Override bool
}

// FormOf returns the form of an annotation's values; the zero Form for text and for names that are none of [Table].
func FormOf(name string) Form {
	choice := func(values ...string) Form { return Form{Kind: KindChoice, Choices: values, Blank: true} }
	bounded := func(kind Kind, from, to int64, doubt string) Form {
		return Form{Kind: kind, From: from, To: to, Doubt: doubt}
	}
	documented := func(from, to int64) Form {
		return bounded(KindInteger, from, to, fmt.Sprintf("which DigitalOcean may refuse: it documents %d to %d", from, to))
	}
	switch name {
	case Type:
		return choice(TypeRegional, TypeRegionalNetwork)
	case Network:
		return choice(NetworkExternal, NetworkInternal)
	case NetworkStack:
		return choice(StackIPv4, StackDual)
	case SizeSlug:
		return choice(SizeSmall, SizeMedium, SizeLarge)
	case Protocol:
		return Form{Kind: KindChoice, Choices: []string{ProtocolTCP, ProtocolHTTP, ProtocolHTTPS, ProtocolHTTP2, ProtocolHTTP3}}
	case HealthCheckProtocol:
		return Form{Kind: KindChoice, Choices: []string{ProtocolTCP, ProtocolHTTP, ProtocolHTTPS}, Blank: true, Override: true}
	case HTTPPorts, TLSPorts, HTTP2Ports:
		return Form{Kind: KindPorts}
	case HTTP3Port:
		return Form{Kind: KindInteger}
	case HealthCheckPort:
		return Form{Kind: KindInteger, Override: true}
	case SizeUnit:
		return Form{
			Kind: KindCount, Blank: true, To: assumed.SizeUnitMost, Doubt: fmt.Sprintf("which DigitalOcean will refuse: it takes 1 to %d", assumed.SizeUnitMost),
		}
	case RedirectHTTPToHTTPS, EnableProxyProtocol, EnableBackendKeepalive, DisableLetsEncryptDNSRecord, Disown, LocalTargetsOnly:
		return Form{Kind: KindBoolean}
	case HTTPIdleTimeout:
		return bounded(KindSeconds, assumed.IdleTimeoutLeast, assumed.IdleTimeoutMost,
			fmt.Sprintf("which DigitalOcean will refuse: it takes %d to %d seconds", assumed.IdleTimeoutLeast, assumed.IdleTimeoutMost))
	case HealthCheckInterval, HealthCheckTimeout:
		return documented(3, 300)
	case HealthCheckUnhealthyThreshold, HealthCheckHealthyThreshold:
		return documented(2, 10)
	}
	return ownForm(name)
}

// ownForm is [FormOf] for the annotations that are Mooring's own.
func ownForm(name string) Form {
	switch name {
	case ReservedIP:
		return Form{Kind: KindChoice, Blank: true} // none at all
	case ProjectID:
		return Form{Kind: KindUUID, Blank: true, Pattern: uuidPattern}
	case CertificateDomains:
		return Form{Kind: KindDomains, Blank: true, Pattern: domainPattern}
	case TLSCipherPolicy:
		return Form{Kind: KindChoice, Choices: []string{CipherDefault, CipherStrong}, Blank: true}
	}
	return Form{}
}

// Patterns of values. A domain name is as in RFC 1123 with two labels at least, the last of which begins with a letter, so that no address
// is one; the first may be the wildcard of RFC 4592, which stands alone.
const (
	uuidPattern   = `^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`
	domainPattern = `^([*][.])?([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.])+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`
)

// LongestDomain bounds a domain name, in characters (RFC 1035, section 3.1, without the final dot).
const LongestDomain = 253

// NotSent ends the warning about a health check's number that is 0: DigitalOcean does not see it.
const NotSent = "which is not sent: DigitalOcean's own default is used"

// outside reports whether DigitalOcean does not document to take a number.
func (f Form) outside(n int64) bool { return n < f.From || n > f.To }

// Booleans are the values that count as true, and those that count as false: what Go takes for one (strconv.ParseBool).
func Booleans() (yes, no []string) {
	for _, text := range []string{"1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"} {
		if value, _ := strconv.ParseBool(text); value {
			yes = append(yes, text)
		} else {
			no = append(no, text)
		}
	}
	return yes, no
}
