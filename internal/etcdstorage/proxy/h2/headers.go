// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"golang.org/x/net/http2/hpack"
)

// onField collects a header field of the block that is being decoded.
func (t *transport) onField(f hpack.HeaderField) {
	t.fieldBytes += int(f.Size())
	if t.fieldBytes > mostHeaderBlock {
		t.tooLarge = true
		return
	}
	t.fields = append(t.fields, f)
}

// handleHeaders decodes a header block, which may come in several frames.
func (t *transport) handleHeaders(f *frame, b *Batch) error {
	part := f.payload
	if f.kind == frameHeaders {
		var err error
		if part, err = f.unpad(); err != nil {
			return err
		}
		if f.has(flagPriority) {
			if len(part) < 5 {
				return protocolError("a priority that is none")
			}
			part = part[5:]
		}
		if f.stream == 0 {
			return protocolError("HEADERS on stream 0")
		}
		t.continuedEnd = f.has(flagEndStream)
		t.continuedNum = 0
	} else if t.continued == 0 {
		return protocolError("CONTINUATION of nothing")
	}
	if f.has(flagEndHeaders) && t.continued == 0 {
		return t.decode(f.stream, part, b)
	}
	t.continued = f.stream
	t.continuedNum++
	t.continuedPart = append(t.continuedPart, part...)
	if len(t.continuedPart) > mostHeaderBlock || t.continuedNum > mostContinuation {
		return &connError{EnhanceYourCalm, "a header block that does not end"}
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	whole := t.continuedPart
	t.continued, t.continuedPart = 0, nil
	return t.decode(f.stream, whole, b)
}

// decode decodes a whole block; the decoder's table must see each of them, whatever becomes of the stream.
func (t *transport) decode(id uint32, block []byte, b *Batch) error {
	t.fields, t.fieldBytes, t.tooLarge = t.fields[:0], 0, false
	if _, err := t.dec.Write(block); err != nil {
		return &connError{CompressionError, "a header block that cannot be decoded"}
	}
	if err := t.dec.Close(); err != nil {
		return &connError{CompressionError, "a header block that is not complete"}
	}
	if t.tooLarge {
		return &connError{EnhanceYourCalm, "more headers than allowed"}
	}
	return t.role.onHeaders(id, t.fields, t.continuedEnd, b)
}

// field encodes one header field into the current block. Fields that differ from call to call are never indexed: they would push the others out
// of the peer's table.
func (t *transport) field(name, value string, unique bool) {
	_ = t.enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: unique}) // the buffer takes everything
}

// writeBlock puts the encoded block into out and begins another.
func (t *transport) writeBlock(id uint32, end bool) {
	block := t.block.b
	var flags byte
	if end {
		flags = flagEndStream
	}
	kind := byte(frameHeaders)
	for {
		part := block[:min(len(block), t.peer.frame)]
		block = block[len(part):]
		if len(block) == 0 {
			flags |= flagEndHeaders
		}
		t.out = appendFrameHeader(t.out, len(part), kind, flags, id)
		t.out = append(t.out, part...)
		if len(block) == 0 {
			break
		}
		kind, flags = frameContinuation, 0
	}
	t.block.b = t.block.b[:0]
}
