// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// servingCertificate is the value of the label certificate for the certificate of the metrics' server. It MUST NOT change.
const servingCertificate = "metrics"

// RegisterMetrics registers the metrics of ours that every manager has, with nothing behind them, for the reference.
func RegisterMetrics(component string, registry prometheus.Registerer) {
	registry.MustRegister(buildinfo.Get().Collector(component), certreload.Blank(servingCertificate))
}
