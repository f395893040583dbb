// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// RegisterMetrics registers all metrics of ours that the program has, with nothing behind them, for the reference.
func RegisterMetrics(registry prometheus.Registerer) {
	manager.RegisterMetrics(Component, registry)
	controller.NewMetrics(registry)
}
