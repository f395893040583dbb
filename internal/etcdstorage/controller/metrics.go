// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Metrics are the operator's. The methods of a nil Metrics do nothing.
type Metrics struct {
	writes    *prometheus.CounterVec
	condition *prometheus.GaugeVec
	proxies   *prometheus.GaugeVec
	keys      *prometheus.GaugeVec
	bytes     *prometheus.GaugeVec
	leases    *prometheus.GaugeVec
	quota     *prometheus.GaugeVec
	wanted    *prometheus.GaugeVec
	deleting  *prometheus.GaugeVec
	notAfter  *prometheus.GaugeVec

	coreUp     *prometheus.GaugeVec
	coreLeader *prometheus.GaugeVec
	coreBytes  *prometheus.GaugeVec
	coreAlarms *prometheus.GaugeVec

	compactions, defragmentations *prometheus.CounterVec
	revision                      *prometheus.GaugeVec
}

// NewMetrics registers the metrics. Their names are a contract with alerts: MUST NOT change.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	const prefix = "mooring_etcdstorage_operator_"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, append([]string{"storage"}, labels...))
	}
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "writes_total", Help: "Writes by kind of the step and outcome: success; conflict, which is requeued; forbidden, by a tenant that has not granted the right yet; error.",
		}, []string{"kind", "outcome"}),
		condition: gauge("condition", "1 if the condition of the EtcdStorage is True, 0 if it is False, -1 if it is Unknown.", "type"),
		proxies:   gauge("proxies_ready", "Proxies that are ready."),
		keys:      gauge("keys", "Keys of the tenant in the core, as last counted."),
		bytes:     gauge("bytes", "Bytes of the tenant's keys and values in the core, as last counted."),
		leases:    gauge("leases", "Leases of the tenant in the core, as last counted."),
		quota:     gauge("quota", "What spec.quota allows the tenant to store: bytes, keys, leases. There is no series for a resource without a limit.", "resource"),
		wanted:    gauge("proxies_wanted", "Desired proxies; 0 while there is no Deployment."),
		deleting:  gauge("deleting", "1 if the EtcdStorage is being deleted, otherwise 0."),
		notAfter:  gauge("certificate_not_after_timestamp_seconds", "Expiry of a certificate of the tenant: servingCA, clientCA, serving, client.", "certificate"),
	}
	m.registerCore(registry)
	// The registry is global, and tests run several operators in one process.
	_ = registry.Register(m.writes)
	for _, g := range m.gauges() {
		_ = registry.Register(g)
	}
	return m
}

// registerCore registers the metrics of the core etcd.
func (m *Metrics) registerCore(registry prometheus.Registerer) {
	const core = "mooring_etcdstorage_core_"
	m.coreUp = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: core + "member_up", Help: "1 if the member at this URL of --etcd-core-url responded to the status request, otherwise 0.",
	}, []string{"url"})
	m.coreLeader = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: core + "member_has_leader", Help: "1 if the member has a leader, otherwise 0. There is no series for a member that does not respond.",
	}, []string{"url"})
	m.coreBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: core + "database_bytes",
		Help: "Database of the member: size of its file, what of that is in_use, and its quota. There is no series quota for a member that does not report it, as etcd before 3.6.",
	}, []string{"url", "of"})
	m.coreAlarms = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: core + "alarms", Help: "Members of the core etcd with an alarm: nospace, corrupt.",
	}, []string{"alarm"})
	m.compactions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: core + "compactions_total", Help: "Compactions of the core's history, by outcome: success, error.",
	}, []string{"outcome"})
	m.defragmentations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: core + "defragmentations_total", Help: "Defragmentations of members of the core, by outcome: success, error.",
	}, []string{"outcome"})
	m.revision = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: core + "compacted_revision", Help: "The revision at which the core was compacted last by this process. There is no series before the first.",
	}, nil)
	for _, c := range []prometheus.Collector{m.coreUp, m.coreLeader, m.coreBytes, m.coreAlarms, m.compactions, m.defragmentations, m.revision} {
		_ = registry.Register(c)
	}
}

// gauges are those with the label storage.
func (m *Metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.condition, m.proxies, m.wanted, m.deleting, m.keys, m.bytes, m.leases, m.quota, m.notAfter}
}

// wrote counts a write. That of a destination may be forbidden, which is the tenant's business.
func (m *Metrics) wrote(kind string, destination bool, err error) {
	if m == nil {
		return
	}
	outcome := "error"
	switch {
	case err == nil:
		outcome = "success"
	case reconcile.OutcomeOf(err) == reconcile.Conflict:
		outcome = "conflict"
	case destination && apierrors.IsForbidden(err):
		outcome = "forbidden"
	}
	m.writes.WithLabelValues(kind, outcome).Inc()
}

