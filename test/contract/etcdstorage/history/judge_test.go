// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestTheModelRefusesWhatCannotBe shows that the judge can find a history wrong.
func TestTheModelRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	put := func(value string, call, ret int64, lost bool) porcupine.Operation {
		return porcupine.Operation{Input: input{kind: opPut, key: "k", value: value}, Output: output{lost: lost}, Call: call, Return: ret}
	}
	get := func(value string, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: input{kind: opGet, key: "k"}, Output: output{value: value}, Call: call, Return: ret}
	}
	swap := func(expected, value string, swapped bool, found string, call, ret int64) porcupine.Operation {
		return porcupine.Operation{
			Input: input{kind: opSwap, key: "k", value: value, expected: expected}, Output: output{swapped: swapped, value: found}, Call: call, Return: ret,
		}
	}
	for name, tc := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"a write is read":                         {[]porcupine.Operation{put("1", 0, 1, false), get("1", 2, 3)}, true},
		"an old value is read":                    {[]porcupine.Operation{put("1", 0, 1, false), put("2", 2, 3, false), get("1", 4, 5)}, false},
		"a write without a response is read late": {[]porcupine.Operation{put("1", 0, 100, true), get("", 2, 3), get("1", 4, 5)}, true},
		"a write is undone":                       {[]porcupine.Operation{put("1", 0, 100, true), get("1", 2, 3), get("", 4, 5)}, false},
		"two swap the same":                       {[]porcupine.Operation{swap("", "1", true, "", 0, 10), swap("", "2", true, "", 0, 10)}, false},
		"one of two swaps":                        {[]porcupine.Operation{swap("", "1", true, "", 0, 10), swap("", "2", false, "1", 0, 10)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := porcupine.CheckOperations(model(), tc.history); got != tc.want {
				t.Errorf("linearizable: %v, want %v", got, tc.want)
			}
		})
	}
}
