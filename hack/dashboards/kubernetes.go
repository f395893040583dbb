// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

// all are the dashboards, one for each component.
func all() []dashboard {
	return []dashboard{nodeSync(), cloud(), reflectors(), etcdStorage(), volumes()}
}

func nodeSync() dashboard {
	return dashboard{
		component: "calico-node-sync", title: "Mooring / Calico node sync", anchor: "mooring_nodesync_rounds_total",
		about: "What machines that are gone have left in Calico's datastore, and what is held back and why.",
		rows: []row{
			{"Must anybody act?", []panel{
				{number, "Since the last good round", "It should stay below 5 minutes (--resync-period); while it grows, leftovers stay. The log says why.", seconds, plain,
					[]query{{"time() - max(" + of("mooring_nodesync_last_success_timestamp_seconds") + ")", ""}}},
				{number, "Wrong cluster?", "1 while a gate says that Kubernetes and the datastore do not belong together. Nothing is removed meanwhile.", short, badIf1,
					[]query{{"max(" + of("mooring_nodesync_refusals", `gate=~"kubernetes-empty|cluster-binding|overlap"`) + ") > bool 0", ""}}},
				{number, "Waits for a confirmation", "Nodes whose deletion was not observed, more than are removed without a person who confirms it.", short, badIf1,
					[]query{{"max(" + of("mooring_nodesync_refusals", `gate="mass-guard"`) + ")", ""}}},
				{number, "Calico Nodes without a machine", "At the last round; some minutes after a scale-down it should be 0 again.", short, plain,
					[]query{{"max(" + of("mooring_nodesync_absent_nodes") + ")", ""}}},
			}},
			{"What it does", []panel{
				{lines, "Nodes", "Calico Nodes, and those of them without their Kubernetes Node.", short, plain, []query{
					{"max(" + of("mooring_nodesync_calico_nodes") + ")", "Calico Nodes"},
					{"max(" + of("mooring_nodesync_absent_nodes") + ")", "without a machine"},
				}},
				{lines, "Steps", "Attempted steps, by outcome: a conflict is a step whose object had changed; it is planned again.", perSecond, plain,
					[]query{{total("kind, outcome", rate(of("mooring_nodesync_steps_total"))), "{{kind}}: {{outcome}}"}}},
				{lines, "Rounds", "Rounds by outcome.", perSecond, plain, []query{{total("outcome", rate(of("mooring_nodesync_rounds_total"))), "{{outcome}}"}}},
			}},
			{"What is held back", []panel{
				{lines, "Held back, by gate", "What the last plan left alone. The manual says of each gate what to do, or that it passes by itself.", short, plain,
					[]query{{most("gate", of("mooring_nodesync_refusals")) + " > 0", "{{gate}}"}}},
				{lines, "Planned steps", "Steps of the last plan; in report mode they stay.", short, plain, []query{{"max(" + of("mooring_nodesync_planned_steps") + ")", "steps"}}},
				{lines, "Journal errors", "What cannot be kept is not removed.", perSecond, plain,
					[]query{{"sum(" + rate(of("mooring_nodesync_journal_errors_total")) + ")", "errors"}}},
			}},
		},
	}
}

func reflectors() dashboard {
	const prefix = "mooring_routereflector_"
	byTopology := func(metric string) string { return most("topology", of(prefix+metric)) }
	return dashboard{
		component: "calico-route-reflector-operator", title: "Mooring / Calico route reflectors", anchor: prefix + "reflectors",
		about: "Route reflectors, the sessions of their clients, and what the operator is about to do.",
		rows: []row{
			{"Must anybody act?", []panel{
				{number, "Degraded", "1 while a topology cannot reach its desired state. Its condition Degraded says why.", short, badIf1,
					[]query{{byTopology("degraded"), "{{topology}}"}}},
				{number, "Frozen", "1 while nothing is written, because the observed state cannot be true or something else writes. Condition Frozen says what to do.", short, badIf1,
					[]query{{byTopology("frozen"), "{{topology}}"}}},
				{number, "Clients at risk", "Clients that lack a session with one of their reflectors: one failure more and they lose routes.", short, badIf1,
					[]query{{byTopology("clients_at_risk"), "{{topology}}"}}},
				{number, "Reflectors", "Nodes that are reflectors.", short, plain,
					[]query{{total("topology", most("topology, zone", of(prefix+"reflectors"))), "{{topology}}"}}},
				{number, "Mesh", "1 while the full mesh is on: on purpose before there are reflectors, and on the way back.", short, plain,
					[]query{{byTopology("mesh_enabled"), "{{topology}}"}}},
			}},
			{"Reflectors and sessions", []panel{
				{lines, "Reflectors by zone", "Those that there are and those that were chosen.", short, plain, []query{
					{most("topology, zone", of(prefix+"reflectors")), "{{topology}} {{zone}}"},
					{most("topology, zone", of(prefix+"reflectors_desired")), "{{topology}} {{zone}} chosen"},
				}},
				{lines, "Sessions", "Sessions between clients and reflectors that there should be, and those that are Established.", short, plain, []query{
					{byTopology("sessions_expected"), "{{topology}} expected"},
					{byTopology("sessions_established"), "{{topology}} Established"},
				}},
				{lines, "Paths to one prefix", "The most that a node has, by the model. It grows with reflectors of different cluster IDs.", short, plain,
					[]query{{byTopology("paths_per_prefix"), "{{topology}}"}}},
			}},
			{"What it does", []panel{
				{table, "Phase", "The phase that holds.", short, plain, []query{{most("topology, phase", of(prefix+"phase")) + " == 1", ""}}},
				{lines, "Pending steps", "Steps that remain; each waits until the routes of the one before are seen.", short, plain,
					[]query{{byTopology("pending_steps"), "{{topology}}"}}},
				{lines, "Duration of steps", "95 of 100 steps took less, by kind.", seconds, plain, []query{{quantile(0.95, "kind", prefix+"step_duration_seconds"), "{{kind}}"}}},
				{lines, "Writes", "Writes tried, by outcome.", perSecond, plain, []query{{total("kind, outcome", rate(of(prefix+"writes_total"))), "{{kind}}: {{outcome}}"}}},
			}},
		},
	}
}
