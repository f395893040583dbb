// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"
)

// A period out of its bounds is refused with its flag, its value and what is allowed.
func TestPeriods(t *testing.T) {
	t.Parallel()
	if err := newOptions().validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for want, change := range map[string]func(*options){
		"--settle-period 0s: must be from 1s to 5m0s":         func(o *options) { o.timing.Settle = 0 },
		"--coalesce-period 1h0m0s: must be from 10ms to 1m0s": func(o *options) { o.timing.Coalesce = time.Hour },
		"--kubelet-port 65536: must be from 0 to 65535":       func(o *options) { o.kubeletPort = 65536 },
		"--resync-period 1ms: must be from 1s to 1h0m0s":      func(o *options) { o.timing.Resync = time.Millisecond },
	} {
		o := newOptions()
		change(o)
		if err := o.validate(); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
