// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

func etcdStorage() dashboard {
	const operator, proxy = "mooring_etcdstorage_operator_", "mooring_etcdstorage_proxy_"
	byStorage := func(metric string, labels ...string) string { return most("storage", of(operator+metric, labels...)) }
	share := func(what string) string {
		return byStorage(what) + " / " + byStorage("quota", `resource="`+what+`"`)
	}
	return dashboard{
		component: "etcd-storage-operator", title: "Mooring / Etcd storage", anchor: operator + "condition",
		about: "The tenants of one etcd: whether they are served, what they use of their quota, and the certificates between them and the core.",
		rows: []row{
			{"Must anybody act?", []panel{
				{number, "Tenants that are not Ready", "The condition Ready of the EtcdStorage says why.", short, badIf1,
					[]query{{"count(" + byStorage("condition", `type="Ready"`) + " < 1) or vector(0)", ""}}},
				{number, "At the quota", "Tenants that were refused growth and would be again: reading, deleting and shortening go on.", short, badIf1,
					[]query{{"count(" + byStorage("condition", `type="QuotaExceeded"`) + " == 1) or vector(0)", ""}}},
				{number, "First certificate to end", "Certificates renew themselves in time; one that is close means that something holds renewal back.", seconds, plain,
					[]query{{"min(" + of(operator+"certificate_not_after_timestamp_seconds") + ") - time()", ""}}},
				{number, "Boundary violations", "Responses or requests outside a tenant's boundary that were withheld. A value other than 0 is a bug: report it.", short, badIf1,
					[]query{{"sum(increase(" + of(proxy+"boundary_violations_total") + "[$__range])) or vector(0)", ""}}},
			}},
			{"Tenants", []panel{
				{table, "Conditions", "1 True, 0 False, -1 Unknown.", short, plain, []query{{most("storage, type", of(operator+"condition")), ""}}},
				{lines, "Share of the quota", "Of bytes and of keys, for tenants that have one.", percent, plain, []query{
					{share("bytes"), "{{storage}} bytes"}, {share("keys"), "{{storage}} keys"},
				}},
				{lines, "Stored", "Keys and values that are alive; history and the core's own overhead are not in it.", bytesUnit, plain,
					[]query{{byStorage("bytes"), "{{storage}}"}}},
			}},
			{"Proxies", []panel{
				{lines, "Ready proxies", "Together with the desired number.", short, plain, []query{
					{byStorage("proxies_ready"), "{{storage}} ready"}, {byStorage("proxies_wanted"), "{{storage}} wanted"},
				}},
				{lines, "Requests", "Of tenants, by result.", perSecond, plain, []query{{total("tenant, code", rate(of(proxy+"requests_total"))), "{{tenant}}: {{code}}"}}},
				{lines, "Duration", "99 of 100 requests took less; the core's time is in it.", seconds, plain,
					[]query{{quantile(0.99, "tenant, method", proxy+"request_duration_seconds"), "{{tenant}}: {{method}}"}}},
				{lines, "Refused", "By the bound that was met.", perSecond, plain, []query{{total("tenant, limit", rate(of(proxy+"refused_total"))), "{{tenant}}: {{limit}}"}}},
			}},
			{"Watches and certificates", []panel{
				{lines, "Watches", "The tenants' own, and those of the core that they share.", short, plain, []query{
					{total("tenant", of(proxy+"watchers")), "{{tenant}}"}, {total("tenant", of(proxy+"core_watches")), "{{tenant}} at the core"},
				}},
				{table, "Certificates end", "The ends of all certificates and authorities.", unixTime, plain,
					[]query{{"1000 * min by (storage, certificate) (" + of(operator+"certificate_not_after_timestamp_seconds") + ")", ""}}},
				{lines, "Writes of the operator", "None while nothing changes.", perSecond, plain, []query{{total("kind, outcome", rate(of(operator+"writes_total"))), "{{kind}}: {{outcome}}"}}},
			}},
		},
	}
}
