// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// squatters is a namespace whose author is another.
const squatters = "squatters"

// history is a cluster to which things happen, and what must be true of it at any time and at the end.
type history struct {
	t      *testing.T
	b      *bubble
	random *rand.Rand
	plan   death // of the first leader
	next   int   // number of the next object
	told   []string

	alive    map[string]bool   // Nodes whose droplets are there: they must never go
	lost     map[string]bool   // Nodes whose droplets are gone: they must go in the end
	services map[string]string // Services that want a load balancer, by name, and their UIDs
	deleting map[string]string // Services that are being deleted, or were
	names    map[string]string // every name that a load balancer was to have, and whose
	opened   opened            // NodePort Services
	// strangers are load balancers of another cluster and of people, by ID: nothing may be done to them, whoever names them.
	strangers map[string]sim.LoadBalancer
	// squatters are Services of the namespace of that name, which name load balancers of others.
	squatters map[string]bool
	tally     tally

	foreignFirewall sim.Firewall
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	random := seeded(seed)
	h := &history{
		t: t, random: random, alive: map[string]bool{}, lost: map[string]bool{}, services: map[string]string{}, deleting: map[string]string{},
		names: map[string]string{}, opened: opened{}, strangers: map[string]sim.LoadBalancer{},
		squatters: map[string]bool{},
	}
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	h.b = newBubble(t, sim.Options{
		Seed: seed, Latency: 20*time.Millisecond + upTo(300*time.Millisecond),
		Consistency:   sim.Consistency{Get: upTo(2 * time.Second), List: upTo(8 * time.Second)},
		LoadBalancers: sim.LoadBalancerOptions{ActiveAfter: upTo(2 * time.Minute), BusyAfterUpdate: upTo(20 * time.Second)},
	})
	h.b.watch, h.b.extras = h.watch, everything
	return h
}

// say adds to the story that is told if the history fails.
func (h *history) say(format string, args ...any) {
	h.told = append(h.told, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// wrong ends the history with its story.
func (h *history) wrong(format string, args ...any) {
	h.t.Helper()
	var calls []string
	for _, e := range h.b.cloud.Requests(journal.Filter{}) {
		if e.Method != http.MethodGet {
			calls = append(calls, fmt.Sprintf("%s %s %s %d %s applied=%t", e.Time.Format("15:04:05"), e.Method, e.URL, e.Status, e.Fault, e.Applied))
		}
	}
	var events []string
	for _, e := range h.b.events() {
		if e.Type == corev1.EventTypeWarning {
			events = append(events, fmt.Sprintf("%s %s %s: %s", e.FirstTimestamp.Format("15:04:05"), e.InvolvedObject.Name, e.Reason, e.Message))
		}
	}
	slices.Sort(events)
	h.t.Errorf("%s\n%s\nwrites:\n%s\nwarnings:\n%s", fmt.Sprintf(format, args...), strings.Join(h.told, "\n"), strings.Join(calls, "\n"), strings.Join(events, "\n"))
}

func (h *history) begin() {
	h.t.Helper()
	h.b.add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "uid-kubernetes"}})
	for range 3 + h.random.IntN(4) {
		name := h.name("node")
		h.b.member(name)
		h.alive[name] = true
	}
	made := []string{
		h.stranger("another-clusters", "k8s:another"), h.stranger("kube-api"), h.stranger("by-hand", loadbalancer.ClusterTag(clusterID)),
	}
	var err error
	nobodys := []string{"k8s:another"}
	if h.foreignFirewall, err = h.b.cloud.Account("").CreateFirewall(sim.Firewall{
		Name: "another-clusters", Tags: &nobodys, InboundRules: []sim.InboundRule{{Protocol: "tcp", Ports: "80", Sources: everyone()}},
	}); err != nil {
		h.t.Fatal(err)
	}
	elapse(5 * time.Minute) // until views have caught up
	for _, id := range made {
		h.strangers[id] = must.Get(h.b.cloud.Account("").LoadBalancer(id)).Or(h.t)
	}
	h.addService()
	h.b.start(h.plan)
}

