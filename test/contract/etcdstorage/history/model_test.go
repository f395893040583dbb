// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Kinds of operations on one key.
const (
	opGet = iota
	opPut
	opDelete
	opSwap
)

// An input is what a client asks for. A swap writes value if the key has the value expected.
type input struct {
	kind            int
	key             string
	value, expected string
}

// An output is what it was told; "" is the value of a key that is not there. If the answer was lost nobody knows whether it happened.
type output struct {
	value   string
	swapped bool
	lost    bool
}

// model is a register for each key.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(input).key
				byKey[key] = append(byKey[key], op)
			}
			var out [][]porcupine.Operation
			for _, ops := range byKey {
				out = append(out, ops)
			}
			return out
		},
		Init:  func() any { return "" },
		Step:  func(state, in, out any) (bool, any) { return step(state.(string), in.(input), out.(output)) },
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v → %+v", in, out)
		},
	}
}

func step(state string, in input, out output) (bool, string) {
	switch in.kind {
	case opGet:
		return out.lost || out.value == state, state
	case opPut:
		return true, in.value
	case opDelete:
		return true, ""
	default:
		if state == in.expected {
			return out.lost || out.swapped, in.value
		}
		return out.lost || (!out.swapped && out.value == state), state
	}
}
