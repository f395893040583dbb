// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package leftovers is the metric of what the cluster has at DigitalOcean and nothing refers to. It is counted when it is
// scraped, from the lists that were read last: it costs no call to DigitalOcean.
package leftovers

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
)

// Metrics report how many objects are left over. The name is a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	desc  *prometheus.Desc
	known atomic.Pointer[func() estate.World] // nil until there is something to count
}

// NewMetrics makes the metric and registers it.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{desc: prometheus.NewDesc("mooring_digitalocean_unreferenced",
		"Objects of the cluster at DigitalOcean to which nothing refers, by kind, in the lists that are read anyway; -1 while that is unknown.", []string{"kind"}, nil)}
	registry.MustRegister(m)
	return m
}

// Count makes the metric count what a function knows. The function is called with each scrape, and makes no call.
func (m *Metrics) Count(known func() estate.World) { m.known.Store(&known) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	var w estate.World
	if known := m.known.Load(); known != nil {
		w = (*known)()
	}
	counts := w.Unreferenced()
	for _, kind := range []estate.Kind{estate.LoadBalancer, estate.Certificate} {
		value := -1.0
		if n, known := counts[kind]; known {
			value = float64(n)
		}
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, string(kind))
	}
}
