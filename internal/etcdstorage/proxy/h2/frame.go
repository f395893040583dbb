// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"fmt"
)

// Frame types (RFC 9113, section 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9
)

// Frame flags.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Settings (RFC 9113, section 6.5.2).
const (
	settingHeaderTableSize   = 0x1
	settingEnablePush        = 0x2
	settingMaxStreams        = 0x3
	settingInitialWindow     = 0x4
	settingMaxFrameSize      = 0x5
	settingMaxHeaderListSize = 0x6
)

// ErrorCode is an HTTP/2 error code (RFC 9113, section 7).
type ErrorCode uint32

// The error codes that are used here.
const (
	NoError            ErrorCode = 0x0
	ProtocolError      ErrorCode = 0x1
	InternalError      ErrorCode = 0x2
	FlowControlError   ErrorCode = 0x3
	StreamClosed       ErrorCode = 0x5
	FrameSizeError     ErrorCode = 0x6
	RefusedStream      ErrorCode = 0x7
	Cancel             ErrorCode = 0x8
	CompressionError   ErrorCode = 0x9
	EnhanceYourCalm    ErrorCode = 0xb
	InadequateSecurity ErrorCode = 0xc
)

const (
	preface          = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHeaderLen   = 9
	defaultWindow    = 65535
	defaultMaxFrame  = 16384
	largestMaxFrame  = 1<<24 - 1
	largestWindow    = 1<<31 - 1
	largestStreamID  = 1<<31 - 1
	settingLen       = 6
	pingLen          = 8
	messageHeaderLen = 5 // of a gRPC message: compressed flag, length
)

// connError ends a connection, with a GOAWAY that carries the code.
type connError struct {
	code   ErrorCode
	reason string
}

func (e *connError) Error() string {
	return fmt.Sprintf("HTTP/2 error %d: %s", e.code, e.reason)
}

func protocolError(reason string) error { return &connError{ProtocolError, reason} }

// frame is a frame as it lies in the read buffer.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// unpad returns the payload without padding.
func (f *frame) unpad() ([]byte, error) {
	if !f.has(flagPadded) {
		return f.payload, nil
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return nil, protocolError("the padding is longer than its frame")
	}
	return f.payload[1 : len(f.payload)-int(f.payload[0])], nil
}

// parseFrame cuts the first frame off data; ok is false while it is not complete. The payload is at most maxFrame.
func parseFrame(data []byte, maxFrame int) (f frame, rest []byte, ok bool, err error) {
	if len(data) < frameHeaderLen {
		return frame{}, data, false, nil
	}
	length := int(data[0])<<16 | int(data[1])<<8 | int(data[2])
	if length > maxFrame {
		return frame{}, data, false, &connError{FrameSizeError, "a frame is larger than allowed"}
	}
	if len(data) < frameHeaderLen+length {
		return frame{}, data, false, nil
	}
	f = frame{
		kind: data[3], flags: data[4], stream: binary.BigEndian.Uint32(data[5:]) & largestStreamID,
		payload: data[frameHeaderLen : frameHeaderLen+length : frameHeaderLen+length],
	}
	return f, data[frameHeaderLen+length:], true, nil
}

func appendFrameHeader(dst []byte, length int, kind, flags byte, stream uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), kind, flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendSettings(dst []byte, settings ...[2]uint32) []byte {
	dst = appendFrameHeader(dst, settingLen*len(settings), frameSettings, 0, 0)
	for _, s := range settings {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s[0]))
		dst = binary.BigEndian.AppendUint32(dst, s[1])
	}
	return dst
}

func appendWindowUpdate(dst []byte, stream, increment uint32) []byte {
	dst = appendFrameHeader(dst, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, increment)
}

func appendReset(dst []byte, stream uint32, code ErrorCode) []byte {
	dst = appendFrameHeader(dst, 4, frameReset, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

func appendGoAway(dst []byte, last uint32, code ErrorCode, debug string) []byte {
	dst = appendFrameHeader(dst, 8+len(debug), frameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

func appendPing(dst []byte, flags byte, data [pingLen]byte) []byte {
	return append(appendFrameHeader(dst, pingLen, framePing, flags, 0), data[:]...)
}

// appendMessageHeader begins a gRPC message that is not compressed.
func appendMessageHeader(dst []byte, length int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(length))
}
