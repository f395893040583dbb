// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
)

// RegisterMetrics registers all metrics of ours that the program has, with nothing behind them, for the reference.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(buildinfo.Get().Collector(Component))
	csi.NewMetrics(registry)
	doapi.NewMetrics(registry)
}
