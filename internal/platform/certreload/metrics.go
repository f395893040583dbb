// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload

import "github.com/prometheus/client_golang/prometheus"

// Collector exports, with the label certificate=name:
//
//	mooring_certreload_reloads_total{outcome="success"|"failure"}  sets taken over, and reads rejected
//	mooring_certreload_not_after_timestamp_seconds                  expiry of the served leaf; absent without a key pair
func (r *Reloader) Collector(name string) prometheus.Collector {
	labels := prometheus.Labels{"certificate": name}
	return &collector{
		reloader: r,
		reloads: prometheus.NewDesc("mooring_certreload_reloads_total",
			"Reads of the TLS files that were taken over (success) or rejected (failure).", []string{"outcome"}, labels),
		notAfter: prometheus.NewDesc("mooring_certreload_not_after_timestamp_seconds",
			"Expiry of the certificate in use, in seconds since the epoch.", nil, labels),
	}
}

type collector struct {
	reloader          *Reloader
	reloads, notAfter *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.reloads
	ch <- c.notAfter
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	count := func(n int64, outcome string) {
		ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(n), outcome)
	}
	count(c.reloader.reloads.Load(), "success")
	count(c.reloader.failures.Load(), "failure")
	if t := c.reloader.Current().NotAfter(); !t.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.notAfter, prometheus.GaugeValue, float64(t.Unix()))
	}
}
