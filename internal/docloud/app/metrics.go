// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/leftovers"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/shutdowns"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
)

// RegisterMetrics registers all metrics of ours that the program may have, with nothing behind them, for the reference.
func RegisterMetrics(registry prometheus.Registerer) error {
	registry.MustRegister(buildinfo.Get().Collector(Component))
	client, err := doapi.New(doapi.Options{Token: doapi.StaticToken("none"), Clock: clock.RealClock{}, Metrics: doapi.NewMetrics(registry)})
	if err != nil {
		return fmt.Errorf("making a client that calls nobody: %w", err)
	}
	machines.New(client, machines.NewSnapshot(client, clock.RealClock{}), machines.DefaultConfig(), clock.RealClock{}, registry)
	balancers.NewMetrics(registry)
	firewalls.NewMetrics(registry)
	clustertag.NewMetrics(registry)
	leftovers.NewMetrics(registry)
	shutdowns.NewMetrics(registry)
	return nil
}
