// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// recordToken writes the token's health, if the record says something else, so that people and tools find it in one place. It
// looks at what is known and makes no call to DigitalOcean; nothing is written before there is a record.
//
// Nothing depends on it, the probes of the process least of all: a restart does not make a token better.
func (m *Instances) recordToken(ctx context.Context) error {
	state, message := m.reporter.trustNow()
	health, known := instance.JudgeToken(m.api.TokenAnswers(), state, message)
	if !known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
	defer cancel()
	changed, err := m.guard.noteToken(ctx, health)
	if changed && err == nil {
		klog.InfoS("The token's health has changed", "healthy", health.Healthy(), "reason", health.Reason, "message", health.Message)
	}
	return err
}

// noteToken writes the condition about the token into the account's record, and reports whether it did. Without a record there is none to
// write it into.
func (g *guard) noteToken(ctx context.Context, health instance.TokenHealth) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if _, changed := health.Condition(g.recorded.Token, now); !changed {
		return false, nil
	}
	g.readRecord(ctx, now) // somebody may have deleted it, or another leader may have written it
	condition, changed := health.Condition(g.recorded.Token, now)
	if g.recordErr != nil || g.recorded.Account == (instance.Account{}) || !changed {
		return false, g.recordErr
	}
	next := g.recorded
	next.Token = &condition
	if err := g.ledger.save(ctx, next); err != nil {
		g.readAt = time.Time{}
		return false, err
	}
	g.recorded = next
	return true, nil
}

// tokenCollector shows the token's health: one series, 1 if it is healthy and 0 if not, with the reason as its label. There is none before
// DigitalOcean has said anything of the token.
type tokenCollector struct {
	m    *Instances
	desc *prometheus.Desc
}

// newTokenCollector returns the collector. Name and label are a contract with dashboards and alerts: MUST NOT change.
func newTokenCollector(m *Instances) *tokenCollector {
	return &tokenCollector{m: m, desc: prometheus.NewDesc("mooring_digitalocean_token_healthy",
		"1 if DigitalOcean accepts the token for every call and it belongs to the cluster's account, else 0, by reason.", []string{"reason"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *tokenCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *tokenCollector) Collect(out chan<- prometheus.Metric) {
	state, message := c.m.reporter.trustNow()
	health, known := instance.JudgeToken(c.m.api.TokenAnswers(), state, message)
	if !known {
		return
	}
	value := 0.0
	if health.Healthy() {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, string(health.Reason))
}
