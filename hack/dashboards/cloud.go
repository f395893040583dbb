// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

func cloud() dashboard {
	const prefix = "mooring_digitalocean_"
	sum := func(by, metric string) string { return total(by, rate(of(prefix+metric))) }
	return dashboard{
		component: "digitalocean-cloud-controller-manager", title: "Mooring / DigitalOcean cloud controller manager", anchor: prefix + "trust",
		about: "Nodes, load balancers and the firewall at DigitalOcean, the token, and how much of its API is used.",
		rows: []row{
			{"Must anybody act?", []panel{
				{number, "Token accepted", "0 while DigitalOcean refuses it, or while it lacks a scope; the reason is the legend.", short, goodIf1,
					[]query{{most("reason", of(prefix+"token_healthy")), "{{reason}}"}}},
				{number, "Account trusted", "0 while the token is one of another account, or none of the known droplets is visible: nothing is deleted meanwhile.", short, goodIf1,
					[]query{{"max(" + of(prefix+"trust", `state="trusted"`) + ")", ""}}},
				{number, "Nodes in doubt", "Not ready, and it is unknown whether their droplets exist. They stay.", short, badIf1,
					[]query{{"sum(max by (reason) (" + of(prefix+"nodes_existence_unknown") + "))", ""}}},
				{number, "Machines that wait for a person", "They are off like many others, and keep their volumes until somebody confirms it: kubectl mooring confirm.", short, badIf1,
					[]query{{"max(" + of(prefix+"out_of_service_machines", `reason="mass-guard"`) + ")", ""}}},
				{number, "Load balancers that wait", "Waiting for a reconcile; it ends by itself unless reconciles fail.", short, plain, []query{{"max(" + of(prefix+"loadbalancer_dirty") + ")", ""}}},
				{number, "Services left out of the firewall", "They cannot be parsed, so that the firewall keeps its rules for them.", short, badIf1,
					[]query{{"max(" + of(prefix+"firewall_services_left_out") + ")", ""}}},
			}},
			{"Load balancers and firewall", []panel{
				{lines, "Passes over load balancers", "By outcome; at refused people have to act, and the Service's events say how.", perSecond, plain,
					[]query{{sum("outcome", "loadbalancer_syncs_total"), "{{outcome}}"}}},
				{lines, "Drift", "Drift that no change of a Service explains, by field, and repairs.", perSecond, plain, []query{
					{sum("field", "loadbalancer_drift_found_total"), "found: {{field}}"}, {sum("by", "loadbalancer_drift_repaired_total"), "repaired: {{by}}"},
				}},
				{lines, "Passes over the firewall", "By outcome.", perSecond, plain, []query{
					{sum("outcome", "firewall_syncs_total"), "{{outcome}}"}, {sum("by", "firewall_drift_repaired_total"), "repaired: {{by}}"},
				}},
				{lines, "Firewall rules", "Inbound; DigitalOcean takes 47 alongside the three that let everything out.", short, plain,
					[]query{{"max(" + of(prefix+"firewall_inbound_rules") + ")", "rules"}}},
			}},
			{"Nodes", []panel{
				{lines, "Nodes given up", "Their droplets were proven to be gone.", perSecond, plain, []query{{"sum(" + rate(of(prefix+"nodes_gone_total")) + ")", "nodes"}}},
				{lines, "Why existence is unknown", "By reason.", short, plain, []query{{most("reason", of(prefix+"nodes_existence_unknown")) + " > 0", "{{reason}}"}}},
				{lines, "Age of the lists", "What is decided is decided on these; -1 is none.", seconds, plain, []query{{most("kind", of(prefix+"snapshot_age_seconds")), "{{kind}}"}}},
			}},
			{"DigitalOcean's API", []panel{
				{lines, "Calls left in the hour", "Of those that the token may make; all who use the token share them.", short, plain, []query{
					{"min(" + of(prefix+"api_rate_limit_remaining") + ")", "left"}, {"max(" + of(prefix+"api_rate_limit") + ")", "limit"},
				}},
				{lines, "Calls", "By method and status.", perSecond, plain, []query{{sum("method, code", "api_requests_total"), "{{method}}: {{code}}"}}},
				{lines, "Duration of calls", "95 of 100 calls took less, by route.", seconds, plain, []query{{quantile(0.95, "route", prefix+"api_request_duration_seconds"), "{{route}}"}}},
				{lines, "Calls put off", "By priority, and why.", perSecond, plain, []query{{sum("priority, reason", "api_requests_held_total"), "{{priority}}: {{reason}}"}}},
			}},
			{"Admission", []panel{
				{lines, "Answers", "Of the admission server, where it is installed.", perSecond, plain, []query{{sum("outcome", "admission_requests_total"), "{{outcome}}"}}},
				{lines, "Questions to DigitalOcean", "Unknown is allowed: the API server never waits for DigitalOcean in vain.", perSecond, plain, []query{{sum("verdict", "admission_questions_total"), "{{verdict}}"}}},
				{lines, "Duration of responses", "99 of 100 responses took less.", seconds, plain, []query{{quantile(0.99, "", prefix+"admission_duration_seconds"), "all"}}},
			}},
		},
	}
}