// defragmented counts a defragmentation of a member of the core.
func (m *Metrics) defragmented(err error) {
	if m != nil {
		m.defragmentations.WithLabelValues(outcomeOf(err)).Inc()
	}
}

// compacted counts a compaction of the core.
func (m *Metrics) compacted(revision int64, err error) {
	if m == nil {
		return
	}
	m.compactions.WithLabelValues(outcomeOf(err)).Inc()
	if err == nil {
		m.revision.WithLabelValues().Set(float64(revision))
	}
}

// outcomeOf is the value of the label outcome.
func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// observe takes over what the status says, and what the spec wants.
func (m *Metrics) observe(s *scene, is v1alpha1.EtcdStorageStatus) {
	if m == nil {
		return
	}
	name, wanted, deleting := s.object.GetName(), 0.0, 0.0
	if s.world.HasProxies() {
		wanted = float64(s.world.Storage.Spec.Replicas)
	}
	if s.object.GetDeletionTimestamp() != nil {
		deleting = 1
	}
	m.wanted.WithLabelValues(name).Set(wanted)
	m.deleting.WithLabelValues(name).Set(deleting)
	for _, kind := range append(conditionKinds(), conditions.Ready) {
		value := -1.0
		switch c := meta.FindStatusCondition(is.Conditions, kind); {
		case c == nil:
		case c.Status == metav1.ConditionTrue:
			value = 1
		case c.Status == metav1.ConditionFalse:
			value = 0
		}
		m.condition.WithLabelValues(name, kind).Set(value)
	}
	m.bounds(name, s.world.Storage.Spec.Quota)
	m.proxies.WithLabelValues(name).Set(float64(is.ReadyReplicas))
	if is.Usage != nil {
		m.leases.WithLabelValues(name).Set(float64(is.Usage.Leases))
		m.keys.WithLabelValues(name).Set(float64(is.Usage.Keys))
		m.bytes.WithLabelValues(name).Set(float64(is.Usage.Bytes.Value()))
	}
	if c := is.Certificates; c != nil {
		for certificate, end := range map[string]*metav1.Time{"servingCA": c.ServingCA, "clientCA": c.ClientCA, "serving": c.Serving, "client": c.Client} {
			if end != nil {
				m.notAfter.WithLabelValues(name, certificate).Set(float64(end.Unix()))
			}
		}
	}
}

// bounds takes over a quota; what it does not bound has no series.
func (m *Metrics) bounds(name string, q v1alpha1.Quota) {
	m.quota.DeletePartialMatch(prometheus.Labels{"storage": name})
	if q.Bytes != nil {
		m.quota.WithLabelValues(name, "bytes").Set(float64(q.Bytes.Value()))
	}
	if q.Keys != nil {
		m.quota.WithLabelValues(name, "keys").Set(float64(*q.Keys))
	}
	if q.Leases != nil {
		m.quota.WithLabelValues(name, "leases").Set(float64(*q.Leases))
	}
}

// forget drops the series of an EtcdStorage that is gone.
func (m *Metrics) forget(name string) {
	if m == nil {
		return
	}
	for _, g := range m.gauges() {
		g.DeletePartialMatch(prometheus.Labels{"storage": name})
	}
}

// core takes over what the members of the core said of themselves.
func (m *Metrics) core(h operator.Health) {
	if m == nil {
		return
	}
	for _, g := range []*prometheus.GaugeVec{m.coreUp, m.coreLeader, m.coreBytes} {
		g.Reset()
	}
	flag := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	for _, member := range h.Members {
		m.coreUp.WithLabelValues(member.URL).Set(flag(member.Problem == ""))
		if member.Problem != "" {
			continue
		}
		m.coreLeader.WithLabelValues(member.URL).Set(flag(member.Leader))
		m.coreBytes.WithLabelValues(member.URL, "size").Set(float64(member.Size))
		m.coreBytes.WithLabelValues(member.URL, "in_use").Set(float64(member.InUse))
		if member.Quota > 0 {
			m.coreBytes.WithLabelValues(member.URL, "quota").Set(float64(member.Quota))
		}
	}
	if h.Problem == "" {
		m.coreAlarms.WithLabelValues("nospace").Set(float64(len(h.NoSpace)))
		m.coreAlarms.WithLabelValues("corrupt").Set(float64(len(h.Corrupt)))
	}
}
