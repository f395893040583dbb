// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/docloud/csiapp"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	"github.com/mooring-dev/mooring/internal/etcdstorage/proxyapp"
	nodesync "github.com/mooring-dev/mooring/internal/nodesync/app"
	routereflector "github.com/mooring-dev/mooring/internal/routereflector/app"
)

// metric is one metric as the code registers it.
type metric struct {
	name, kind, help string
	labels           []label
}

// label is a label of a metric, with its values as far as the code knows them.
type label struct {
	name   string
	values []string
}

// catalog is a prometheus.Registerer that takes down what is registered with it.
type catalog struct{ metrics map[string]*metric }

// Register implements prometheus.Registerer.
func (c *catalog) Register(collector prometheus.Collector) error {
	for _, desc := range described(collector) {
		m, err := read(desc.String())
		if err != nil {
			return err
		}
		if have := c.metrics[m.name]; have != nil {
			m = have
		}
		c.metrics[m.name] = m
		m.kind = cmp.Or(m.kind, kindOf(collector))
	}
	for _, one := range collected(collector) {
		m, err := read(one.Desc().String())
		if err != nil {
			return err
		}
		if err := c.metrics[m.name].observe(one); err != nil {
			return err
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (c *catalog) MustRegister(all ...prometheus.Collector) {
	for _, one := range all {
		if err := c.Register(one); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (c *catalog) Unregister(prometheus.Collector) bool { return false }

func described(c prometheus.Collector) []*prometheus.Desc {
	var out []*prometheus.Desc
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	for one := range ch {
		out = append(out, one)
	}
	return out
}

func collected(c prometheus.Collector) []prometheus.Metric {
	var out []prometheus.Metric
	ch := make(chan prometheus.Metric)
	go func() { c.Collect(ch); close(ch) }()
	for one := range ch {
		out = append(out, one)
	}
	return out
}

// description matches a prometheus.Desc in words, which is the one way to read it.
var (
	description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constLabel  = regexp.MustCompile(`([a-zA-Z_]\w*)="(?:[^"\\]|\\.)*"`)
)

// read is a metric by its description.
func read(desc string) (*metric, error) {
	parts := description.FindStringSubmatch(desc)
	if parts == nil {
		return nil, fmt.Errorf("not understood: %s", desc)
	}
	name, err := strconv.Unquote(parts[1])
	if err != nil {
		return nil, fmt.Errorf("the name in %s: %w", desc, err)
	}
	help, err := strconv.Unquote(parts[2])
	if err != nil {
		return nil, fmt.Errorf("the help in %s: %w", desc, err)
	}
	m := &metric{name: name, help: help}
	for _, l := range constLabel.FindAllStringSubmatch(parts[3], -1) {
		m.labels = append(m.labels, label{name: l[1]})
	}
	if parts[4] != "" {
		for l := range strings.SplitSeq(parts[4], ",") {
			m.labels = append(m.labels, label{name: l})
		}
	}
	return m, nil
}

// kindOf is the type of a collector that may have no series yet, "" if only its series tell.
func kindOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	return ""
}

// observe takes down what a series tells: the type, and values of labels that are there from the start.
func (m *metric) observe(series prometheus.Metric) error {
	var d dto.Metric
	if err := series.Write(&d); err != nil {
		return fmt.Errorf("reading a series of %s: %w", m.name, err)
	}
	switch {
	case d.Counter != nil:
		m.kind = "counter"
	case d.Histogram != nil:
		m.kind = "histogram"
	case d.Gauge != nil:
		m.kind = "gauge"
	}
	if m.name == buildMetric {
		return nil // its values are those of anyone who writes the page
	}
	for _, pair := range d.GetLabel() {
		i := slices.IndexFunc(m.labels, func(l label) bool { return l.name == pair.GetName() })
		if i >= 0 && pair.GetValue() != "" && !slices.Contains(m.labels[i].values, pair.GetValue()) {
			m.labels[i].values = append(m.labels[i].values, pair.GetValue())
		}
	}
	return nil
}

const buildMetric = "mooring_build_info"

// program is a program with metrics.
type program struct {
	name     string
	register func(prometheus.Registerer) error
	// others says whose metrics it has alongside ours.
	others string
}

// certain makes a function that cannot fail one that may.
func certain(register func(prometheus.Registerer)) func(prometheus.Registerer) error {
	return func(r prometheus.Registerer) error { register(r); return nil }
}

// programs are all with metrics, in alphabetical order.
func programs() []program {
	const (
		plain   = "Go's client library (`go_*`, `process_*`)"
		manager = "controller-runtime and client-go (among them `controller_runtime_*`, `workqueue_*`, `rest_client_*`, `leader_election_*`) and of " + plain
		cloud   = "Kubernetes' framework for cloud controller managers and of " + plain
	)
	return []program{
		{nodesync.Component, certain(nodesync.RegisterMetrics), manager},
		{routereflector.Component, certain(routereflector.RegisterMetrics), manager},
		{docloud.Component, docloud.RegisterMetrics, cloud},
		{admissionapp.Component, certain(admissionapp.RegisterMetrics), plain},
		{csiapp.Component, certain(csiapp.RegisterMetrics), plain},
		{operatorapp.Component, certain(operatorapp.RegisterMetrics), manager},
		{proxyapp.Component, proxyapp.RegisterMetrics, plain},
	}
}

// labelTypes are the types of the code whose constants, or whose kinds, are the values of a label.
func labelTypes() map[string]struct{ folder, kind string } {
	return map[string]struct{ folder, kind string }{
		"mooring_nodesync_refusals gate":                            {"internal/nodesync", "Gate"},
		"mooring_routereflector_phase phase":                        {"api/bgp/v1alpha1", "Phase"},
		"mooring_routereflector_step_duration_seconds kind":         {"internal/routereflector", "Step"},
		"mooring_digitalocean_token_healthy reason":                 {"internal/docloud/instance", "TokenReason"},
		"mooring_digitalocean_api_requests_held_total reason":       {"internal/docloud/budget", "Reason"},
		"mooring_digitalocean_nodes_existence_unknown reason":       {"internal/docloud/instance", "Reason"},
		"mooring_digitalocean_trust state":                          {"internal/docloud/instance", "Trust"},
		"mooring_digitalocean_loadbalancer_drift_found_total field": {"internal/docloud/loadbalancer", "Field"},
	}
}

// metricsOf are the metrics of a program, by name.
func metricsOf(root string, p program) ([]*metric, error) {
	all := &catalog{metrics: map[string]*metric{}}
	if err := p.register(all); err != nil {
		return nil, fmt.Errorf("the metrics of %s: %w", p.name, err)
	}
	out := slices.SortedFunc(maps.Values(all.metrics), func(a, b *metric) int { return strings.Compare(a.name, b.name) })
	types := labelTypes()
	for _, m := range out {
		if m.kind == "" { // a collector of our own that has no series before something has happened: its name tells
			m.kind = byName(m.name)
		}
		for i := range m.labels {
			where, ok := types[m.name+" "+m.labels[i].name]
			if !ok {
				slices.Sort(m.labels[i].values)
				continue
			}
			values, err := valuesOf(root, where.folder, where.kind)
			if err != nil {
				return nil, fmt.Errorf("the label %s of %s: %w", m.labels[i].name, m.name, err)
			}
			m.labels[i].values = values
		}
	}
	return out, nil
}

// byName is the type of a metric by its name, as all of ours are named.
func byName(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// metricsPage renders the metrics of all programs.
func metricsPage(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "# Metrics\n\nWritten by `make generate` from what the programs register; do not edit. Names, types and labels are stable.\n\n" +
		"Brackets list all values that the code defines for a label. Values of other labels are named in the meaning, or come from your cluster.\n" +
		"A histogram is the three series `_bucket`, `_sum` and `_count`. Alerts and dashboards come with the [chart](../../charts/mooring/README.md).\n")
	for _, p := range programs() {
		all, err := metricsOf(root, p)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n## %s\n\nIt also serves metrics of %s.\n\n", p.name, p.others)
		b.WriteString("| metric | type, labels | meaning |\n|---|---|---|\n")
		var long strings.Builder
		for _, m := range all {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, cell(m.kind+labels(m, &long)), cell(m.help))
		}
		if long.Len() > 0 {
			b.WriteString("\n" + long.String())
		}
	}
	return b.Bytes(), nil
}

// labels renders the labels of a metric. Many values go below the table, so that it stays narrow.
func labels(m *metric, below *strings.Builder) string {
	const room = 50 // characters of values in a row of the table
	var plain, known strings.Builder
	for _, l := range m.labels {
		values := strings.Join(l.values, ", ")
		switch {
		case values == "":
			fmt.Fprintf(&plain, ", `%s`", l.name)
		case len(values) <= room:
			fmt.Fprintf(&known, "\n`%s` (%s)", l.name, values)
		default:
			fmt.Fprintf(&plain, ", `%s`", l.name)
			fmt.Fprintf(below, "%s\n", wrap(fmt.Sprintf("- `%s` of `%s`: %s", l.name, m.name, values), "  "))
		}
	}
	return plain.String() + known.String()
}
