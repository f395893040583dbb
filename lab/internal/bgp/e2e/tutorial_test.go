// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/pages"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
)

// TestTutorial follows the tutorial of the route reflectors as it stands there.
func TestTutorial(t *testing.T) {
	prepare(t)
	if err := network.Try(t.Context(), testkit.Binary(t, "lab")); err != nil {
		testkit.Skip(t, "%v", err)
	}
	pages.Follow(t, "tutorials/calico-route-reflector-operator.md")
}
