// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const (
	// firewallName and workerTag are the firewall's, and the tag of the droplets that it covers.
	firewallName = "bubble-firewall"
	workerTag    = "k8s:worker"
	clusterID    = "bubble"
)

// everything are the controllers that the environment can ask for alongside the framework's: the firewall's and the tag's.
func everything(api *doapi.Client, common provider.Common) []provider.Extra {
	return []provider.Extra{
		firewalls.New(firewalls.Options{
			API: api, Surroundings: common, Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: firewalls.NewMetrics(prometheus.NewRegistry()),
			Config: firewall.Config{Name: firewallName, Tags: []string{workerTag}, DefaultType: annotation.TypeRegionalNetwork},
		}),
		clustertag.New(clustertag.Options{
			API: api, Surroundings: common, ClusterID: clusterID, Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: clustertag.NewMetrics(prometheus.NewRegistry()),
		}),
	}
}

// opened are the ports of NodePort Services of a history, by the name of the Service.
type opened map[string]int32

// everyone are the sources of a rule that lets everybody in.
func everyone() sim.Peers { return sim.Peers{Addresses: []string{"0.0.0.0/0", "::/0"}} }

// openPort makes a NodePort Service, of which there are four at most.
func (h *history) openPort() {
	h.t.Helper()
	if len(h.opened) >= 4 {
		return
	}
	name := h.name("port")
	port := int32(31000 + h.next) //nolint:gosec // there are few
	h.say("... %s opens %d", name, port)
	h.opened[name] = port
	h.b.add(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
			{Name: "web", Port: 80, NodePort: port, Protocol: corev1.ProtocolTCP},
		}},
	})
}

// closePort deletes a NodePort Service.
func (h *history) closePort() {
	h.t.Helper()
	names := make([]string, 0, len(h.opened))
	for name := range h.opened {
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	name := names[h.random.IntN(len(names))]
	h.say("... %s", name)
	delete(h.opened, name)
	must.Do(h.t, h.b.store.CoreV1().Services("default").Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}

// own are the firewalls that have the cluster's name.
func (h *history) firewalls() []sim.Firewall {
	return slices.DeleteFunc(h.b.cloud.Account("").Firewalls(), func(f sim.Firewall) bool { return f.ID == h.foreignFirewall.ID })
}

func (h *history) editFirewallElsewhere() {
	h.t.Helper()
	for _, f := range h.firewalls() {
		must.Do(h.t, h.b.cloud.Account("").EditFirewall(f.ID, func(f *sim.Firewall) {
			f.InboundRules = f.InboundRules[:len(f.InboundRules)/2]
			f.InboundRules = append(f.InboundRules, sim.InboundRule{Protocol: "tcp", Ports: "22", Sources: everyone()})
		}))
	}
}

func (h *history) deleteFirewallElsewhere() {
	h.t.Helper()
	for _, f := range h.firewalls() {
		must.Do(h.t, h.b.cloud.Account("").DeleteFirewall(f.ID))
	}
}

// untag takes the cluster's tag off a load balancer that its Service names; one that it does not name yet is known by its tag.
func (h *history) untag() {
	h.t.Helper()
	for _, lb := range h.ours() {
		owner := h.names[lb.Name]
		if _, wanted := h.services[owner]; !wanted || h.b.service(owner).Annotations[annotation.LoadBalancerID] != lb.ID {
			continue
		}
		h.say("... %s", lb.Name)
		if err := h.b.cloud.Account("").EditLoadBalancer(lb.ID, func(lb *sim.LoadBalancer) { lb.Tags = []string{"people"} }); err != nil {
			h.t.Fatal(err)
		}
		return
	}
}

// watchFirewall looks at a request before it is sent: no firewall is deleted, and another's is left alone.
func (h *history) watchFirewall(r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v2/firewalls") {
		return
	}
	if r.Method == http.MethodDelete || strings.Contains(r.URL.Path, h.foreignFirewall.ID) {
		h.t.Errorf("%s %s", r.Method, r.URL.Path)
	}
}

// checkFirewall says what must be true of firewalls at any time.
func (h *history) checkFirewall() {
	h.t.Helper()
	if all := h.firewalls(); len(all) > 1 {
		h.wrong("%d firewalls: %+v", len(all), all)
	}
	for _, f := range h.b.cloud.Account("").Firewalls() {
		if f.ID == h.foreignFirewall.ID && !cmp.Equal(f.InboundRules, h.foreignFirewall.InboundRules) {
			h.wrong("another's firewall has the rules %+v", f.InboundRules)
		}
	}
}

// unsettledExtras says what is not yet as it must be in the end: of the firewall, reckoned here from the Services alone, and of tags.
func (h *history) unsettledExtras() string {
	for _, lb := range h.ours() {
		if !slices.Contains(lb.Tags, loadbalancer.ClusterTag(clusterID)) {
			return fmt.Sprintf("load balancer %s has the tags %v", lb.Name, lb.Tags)
		}
	}
	want := map[string][]string{}
	open := func(port string, sources sim.Peers) {
		want["tcp "+port] = slices.Sorted(slices.Values(slices.Concat(sources.Addresses, sources.LoadBalancerUIDs)))
	}
	for _, port := range h.opened {
		open(fmt.Sprint(port), everyone())
	}
	var ids []string
	for _, lb := range h.ours() {
		ids = append(ids, lb.ID)
		open(fmt.Sprint(h.b.service(h.names[lb.Name]).Spec.Ports[0].Port), everyone())
	}
	if len(ids) > 0 {
		open("10256", sim.Peers{LoadBalancerUIDs: ids})
	}
	all := h.firewalls()
	if len(all) != 1 || all[0].Name != firewallName || all[0].Tags == nil || !slices.Contains(*all[0].Tags, workerTag) {
		if len(want) == 0 && len(all) == 0 {
			return ""
		}
		return fmt.Sprintf("the firewalls are %+v", all)
	}
	got := map[string][]string{}
	for _, r := range all[0].InboundRules {
		key := r.Protocol + " " + r.Ports
		got[key] = slices.Sorted(slices.Values(slices.Concat(got[key], r.Sources.Addresses, r.Sources.LoadBalancerUIDs)))
	}
	return cmp.Diff(want, got)
}