// stranger makes a load balancer that is none of the program's, and returns its ID.
func (h *history) stranger(name string, tags ...string) string {
	h.t.Helper()
	var droplets []int
	for _, d := range h.b.cloud.Account("").Droplets() {
		droplets = append(droplets, d.ID)
	}
	lb := must.Get(h.b.cloud.Account("").CreateLoadBalancer(sim.LoadBalancer{
		Name: name, Region: &sim.Region{Slug: "nyc1"}, Tags: tags, DropletIDs: droplets,
		ForwardingRules: []sim.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 80}},
	})).Or(h.t)
	return lb.ID
}

// squat makes a Service in another namespace that names a load balancer of somebody, by its ID or by its name.
func (h *history) squat() {
	h.t.Helper()
	name := h.name("squatter")
	key, value := annotation.LoadBalancerID, ""
	all := slices.Sorted(maps.Keys(h.strangers))
	switch victim := all[h.random.IntN(len(all))]; {
	case h.random.IntN(3) == 0:
		key, value = annotation.Name, h.strangers[victim].Name
		h.names[value] = name
	case h.random.IntN(2) == 0:
		value = victim
	default:
		ours := h.ours()
		if len(ours) == 0 {
			return
		}
		value = ours[h.random.IntN(len(ours))].ID
	}
	h.say("... %s: %s=%s", name, key, value)
	h.b.serve(name, int32(1000+h.next), func(s *corev1.Service) { //nolint:gosec // there are few
		s.Namespace, s.Annotations = squatters, map[string]string{key: value}
	})
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: must.Get(h.b.store.CoreV1().Services(squatters).Get(h.t.Context(), name, metav1.GetOptions{})).Or(h.t).UID}}
	h.names[cloudprovider.DefaultLoadBalancerName(&service)] = name
	h.squatters[name] = true
	h.tally.squatters++
}

// evict deletes a Service of another namespace that names somebody's load balancer.
func (h *history) evict(name string) {
	h.t.Helper()
	h.say("... %s goes", name)
	delete(h.squatters, name)
	h.deleting[name] = "uid-" + name
	h.b.remove(squatters, name)
}

// forget takes the status away from a Service whose load balancer has its default name, as a restore from a backup does.
func (h *history) forget() {
	h.t.Helper()
	name := h.one(h.services)
	if name == "" || h.b.service(name).Annotations[annotation.Name] != "" {
		return
	}
	h.say("... %s", name)
	h.tally.forgotten++
	h.b.change(name, func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} })
}

// succeed gives the cluster another leader if the last one was killed, as soon as its lease has run out, and reports whether it did.
func (h *history) succeed(plan death) bool {
	h.t.Helper()
	if !h.b.process.isDead() {
		return false
	}
	h.say("another leader, killed at %+v", plan)
	h.tally.leaders++
	h.b.process.ended()
	elapse(15 * time.Second)
	h.b.start(plan)
	return true
}

func (h *history) name(kind string) string {
	h.next++
	return fmt.Sprintf("%s-%d", kind, h.next)
}

func (h *history) addService() {
	h.t.Helper()
	if len(h.services) >= 5 {
		return
	}
	name := h.name("service")
	h.b.serve(name, int32(1000+h.next)) //nolint:gosec // there are few
	h.services[name] = "uid-" + name
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: h.b.service(name).UID}}
	h.names[cloudprovider.DefaultLoadBalancerName(&service)] = name
}

// one returns any of some names, always the same by one seed.
func (h *history) one(of map[string]string) string {
	all := slices.Sorted(maps.Keys(of))
	if len(all) == 0 {
		return ""
	}
	return all[h.random.IntN(len(all))]
}

func (h *history) deleteService() {
	h.t.Helper()
	name := h.one(h.services)
	if name == "" {
		return
	}
	h.say("... %s", name)
	h.deleting[name] = h.services[name]
	delete(h.services, name)
	h.b.remove("default", name)
}

