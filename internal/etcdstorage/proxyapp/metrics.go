// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// The values of the label certificate: what is shown to clients, and to the core. They MUST NOT change.
const (
	clientsCertificate = "clients"
	coreCertificate    = "core"
)

// RegisterMetrics registers all metrics of ours that the program may have, with nothing behind them, for the reference.
func RegisterMetrics(registry prometheus.Registerer) error {
	registry.MustRegister(buildinfo.Get().Collector(Component))
	labeled := labeledFor("", registry)
	labeled.MustRegister(certreload.Blank(clientsCertificate), certreload.Blank(coreCertificate))
	newReadiness(nil, newReporter(logr.Discard(), labeled), labeled)
	return proxy.RegisterMetrics(registry)
}

// labeledFor adds to what is about one tenant whose it is, as the proxy's own metrics do.
func labeledFor(tenant string, registry prometheus.Registerer) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"tenant": tenant}, registry)
}
