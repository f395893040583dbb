// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

func volumes() dashboard {
	const prefix = "mooring_csi_"
	return dashboard{
		component: "digitalocean-csi-driver", title: "Mooring / DigitalOcean volumes", anchor: prefix + "actions_in_flight",
		about: "Volumes at DigitalOcean: how long attachments take, what fails, and what nobody uses.",
		rows: []row{
			{"Must anybody act?", []panel{
				{number, "Attached to droplets that are gone", "Volumes that nothing can use and that cost money.", short, badIf1,
					[]query{{"max(" + of(prefix+"volumes", `state="lost"`) + ") or vector(0)", ""}}},
				{number, "Attached to droplets that are off", "Their pods run elsewhere once the Node has the taint out-of-service.", short, plain,
					[]query{{"max(" + of(prefix+"volumes", `state="off"`) + ") or vector(0)", ""}}},
				{number, "Actions that failed", "At DigitalOcean, within the range of the page. They are tried again.", short, badIf1,
					[]query{{"sum(increase(" + of(prefix+"action_duration_seconds_count", `result="failed"`) + "[$__range])) or vector(0)", ""}}},
				{number, "Actions under way", "At DigitalOcean. A droplet has one at a time.", short, plain, []query{{"sum(" + of(prefix+"actions_in_flight") + ")", ""}}},
			}},
			{"Actions at DigitalOcean", []panel{
				{lines, "Duration of actions", "90 of 100 actions took less.", seconds, plain,
					[]query{{quantile(0.9, "kind", prefix+"action_duration_seconds"), "{{kind}}"}}},
				{lines, "Actions", "By kind and result.", perSecond, plain,
					[]query{{total("kind, result", rate(of(prefix+"action_duration_seconds_count"))), "{{kind}}: {{result}}"}}},
				{lines, "Volumes", "As of the last list of all of them.", short, plain, []query{{most("state", of(prefix+"volumes")), "{{state}}"}}},
			}},
			{"Requests of Kubernetes", []panel{
				{lines, "Requests", "By method.", perSecond, plain, []query{{total("method", rate(of(prefix+"requests_total"))), "{{method}}"}}},
				{lines, "Responses", "By gRPC code. What failed is requested again.", perSecond, plain,
					[]query{{total("code", rate(of(prefix+"requests_total"))), "{{code}}"}}},
				{lines, "Duration of requests", "99 of 100 requests took less; DigitalOcean's time is in it.", seconds, plain,
					[]query{{quantile(0.99, "method", prefix+"request_duration_seconds"), "{{method}}"}}},
			}},
		},
	}
}
