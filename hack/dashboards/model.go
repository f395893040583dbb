// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// schemaVersion is that of Grafana 10.4. Later ones migrate what they load.
const schemaVersion = 39

// kind is how a panel draws.
type kind string

const (
	number kind = "stat"       // one number, colored by what it means
	lines  kind = "timeseries" // the course of things
	table  kind = "table"      // the newest value of each series, one row each
)

// Units as Grafana names them.
const (
	short     = "short"
	seconds   = "s"
	bytesUnit = "bytes"
	perSecond = "ops"
	unixTime  = "dateTimeAsIso" // of milliseconds
	percent   = "percentunit"
)

// Colors of a number from 0 on.
type meaning int

const (
	plain   meaning = iota
	goodIf1         // 0 is red, 1 and more is green
	badIf1          // 0 is green, 1 and more is red
)

// query is PromQL with the legend of its series.
type query struct{ expr, legend string }

type panel struct {
	kind    kind
	title   string
	about   string // one sentence: what it shows, and what to do about it
	unit    string
	meaning meaning
	queries []query
}

type row struct {
	title  string
	panels []panel
}

type dashboard struct {
	component, title, about string
	anchor                  string // a metric that every replica has: where the variables come from
	rows                    []row
}

// scope are the labels that the variables bind; a cluster without a label of that name is matched by "All" as well.
const scope = `cluster=~"$cluster",namespace=~"$namespace"`

// of selects the series of a metric with these labels, each as PromQL writes it, among those that the variables bind.
func of(metric string, labels ...string) string {
	return metric + "{" + strings.Join(append(labels, scope), ",") + "}"
}

func rate(selector string) string { return "rate(" + selector + "[$__rate_interval])" }

func most(by, expr string) string { return "max by (" + by + ") (" + expr + ")" }

func total(by, expr string) string { return "sum by (" + by + ") (" + expr + ")" }

// quantile is that of a histogram, from the rates of its buckets.
func quantile(q float64, by, metric string) string {
	return fmt.Sprintf("histogram_quantile(%g, sum by (%s) (%s))", q, strings.Trim("le, "+by, ", "), rate(of(metric+"_bucket")))
}

type object = map[string]any

// render returns the dashboard as Grafana imports it, with an ID made of the component's name, so that a newer one takes the older's place.
func (d dashboard) render() ([]byte, error) {
	content, err := marshal(object{
		"uid": "mooring-" + d.component, "title": d.title, "description": d.about, "tags": []string{"mooring", "kubernetes"},
		"schemaVersion": schemaVersion, "version": 1, "editable": false, "graphTooltip": 1, "refresh": "30s", "timezone": "",
		"time": object{"from": "now-6h", "to": "now"}, "annotations": object{"list": []any{}},
		"links":      []object{{"title": "Manual", "type": "link", "icon": "doc", "url": manual + d.component + ".md", "targetBlank": true}},
		"templating": object{"list": d.variables()}, "panels": d.panels(),
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard of %s: %w", d.component, err)
	}
	return content, nil
}

const manual = "https://github.com/mooring-dev/mooring/blob/main/docs/components/"

func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (d dashboard) variables() []object {
	choice := func(name, label, within string) object {
		return object{
			"name": name, "label": label, "type": "query", "datasource": source(), "query": object{"query": "label_values(" + d.anchor + within + ", " + name + ")", "refId": name},
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		}
	}
	return []object{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1},
		choice("cluster", "Cluster", ""),
		choice("namespace", "Namespace", `{cluster=~"$cluster"}`),
	}
}

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// Grafana's grid has 24 columns; a row of ours has panels of one height, and of one width but for the last, which takes the rest.
const gridColumns = 24

func (d dashboard) panels() []object {
	var all []object
	y, id := 0, 0
	next := func() int { id++; return id }
	for _, r := range d.rows {
		all = append(all, object{"id": next(), "type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": grid(0, y, gridColumns, 1)})
		y++
		width, height, x := gridColumns/len(r.panels), r.height(), 0
		for i, p := range r.panels {
			if i == len(r.panels)-1 {
				width = gridColumns - x
			}
			all = append(all, p.render(next(), grid(x, y, width, height)))
			x += width
		}
		y += height
	}
	return all
}

// height is that of a row's panels: numbers need little.
func (r row) height() int {
	for _, p := range r.panels {
		if p.kind != number {
			return 8
		}
	}
	return 4
}

func grid(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (p panel) render(id int, at object) object {
	targets := make([]object, 0, len(p.queries))
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": source(), "range": p.kind == lines, "instant": p.kind != lines}
		if p.kind == table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	out := object{
		"id": id, "type": string(p.kind), "title": p.title, "description": p.about, "gridPos": at, "datasource": source(), "targets": targets,
		"fieldConfig": object{"defaults": p.defaults(), "overrides": []any{}}, "options": p.options(),
	}
	if p.kind == table {
		out["transformations"] = []object{{"id": "merge", "options": object{}}, {"id": "organize", "options": object{"excludeByName": object{"Time": true}}}}
	}
	return out
}

func (p panel) defaults() object {
	defaults := object{"unit": p.unit, "noValue": "–"}
	steps := map[meaning][]object{
		goodIf1: {{"color": "red", "value": nil}, {"color": "green", "value": 1}},
		badIf1:  {{"color": "green", "value": nil}, {"color": "red", "value": 1}},
		plain:   {{"color": "text", "value": nil}},
	}[p.meaning]
	defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	if p.kind == lines {
		defaults["custom"] = object{"fillOpacity": 8, "showPoints": "never", "spanNulls": false}
		defaults["color"] = object{"mode": "palette-classic"}
	} else {
		defaults["color"] = object{"mode": "thresholds"}
	}
	return defaults
}

func (p panel) options() object {
	switch p.kind {
	case number:
		return object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "textMode": "auto", "colorMode": "value", "graphMode": "none"}
	case lines:
		return object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	default:
		return object{"showHeader": true, "cellHeight": "sm"}
	}
}
