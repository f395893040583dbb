// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Component is one installation of a component as it runs. Its JSON form is a contract with programs.
type Component struct {
	Name string `json:"name"`
	// Namespace and Workload are where it runs; Workload is "" if only its Lease was found.
	Namespace string `json:"namespace"`
	Workload  string `json:"workload,omitempty"`
	// Version is the tag of its image, "" if a digest names the image or nothing does.
	Version string `json:"version,omitempty"`
	// Ready and Wanted count its pods.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
	// Leader holds its Lease of leader election, "" if there is none; Renewed is when the leader last renewed it.
	Leader  string     `json:"leader,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Problem is why it does not do its work, "" if it does as far as is known.
	Problem string `json:"problem,omitempty"`
}

// Components are the components that run in the cluster, in the order of [components] and then of their workloads. Without a workload a
// Lease in one of the namespaces counts, so that a program outside of the cluster is seen. The proxies of etcd storage belong to their
// tenants and are left out.
func Components(e ControllerEvidence, namespaces []string) []Component {
	var out []Component
	for _, c := range components() {
		if c.name == storageProxy {
			continue
		}
		workloads := c.of(all(e.Workloads))
		for _, w := range workloads {
			out = append(out, e.running(c, w))
		}
		if len(workloads) > 0 || c.lease == "" {
			continue
		}
		for _, l := range e.Leases {
			if l.Name == c.lease && (l.Namespace == c.leaseIn || c.leaseIn == "" && slices.Contains(namespaces, l.Namespace)) {
				out = append(out, e.led(Component{Name: c.name, Namespace: l.Namespace}, l))
			}
		}
	}
	return out
}

// running is the state of one workload.
func (e ControllerEvidence) running(c component, w Workload) Component {
	out := Component{Name: c.name, Namespace: w.Namespace, Workload: strings.ToLower(w.Kind) + "/" + w.Name, Ready: w.Ready, Wanted: w.Wanted}
	for _, image := range w.Images {
		if (Workload{Images: []string{image}}).runs(c.name) {
			out.Version = tag(image)
		}
	}
	namespace, name := c.election(w)
	if at := slices.IndexFunc(e.Leases, func(l Lease) bool { return name != "" && l.Namespace == namespace && l.Name == name }); at >= 0 {
		out = e.led(out, e.Leases[at])
	} else if name != "" && e.LeaseProblem == "" {
		out.Problem = fmt.Sprintf("there is no Lease %s/%s, with which it elects its leader", namespace, name)
	}
	switch {
	case w.Wanted == 0:
		out.Problem = "it is scaled to 0"
	case w.Ready == 0:
		out.Problem = "no pod of " + prose.Plural(w.Wanted, "pod") + " is ready"
	}
	return out
}

// led adds what a Lease shows of its leader.
func (e ControllerEvidence) led(c Component, l Lease) Component {
	c.Leader = l.Holder
	if !l.Renewed.IsZero() {
		renewed := l.Renewed
		c.Renewed = &renewed
	}
	switch {
	case l.Holder == "":
		c.Problem = "its Lease has no holder"
	case e.Now.Sub(l.Renewed) > leaseStale:
		c.Problem = "its Lease is no longer renewed"
	}
	return c
}
