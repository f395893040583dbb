// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload

import "github.com/prometheus/client_golang/prometheus"

// Collector exports, with the label certificate=name:
//
//	mooring_certreload_reloads_total{outcome="success"|"failure"}  sets taken over, and reads rejected
//	mooring_certreload_failing                                      1 while the files cannot be used and an older set is served
//	mooring_certreload_not_after_timestamp_seconds                  expiry of the served leaf; absent without a key pair
//	mooring_certreload_ca_not_after_timestamp_seconds               expiry of the CA that lasts longest; absent without a CA bundle
func (r *Reloader) Collector(name string) prometheus.Collector {
	labels := prometheus.Labels{"certificate": name}
	return &collector{
		reloader: r,
		reloads: prometheus.NewDesc("mooring_certreload_reloads_total",
			"Reads of the TLS files that were accepted (success) or rejected (failure).", []string{"outcome"}, labels),
		notAfter: prometheus.NewDesc("mooring_certreload_not_after_timestamp_seconds",
			"Expiry of the certificate in use, in seconds since the epoch.", nil, labels),
		failing: prometheus.NewDesc("mooring_certreload_failing",
			"1 while the last read of the TLS files was rejected and an older set is in use, else 0.", nil, labels),
		caNotAfter: prometheus.NewDesc("mooring_certreload_ca_not_after_timestamp_seconds",
			"Expiry of the trusted CA that expires last, in seconds since the epoch.", nil, labels),
	}
}

// Blank is the Collector of a Reloader that has read nothing, for the reference of metrics.
func Blank(name string) prometheus.Collector {
	r := &Reloader{}
	r.current.Store(&Snapshot{})
	return r.Collector(name)
}

type collector struct {
	reloader                               *Reloader
	reloads, failing, notAfter, caNotAfter *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.reloads
	ch <- c.failing
	ch <- c.notAfter
	ch <- c.caNotAfter
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	count := func(n int64, outcome string) {
		ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(n), outcome)
	}
	count(c.reloader.reloads.Load(), "success")
	count(c.reloader.failures.Load(), "failure")
	gauge := func(desc *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	failing := 0.0
	if c.reloader.failing.Load() {
		failing = 1
	}
	gauge(c.failing, failing)
	now := c.reloader.Current()
	if t := now.NotAfter(); !t.IsZero() {
		gauge(c.notAfter, float64(t.Unix()))
	}
	if t := now.CANotAfter(); !t.IsZero() {
		gauge(c.caNotAfter, float64(t.Unix()))
	}
}
