// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/page"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// worldOf is a cluster of so many machines, one of them without a Node, in three zones; of small ones one in sixteen disagrees and one in
// twenty-five is unknown, of large ones a tenth of that.
func worldOf(machines int) ui.World {
	machines--
	rare := 1
	if machines >= 1000 {
		rare = 10
	}
	now := time.Now()
	w := ui.World{
		Cluster: "production at https://203.0.113.1:6443", ReadAt: now, Zones: map[string]string{}, Notes: []string{"DigitalOcean not queried: there is no token in DO_ACCESS_TOKEN"},
		Candidates: machines, Excluded: []ui.Excluded{{Node: "worker-00002", Reason: "is being deleted"}},
	}
	groups := map[string]*topology.Zone{}
	for i := range machines {
		name, zone := fmt.Sprintf("worker-%05d", i+1), fmt.Sprintf("fra1-%c", 'a'+i%3)
		r := agreement.Row{Machine: name, Droplet: fmt.Sprintf("droplet %d", 4000+i), Node: "Ready", CalicoNode: name, Reflector: "none", Verdict: finding.Agree, HasNode: true}
		switch {
		case i%(16*rare) == 1:
			since := now.Add(-time.Duration(i+3) * time.Minute)
			r.Verdict, r.Droplet, r.Node = finding.Disagree, r.Droplet+", gone", "NotReady"
			r.Findings = []finding.Verdict{{State: r.Verdict, What: r.Droplet[:len(r.Droplet)-6] + " is gone, and its Node still exists", Since: &since}}
		case i%(25*rare) == 3:
			r.Verdict, r.Findings = finding.Unknown, []finding.Verdict{{State: finding.Unknown, What: "the cloud could not be read: 429 Too Many Requests"}}
		}
		w.Machines, w.Zones[name] = append(w.Machines, r), zone
		if groups[zone] == nil {
			groups[zone] = &topology.Zone{Name: zone}
		}
		groups[zone].Clients = append(groups[zone].Clients, name)
	}
	w.Machines = append(w.Machines, agreement.Row{
		Machine: "left-behind", Droplet: "none", Node: "none", CalicoNode: "left-behind", Reflector: "none", Verdict: finding.Disagree,
		Findings: []finding.Verdict{{State: finding.Disagree, What: "there is a Calico Node and no Kubernetes Node"}},
	})
	g := topology.Group{ClusterID: "244.0.0.1", Clients: machines, Reflectors: []topology.Reflector{
		{Node: "reflector-1", Zone: "fra1-a", Role: "Reflector", Expected: machines, Established: machines},
		{Node: "reflector-2", Zone: "fra1-b", Role: "Reflector", Expected: machines, Established: machines - 1},
	}}
	for _, zone := range []string{"fra1-a", "fra1-b", "fra1-c"} {
		if groups[zone] != nil {
			g.Zones = append(g.Zones, *groups[zone])
		}
	}
	w.Topologies = []topology.Map{{Name: "main", Phase: "Ready", Mode: "Flat", Mesh: "Off", Clients: machines, Groups: []topology.Group{g}}}
	lists(&w, min(machines, 300), now)
	return w
}

// object is one as the API server writes it.
type object map[string]any

// tenant is an EtcdStorage. This package's tests do not know its type.
func tenant(of object) (t ui.Tenant) {
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		panic(err)
	}
	return t
}

