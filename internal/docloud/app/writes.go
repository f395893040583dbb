// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/docloud/shutdowns"
	"github.com/mooring-dev/mooring/internal/docloud/startuptaint"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Writes are all writes of the program, of which a test compares those to Kubernetes with package rights.
func Writes() []outputs.Write {
	return slices.Concat(
		provider.OutsideRounds(), balancers.Writes(), firewalls.Writes(), clustertag.Writes(), shutdowns.Writes(), startuptaint.Writes(),
	)
}
