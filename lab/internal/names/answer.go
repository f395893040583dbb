// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"errors"
	"fmt"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// ttl is CoreDNS' default for Services, in seconds.
	ttl = 5
	// plainSize is what a client takes by UDP that says nothing of it (RFC 1035, 4.2.1); minSize and maxSize bound what one may say (RFC 6891, 6.2.3).
	plainSize = 512
	maxSize   = 4096
)

// errNotAQuestion says that a message is none that can be answered at all.
var errNotAQuestion = errors.New("the message is no question")

// answer returns the answer to a question as it goes over the wire, of at most limit bytes: what is longer is marked as cut off, so that the client asks
// again by TCP. A limit of 0 means as many as the client takes by UDP.
func (z Zone) answer(question []byte, limit int) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil || header.Response {
		return nil, errNotAQuestion
	}
	asked, err := parser.Question()
	if err != nil {
		return nil, errNotAQuestion
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, OpCode: header.OpCode, Authoritative: true,
			RecursionDesired: header.RecursionDesired,
			// Without it an empty answer is taken for that of a server which knows nothing (Go's resolver, "lame referral").
			RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{asked},
	}
	size, edns := clientSize(&parser)
	if edns {
		var opt dnsmessage.Resource
		_ = opt.Header.SetEDNS0(maxSize, dnsmessage.RCodeSuccess, false)
		opt.Body = &dnsmessage.OPTResource{}
		reply.Additionals = append(reply.Additionals, opt)
	}
	if limit == 0 {
		limit = size
	}
	if header.OpCode != 0 || asked.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeNotImplemented
	} else {
		reply.RCode, reply.Answers = z.records(asked)
	}
	return pack(reply, limit)
}

// clientSize is how many bytes the client takes by UDP, and whether it speaks EDNS(0).
func clientSize(parser *dnsmessage.Parser) (size int, edns bool) {
	if errors.Join(parser.SkipAllQuestions(), parser.SkipAllAnswers(), parser.SkipAllAuthorities()) != nil {
		return plainSize, false
	}
	for {
		header, err := parser.AdditionalHeader()
		if err != nil {
			return plainSize, false
		}
		if header.Type == dnsmessage.TypeOPT {
			return min(max(int(header.Class), plainSize), maxSize), true
		}
		if parser.SkipAdditional() != nil {
			return plainSize, false
		}
	}
}

// records are the answers to one question.
func (z Zone) records(asked dnsmessage.Question) (dnsmessage.RCode, []dnsmessage.Resource) {
	record, ok := z.Lookup(asked.Name.String())
	if !ok {
		return dnsmessage.RCodeNameError, nil
	}
	var answers []dnsmessage.Resource
	add := func(kind dnsmessage.Type, body dnsmessage.ResourceBody) {
		answers = append(answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: asked.Name, Type: kind, Class: dnsmessage.ClassINET, TTL: ttl}, Body: body,
		})
	}
	wants := func(kind dnsmessage.Type) bool { return asked.Type == kind || asked.Type == dnsmessage.TypeALL }
	if record.Alias != "" {
		if alias, err := dnsmessage.NewName(record.Alias); err == nil {
			add(dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: alias})
		}
		return dnsmessage.RCodeSuccess, answers
	}
	if wants(dnsmessage.TypeA) {
		for _, address := range record.Addresses {
			add(dnsmessage.TypeA, &dnsmessage.AResource{A: address.As4()})
		}
	}
	if wants(dnsmessage.TypeSRV) {
		for _, target := range record.Targets {
			if name, err := dnsmessage.NewName(target.Name); err == nil {
				add(dnsmessage.TypeSRV, &dnsmessage.SRVResource{Priority: 0, Weight: 1, Port: target.Port, Target: name})
			}
		}
	}
	return dnsmessage.RCodeSuccess, answers
}

// pack encodes a reply, without its answers if it were too long with them.
func pack(reply dnsmessage.Message, limit int) ([]byte, error) {
	wire, err := reply.Pack()
	if err == nil && len(wire) > limit {
		reply.Answers, reply.Truncated = nil, true
		wire, err = reply.Pack()
	}
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return wire, nil
}