// lists fills in the tables.
func lists(w *ui.World, n int, now time.Time) {
	w.Waits = []finding.Verdict{{
		What: "3 machines are held back by the gate MassGuard of calico-node-sync: gone-1, gone-2, gone-3", Why: "3 machines are gone at once, at most 2 pass", ObservedAt: now,
		State: finding.Held, Next: "kubectl mooring confirm nodes 3f2a9c01d4be",
	}}
	w.CheckedAt = now
	w.Findings = []finding.Finding{
		{Check: "replicas", Severity: finding.Problem, What: "Deployment mooring-system/calico-node-sync has no ready pod of 2", Why: "calico-node-sync does nothing", Do: "see why"},
		{Check: "rbac", Severity: finding.Warning, Unread: true, What: "not read: rights: forbidden", Why: "problems there are not found", Do: "ask for the right to read it"},
		{Check: "leader", Severity: finding.OK, What: "somebody leads"},
	}
	for i := range max(2, n/10) {
		b := ui.Balancer{ID: fmt.Sprintf("8b5f8e1e-%04d", i)}
		b.Namespace, b.Name, b.CreationTimestamp = "shop", fmt.Sprintf("front-%d", i+1), metav1.NewTime(now.Add(-time.Duration(i)*time.Hour))
		b.Spec.Ports = []corev1.ServicePort{{Protocol: "TCP", Port: 443, NodePort: 30443}, {Protocol: "UDP", Port: 443, NodePort: 30444}}
		if i%3 == 2 {
			b.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		b.Verdict = finding.Verdict{State: finding.Disagree, What: "status.loadBalancer is empty", Since: new(b.CreationTimestamp.Time)}
		if i != 1 {
			b.Verdict = finding.Verdict{State: finding.Agree}
			b.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", i+1)}}
		}
		w.Balancers = append(w.Balancers, b)
		v := volumes.Row{
			Volume: fmt.Sprintf("pvc-%04d", i), ID: fmt.Sprintf("506f78a4-%04d", i), Claim: fmt.Sprintf("shop/data-%d", i), Pods: []string{fmt.Sprintf("shop/db-%d", i)}, Droplet: i + 1, GiB: 100,
			State: volumes.InUse, Verdict: finding.Agree,
		}
		if i == 1 {
			v.Verdict, v.Findings = finding.Disagree, []finding.Verdict{{State: finding.Disagree, What: "its volume is gone: DigitalOcean answers 404 for its ID", Next: "restore it from a snapshot or a backup"}}
		}
		w.Volumes.Volumes = append(w.Volumes.Volumes, v)
		ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-48 * time.Hour))}
		stored := int64(i+1) * 3 << 20
		if i == 1 {
			stored, ready.Status, ready.Reason, ready.Message = 63<<20, metav1.ConditionFalse, "QuotaExceeded", "it stores as much as it may: growth is refused"
		}
		ten := tenant(object{
			"metadata": object{"name": fmt.Sprintf("tenant-%d", i+1)},
			"spec":     object{"quota": object{"bytes": "64Mi", "keys": 10_000}},
			"status": object{
				"proxies": "3/3", "conditions": []metav1.Condition{ready}, "usage": object{"bytes": fmt.Sprint(stored), "keys": (i + 1) * 913, "leases": i},
			},
		})
		w.Tenants = append(w.Tenants, ten)
	}
	for i := range max(4, n) {
		e := finding.Event{
			At: now.Add(-time.Duration(i*7) * time.Minute), Source: "calico-node-sync", About: fmt.Sprintf("worker-%05d", i+1), Reason: "Journaled",
			Text: "5 steps, because its Node is gone and DigitalOcean has no such droplet", Count: 1,
		}
		if i%5 == 2 {
			e.Source, e.About, e.Reason, e.Text = "digitalocean-cloud-controller-manager", "Service shop/front-2", "SyncLoadBalancerFailed", "the account has no load balancer left"
			e.Warning, e.Count = true, int32(i)
		}
		w.Entries = append(w.Entries, e)
	}
}

// source is a cluster that a test changes.
type source struct {
	mu    sync.Mutex
	world ui.World
	err   error
	reads int
}

func (s *source) read(context.Context) (ui.World, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.world, s.err
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// serve serves a source until the test ends.
func serve(t *testing.T, s *source, c clock.PassiveClock) *page.Server {
	t.Helper()
	server, err := page.Listen(t.Context(), 0, nil, s.read, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return server
}

// quietClock stands still until a test moves it.
func quietClock() *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}