func (h *history) editService(suffix, value string) {
	h.t.Helper()
	name := h.one(h.services)
	if name == "" {
		return
	}
	if suffix == "name" {
		if owner, taken := h.names[value]; taken && owner != name {
			return
		}
		h.names[value] = name
	}
	h.say("... %s: %s=%s", name, suffix, value)
	h.b.change(name, func(s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[annotation.Prefix+suffix] = value
	})
}

func (h *history) joinNode() {
	h.t.Helper()
	name := h.name("node")
	h.b.boot(name)
	h.alive[name] = true
	elapse(30 * time.Second)
	h.b.join(name)
}

// loseDroplet deletes a droplet; its Node is silent from then on. Two are always left. A Node that was not initialized yet names no droplet, so
// that nobody can say that it is gone: those are left alone.
func (h *history) loseDroplet() {
	h.t.Helper()
	names := slices.Sorted(maps.Keys(h.alive))
	name := names[h.random.IntN(len(names))]
	if len(names) < 3 || h.b.node(name).Spec.ProviderID == "" {
		return
	}
	h.say("... %s", name)
	delete(h.alive, name)
	h.lost[name] = true
	must.Do(h.t, h.b.cloud.Account("").DeleteDroplet(name))
	h.b.unready(name)
}

func (h *history) silence() {
	h.t.Helper()
	names := slices.Sorted(maps.Keys(h.alive))
	h.b.unready(names[h.random.IntN(len(names))])
}

// ours are the load balancers that are not strangers.
func (h *history) ours() []sim.LoadBalancer {
	return slices.DeleteFunc(h.b.cloud.Account("").LoadBalancers(), func(lb sim.LoadBalancer) bool { return h.strangers[lb.ID].ID != "" })
}

func (h *history) editElsewhere() {
	h.t.Helper()
	if all := h.ours(); len(all) > 0 {
		lb := all[h.random.IntN(len(all))]
		h.say("... %s", lb.Name)
		must.Do(h.t, h.b.cloud.Account("").EditLoadBalancer(lb.ID, func(lb *sim.LoadBalancer) {
			lb.DropletIDs = nil
			lb.RedirectHTTPToHTTPS = !lb.RedirectHTTPToHTTPS
		}))
	}
}

func (h *history) deleteElsewhere() {
	h.t.Helper()
	if all := h.ours(); len(all) > 0 {
		lb := all[h.random.IntN(len(all))]
		h.say("... %s", lb.Name)
		must.Do(h.t, h.b.cloud.Account("").DeleteLoadBalancer(lb.ID))
	}
}

// watch looks at each request before it is sent: nothing is deleted that a Service still wants, and what is another cluster's is left alone.
func (h *history) watch(r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	h.watchFirewall(r)
	id := path.Base(strings.TrimSuffix(r.URL.Path, "/droplets"))
	if stranger, is := h.strangers[id]; is {
		h.t.Errorf("%s %s is about load balancer %s, which is not the cluster's", r.Method, r.URL.Path, stranger.Name)
	}
	lb, err := h.b.cloud.Account("").LoadBalancer(id)
	if err != nil {
		return // there is none yet, or none any more
	}
	if r.Method != http.MethodDelete || strings.HasSuffix(r.URL.Path, "/droplets") {
		if lb.Status != "active" {
			h.t.Errorf("%s %s: load balancer %s is %s", r.Method, r.URL.Path, lb.Name, lb.Status)
		}
		return
	}
	if owner := h.names[lb.Name]; h.deleting[owner] == "" {
		h.t.Errorf("load balancer %s of Service %q is deleted, which wants it", lb.Name, owner)
	}
}

// check says what must be true at any time.
func (h *history) check() {
	h.t.Helper()
	for name := range h.alive {
		if !h.b.has(name) {
			h.wrong("Node %s is gone, and its droplet is there", name)
		}
	}
	h.checkFirewall()
	owners := map[string]int{}
	for _, lb := range h.ours() {
		owners[h.names[lb.Name]]++
	}
	for owner, n := range owners {
		if n > 1 {
			h.wrong("Service %q has %d load balancers", owner, n)
		}
	}
	for id, was := range h.strangers {
		lb, err := h.b.cloud.Account("").LoadBalancer(id)
		lb.DropletIDs = was.DropletIDs // a droplet that is deleted leaves it
		if err != nil || !reflect.DeepEqual(lb, was) {
			h.wrong("a load balancer that is not the cluster's was %+v and is %+v, %v", was, lb, err)
		}
	}
}

