// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package must_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// ended records how a test would have ended.
type ended struct{ with string }

// Helper implements must.TB.
func (e *ended) Helper() {}

// Fatal implements must.TB.
func (e *ended) Fatal(args ...any) { e.with = fmt.Sprint(args...) }

// A call that succeeds gives its value and lets the test go on; one that fails ends the test with its error.
func TestMust(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{"": nil, "no such thing": errors.New("no such thing")} {
		done, got := &ended{}, &ended{}
		must.Do(done, err)
		if value := must.Get(7, err).Or(got); done.with != want || got.with != want || value != 7 {
			t.Errorf("%v: ended with %q and %q, value %d", err, done.with, got.with, value)
		}
	}
}
