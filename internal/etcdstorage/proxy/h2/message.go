// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

// Status is how a call ended: the zero value is OK.
type Status struct { //nolint:errname // it is also the status OK
	Code    codes.Code
	Message string
	// Unprocessed is set by the client side when the core has certainly not begun with the call, so that it may be made again.
	Unprocessed bool
	// Answered is set by the client side when the core itself has said how the call ended. Otherwise it may have done what
	// it was asked for, or still be doing it.
	Answered bool
	// Unread is set by the client side to the bytes of a response that the core has made and nobody has taken.
	Unread int64
}

// OK tells whether the call succeeded.
func (s Status) OK() bool { return s.Code == codes.OK }

// Error implements error.
func (s Status) Error() string { return fmt.Sprintf("%s: %s", s.Code, s.Message) }

// assembler puts gRPC messages together from the payloads of DATA frames.
type assembler struct {
	head    [messageHeaderLen]byte
	headLen int
	// trusted tells that the peer does not lie about lengths, and that it sends what is larger than smallAnswer only when it may.
	trusted bool
	room    int  // bytes that the body begins with, for who rewrites it where it is
	need    int  // of the body, once the head is complete, room included
	body    *Buf // what there is of it
}

// size is how many bytes a message takes of which not all is there yet; 0 if that is not known.
func (a *assembler) size() int {
	if a.headLen < messageHeaderLen {
		return 0
	}
	return a.need - a.room
}

// empty tells whether no part of a message is held.
func (a *assembler) empty() bool { return a.headLen == 0 }

// held is how many bytes are held.
func (a *assembler) held() int {
	if a.body == nil {
		return 0
	}
	return cap(a.body.B)
}

// next takes the first message from p. ok is false when p is used up. message is valid until own is released, or, when own is nil, as long as p.
// A message that is compressed or larger than limit is an error.
func (a *assembler) next(p []byte, limit int) (message []byte, own *Buf, rest []byte, ok bool, failure *Status) {
	if a.headLen == 0 && len(p) >= messageHeaderLen {
		length, failure := messageLength(p, limit)
		if failure != nil {
			return nil, nil, nil, false, failure
		}
		if len(p) >= messageHeaderLen+length {
			return p[messageHeaderLen : messageHeaderLen+length], nil, p[messageHeaderLen+length:], true, nil
		}
	}
	if a.headLen < messageHeaderLen {
		n := copy(a.head[a.headLen:], p)
		a.headLen += n
		p = p[n:]
		if a.headLen < messageHeaderLen {
			return nil, nil, nil, false, nil
		}
		length, failure := messageLength(a.head[:], limit)
		if failure != nil {
			return nil, nil, nil, false, failure
		}
		a.need = a.room + length
		// The length is only a promise, unless it is the core's: room grows with what comes.
		room := a.need
		switch {
		case !a.trusted:
			room = min(room, max(len(p), 4*defaultMaxFrame))
		case length > smallAnswer:
			room = a.room + smallAnswer // the rest comes when there is room in the budget
		}
		a.body = GetBuf(room)
		a.body.B = a.body.B[:a.room]
	}
	n := min(a.need-len(a.body.B), len(p))
	if a.trusted && cap(a.body.B)-len(a.body.B) < n {
		a.body.grow(a.need)
	} else {
		a.body.reserve(n)
	}
	a.body.B = append(a.body.B, p[:n]...)
	if len(a.body.B) < a.need {
		return nil, nil, nil, false, nil
	}
	own, a.body, a.headLen = a.body, nil, 0
	return own.B[a.room:], own, p[n:], true, nil
}

// drop gives up what is held.
func (a *assembler) drop() {
	a.body.Release()
	a.body, a.headLen = nil, 0
}

// messageLength reads the head of a message.
func messageLength(head []byte, limit int) (int, *Status) {
	length := int(head[1])<<24 | int(head[2])<<16 | int(head[3])<<8 | int(head[4])
	switch {
	case head[0] == 1:
		return 0, &Status{Code: codes.Internal, Message: "grpc: compressed flag set with identity or empty encoding"}
	case head[0] != 0:
		return 0, &Status{Code: codes.Internal, Message: fmt.Sprintf("grpc: received unexpected payload format %d", head[0])}
	case length > limit:
		return 0, &Status{Code: codes.ResourceExhausted, Message: fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", length, limit)}
	}
	return length, nil
}

const hexDigits = "0123456789ABCDEF"

// encodeMessage makes a text fit for the grpc-message trailer (gRPC over HTTP/2, "Status-Message").
func encodeMessage(text string) string {
	plain := true
	for i := range len(text) {
		plain = plain && text[i] >= ' ' && text[i] <= '~' && text[i] != '%'
	}
	if plain {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			out = append(out, c)
		} else {
			out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(out)
}

// decodeMessage is encodeMessage's inverse; what is not well-formed stays as it is.
func decodeMessage(text string) string {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := unhex(text[i+1]), unhex(text[i+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
