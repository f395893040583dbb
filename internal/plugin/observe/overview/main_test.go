// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
