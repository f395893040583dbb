// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/cloud"
)

func TestMain(m *testing.M) { cloud.Main(m) }
