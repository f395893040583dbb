// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"flag"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// TestMain lets many tests run at a time: they wait far more than they compute. -parallel on the command line wins.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}
