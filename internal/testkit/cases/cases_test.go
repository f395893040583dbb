// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNumber(t *testing.T) {
	for setting, want := range map[string]int{"": 1, "change": 1, "ci": 2, "night": 3} {
		t.Setenv(Variable, setting)
		if got := Number(t, 1, 2, 3); got != want {
			t.Errorf("%s=%q: %d cases, want %d", Variable, setting, got, want)
		}
	}
}

func TestCheckTriesAsManyCasesAsTheSettingSays(t *testing.T) {
	n := 0
	Check(t, func(*rapid.T) { n++ })
	if want := Number(t, perChange, perCI, perNight); n != want {
		t.Errorf("%d cases, want %d", n, want)
	}
}
