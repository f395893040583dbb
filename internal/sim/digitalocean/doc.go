// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package digitalocean simulates DigitalOcean's API, as far as a cluster uses it: one state machine behind a plain HTTP handler,
// with the limits, the delays and the failures that a client meets in earnest.
//
//	sim := digitalocean.New(digitalocean.Options{Seed: 1})
//	client := &http.Client{Transport: sim.Transport()} // no socket; or serve sim.Handler()
//
// Who talks to it:
//
//	[Simulator.Handler]        /v2/..., for the program under test
//	[Simulator.Transport]      the same without sockets: usable in a synctest bubble
//	[Simulator.Account]        Go: what other people do in the account, behind the program's back
//	[Simulator.AdminHandler]   the same over HTTP, for the lab
//	[Simulator.Metadata]       /metadata/v1/..., what a droplet can ask about itself
//	[Simulator.Requests]       what was asked for, with [Simulator.Stats] and [Simulator.State]
//	[Simulator.Image]          everything that is true, for [Open] in another process
//
// What happens by itself happens as of the next request; there are no goroutines and no timers:
//
//	droplet        new ──BootAfter──> active <──power──> off, archive        addresses appear after NetworksAfter
//	load balancer  new ──ActiveAfter, ActiveAfterReads──> active | errored   its address appears with active
//	               active ──PUT, droplets, rules──> busy (403) ──BusyAfterUpdate──> active
//	certificate    pending ──VerifiedAfter──> verified                       lets_encrypt only; custom is verified at once
//	firewall       waiting ──SettledAfter──> succeeded
//
// Sources are DigitalOcean's OpenAPI description and public reports of its behavior. Where neither says anything the code
// says "assumed". The package openapi checks requests and responses against the description; its list of deviations names
// everything that real clients send and the description lacks.
//
// Not simulated: volumes, snapshots and images (droplets have volume IDs and actions, tables of an account have room for
// more), reserved IPs, projects (IDs are kept, not checked), global load balancers, peerings, billing.
package digitalocean
