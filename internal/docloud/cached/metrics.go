// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cached

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// RegisterAge registers the age of what was read of one kind; at is when, the zero time for never. The names are a contract: MUST NOT change.
func RegisterAge(registry prometheus.Registerer, kind string, clock clock.PassiveClock, at func() time.Time) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mooring_digitalocean_snapshot_age_seconds", ConstLabels: prometheus.Labels{"kind": kind},
		Help: "Age in seconds of the newest complete list of a kind of object; -1 for none, or while nothing needs it.",
	}, func() float64 {
		if at := at(); !at.IsZero() {
			return clock.Since(at).Seconds()
		}
		return -1
	}))
}