// end lets all be well again, and waits until all is as it must be.
func (h *history) end() {
	h.t.Helper()
	h.say("the end begins")
	h.b.cloud.ClearFaults()
	h.succeed(death{})
	for name := range maps.Clone(h.squatters) {
		h.evict(name)
	}
	problem := "not looked yet"
	for range 8 {
		elapse(15 * time.Minute)
		begun := h.succeed(death{})
		h.check()
		if problem = h.unsettled(); problem == "" && !begun { // one that has just begun has not looked yet
			break
		}
	}
	if problem != "" {
		h.wrong("after two hours: %s", problem)
	}
	h.count()
	h.b.cloud.ResetJournal()
	elapse(20 * time.Minute)
	if stats := h.b.cloud.Stats(); problem == "" && stats.Writes() > 0 {
		h.wrong("all is as it must be, and there are %d writes", stats.Writes())
	}
	h.b.stop()
}

// count counts what happened.
func (h *history) count() {
	for _, e := range h.b.cloud.Requests(journal.Filter{}) {
		h.tally.calls++
		if e.Fault != "" {
			h.tally.faults++
		}
		switch member := strings.HasSuffix(e.Route, "}"); {
		case e.Status == http.StatusTooManyRequests:
			h.tally.limited++
		case !e.Applied || e.Method == http.MethodGet:
		case e.Route == "POST /v2/load_balancers":
			h.tally.made++
		case e.Method == http.MethodDelete && member:
			h.tally.deleted++
		default:
			h.tally.changed++
		}
	}
	h.tally.nodesGone = len(h.lost)
}

// unsettled says what is not yet as it must be in the end.
func (h *history) unsettled() string {
	for name := range h.lost {
		if h.b.has(name) {
			return "Node " + name + " is there, and its droplet is gone"
		}
	}
	for name := range h.deleting {
		namespace := "default"
		if strings.HasPrefix(name, "squatter") {
			namespace = squatters
		}
		if _, err := h.b.store.CoreV1().Services(namespace).Get(h.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Service %s is still there: %v", name, err)
		}
	}
	all := h.ours()
	if len(all) != len(h.services) {
		return fmt.Sprintf("%d load balancers for %d Services: %+v", len(all), len(h.services), all)
	}
	addresses := h.b.addresses()
	for _, lb := range all {
		owner := h.names[lb.Name]
		switch service := h.b.service(owner); {
		case lb.Status != "active" || lb.RedirectHTTPToHTTPS:
			return fmt.Sprintf("load balancer %+v", lb)
		case len(lb.DropletIDs) != len(h.alive):
			return fmt.Sprintf("load balancer %s has %d droplets, want %d", lb.Name, len(lb.DropletIDs), len(h.alive))
		case addresses[owner] != lb.IP:
			return fmt.Sprintf("Service %s shows %q, its load balancer has %s", owner, addresses[owner], lb.IP)
		case service.Annotations[annotation.LoadBalancerID] != lb.ID:
			return fmt.Sprintf("Service %s names load balancer %s, its is %s", owner, service.Annotations[annotation.LoadBalancerID], lb.ID)
		case service.Annotations[annotation.Name] != "" && service.Annotations[annotation.Name] != lb.Name:
			return fmt.Sprintf("Service %s wants the name %s for its load balancer, which is %s", owner, service.Annotations[annotation.Name], lb.Name)
		case lb.EnableProxyProtocol != (service.Annotations[annotation.Prefix+"enable-proxy-protocol"] == "true"):
			return fmt.Sprintf("load balancer %s is not as Service %s wants it", lb.Name, owner)
		}
	}
	return h.unsettledExtras()
}
