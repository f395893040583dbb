// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command dashboards writes a Grafana dashboard for each component into the chart. Run it from the repository's root as `make manifests` does.
//
// A dashboard here is a few rows of panels, each a title, a sentence and its queries; what Grafana wants around them is made in one place
// ([dashboard.render]), so that all look alike. The first row of each answers whether somebody has to act, the others why. The format is Grafana's JSON
// model of dashboards, version 39 of its schema (Grafana 10.4 and later).
package main
