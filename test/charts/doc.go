// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts tests charts/mooring: what Helm makes of it for all kinds of values, that this is what config/ makes, which values it refuses
// and how, that a real kube-apiserver takes it and goes from the version before it to it and back, and that its alerts fire when they should, by Prometheus'
// own promtool.
package charts
