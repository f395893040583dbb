// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"testing"
)

// messageFields returns the values of all length-delimited fields of that number in a protobuf message (protobuf.dev, "Encoding"). A
// message that is cut short ends the list.
func messageFields(message []byte, number int) [][]byte {
	var values [][]byte
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return values
		}
		message = message[n:]
		size, skip := uint64(0), 0
		switch tag & 7 {
		case 0: // varint
			_, skip = binary.Uvarint(message)
		case 1: // 64 bits
			size = 8
		case 2: // length-delimited
			size, skip = binary.Uvarint(message)
		case 5: // 32 bits
			size = 4
		}
		if skip < 0 || uint64(len(message)-skip) < size {
			return values
		}
		if tag&7 == 2 && int(tag>>3) == number {
			values = append(values, message[skip:skip+int(size)])
		}
		message = message[skip+int(size):]
	}
	return values
}

func firstField(message []byte, number int) []byte {
	for _, value := range messageFields(message, number) {
		return value
	}
	return nil
}

func TestMessageFields(t *testing.T) {
	t.Parallel()
	// Field 1 is a varint of two bytes, 2 and 2 again are "ab" and "", 3 is of 32 bits, 4 of 64, and 5 claims more than there is.
	message := []byte{1 << 3, 0xac, 0x02, 2<<3 | 2, 2, 'a', 'b', 2<<3 | 2, 0, 3<<3 | 5, 1, 2, 3, 4, 4<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 6<<3 | 2, 1, 'c', 5<<3 | 2, 9, 'd'}
	if got := messageFields(message, 2); len(got) != 2 || string(got[0]) != "ab" || len(got[1]) != 0 {
		t.Errorf("field 2: got %q", got)
	}
	if got := string(firstField(message, 6)); got != "c" {
		t.Errorf("field 6: got %q", got)
	}
	if got := messageFields(message, 5); got != nil {
		t.Errorf("field 5 is cut short: got %q", got)
	}
}
