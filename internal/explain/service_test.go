// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// web is a Service with a load balancer and two Nodes, one of which has no provider ID yet.
func web(annotations map[string]string) explain.ServiceEvidence {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "0000-1111", Annotations: annotations},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}, {Name: "https", Port: 443, NodePort: 30443, Protocol: corev1.ProtocolTCP},
		}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}
	node := func(name, id string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.7"}}},
		}
	}
	return explain.ServiceEvidence{
		Now: now, Cloud: finding.Side{NotAsked: "there is no token"},
		Input: loadbalancer.Input{Service: service, Nodes: []*corev1.Node{node("a", "digitalocean://11"), node("b", "")}, Cluster: loadbalancer.Cluster{Region: "nyc1"}},
	}
}

// What each annotation gives is what the planner would send without it.
func TestServiceAnnotations(t *testing.T) {
	t.Parallel()
	e := web(map[string]string{
		annotation.Type: "REGIONAL", annotation.HTTPPorts: "80", annotation.TLSPorts: "443", annotation.CertificateName: "shop", annotation.AllowRules: "cidr:10.0.0.0/8",
		annotation.Hostname: "web.example.com", annotation.Algorithm: "round_robin", annotation.LoadBalancerID: "lb-1", annotation.Prefix + "unheard-of": "x",
	})
	got := explain.Service(e)
	says(t, got, true, // a warning
		"asks for: a load balancer of DigitalOcean (type LoadBalancer, no class)", "has: load balancer lb-1", "answers at: 203.0.113.9",
		"DigitalOcean: not queried: there is no token", "assumed: that the droplets and certificates of the Service exist",
		"forwards: https:443 → http:30443 with certificate (shop)",
		`http-ports: "80": forwards http:80 → http:30080`, `allow-rules: "cidr:10.0.0.0/8": allows cidr:10.0.0.0/8`,
		`hostname: "web.example.com": changes nothing that is sent. The Service's status shows this name, in lower case, instead of the load balancer's addresses.`,
		"targets: 2: a (droplet 11), b (no provider ID yet)",
	)
	silent(t, got, "refused", "left out", "to change", "kubernetes.digitalocean.com/load-balancer-id")
	golden(t, "service-annotations", got)
}

// What is refused is said in the planner's words, once for each thing; nothing is said of what a refused annotation would give.
func TestServiceRefused(t *testing.T) {
	t.Parallel()
	e := web(map[string]string{annotation.Type: "REGIONAL", annotation.Protocol: "gopher", annotation.SizeUnit: "2"})
	e.Input.Service.Status = corev1.ServiceStatus{}
	_, err := loadbalancer.Desired(e.Input)
	got := explain.Service(e)
	says(t, got, true, "!answers at: nothing yet: status.loadBalancer is empty", "!refused: "+err.Error(),
		`protocol: "gopher": it is refused, see above`, `size-unit: "2": The number of the load balancer's own nodes. It can be changed once an hour.`)
	silent(t, got, "load balancer", "forwards")
	golden(t, "service-refused", got)
}

// Each Node that gets no traffic is named with the reason; one that somebody wants left out needs no attention.
func TestServiceNodes(t *testing.T) {
	t.Parallel()
	e := web(nil)
	e.Input.Nodes[0].Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	says(t, explain.Service(e), false, "left out: node a has the label node.kubernetes.io/exclude-from-external-load-balancers")
	e.Input.Nodes[0].Labels = nil
	for i, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} { // a part of the Nodes is not ready, then all are
		e.Input.Nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		want := []string{"targets: 2: a (droplet 11), b (no provider ID yet)", []string{
			"not ready: 1: a: they stay targets, and the health check of the load balancer leaves them out", "!not ready: 2: a, b: they stay targets, and the health check of the load balancer leaves them out",
		}[i]}
		says(t, explain.Service(e), i == 1, want...)
	}
	e.Input.Nodes[0].Status.Conditions, e.Input.Nodes[1].Status.Conditions = nil, nil
	e.Input.Nodes[0].Labels = nil
	e.Input.Nodes[0].Status.Addresses = nil
	says(t, explain.Service(e), true, "!left out: node a has no IPv4 address", "targets: 1: b (no provider ID yet)")
	e.Input.Nodes[0].Labels = map[string]string{loadbalancer.NetworkTypeLabel: "private"} // which the controller does not warn of either
	says(t, explain.Service(e), false, "left out: node a has no IPv4 address")
	e.Input.Nodes[0].Labels = nil
	e.Input.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
	says(t, explain.Service(e), false, "left out: node a has no IPv4 address")
	for range 25 {
		e.Input.Nodes = append(e.Input.Nodes, e.Input.Nodes[0])
	}
	says(t, explain.Service(e), false, "left out: 6 more")
}

// With DigitalOcean's word nothing is taken for granted, and what there is is compared with what must be.
func TestServiceObserved(t *testing.T) {
	t.Parallel()
	e := web(map[string]string{annotation.LoadBalancerID: "lb-1"})
	e.Cloud = finding.Side{}
	says(t, explain.Service(e), true, "!left out: node b has no provider ID, and no droplet matches its name", "targets: 1: a (droplet 11)")
	e.Input.Nodes = e.Input.Nodes[:1]
	result, err := loadbalancer.Desired(e.Input)
	if err != nil {
		t.Fatal(err)
	}
	o := loadbalancer.Observed{ID: "lb-1", Name: "by-hand", Status: loadbalancer.StatusNew, Type: result.Request.Type, Network: result.Request.Network}
	e.Input.Observed = &o
	got := explain.Service(e)
	says(t, got, true, `!state: load balancer "by-hand" (lb-1) is being made`)
	silent(t, got, "DigitalOcean", "assumed")
	differences := 0
	for _, line := range flat(got) {
		if len(line) > 11 && line[:11] == "!to change:" {
			differences++
		}
	}
	if want := len(loadbalancer.Diff(o, mustDesire(t, e.Input))); differences != want || want == 0 {
		t.Errorf("%d differences are told, want %d", differences, want)
	}
	e.Input.Observed, e.Lost = nil, true
	says(t, explain.Service(e), true, "has: load balancer lb-1", "!trouble: DigitalOcean has no load balancer lb-1 that this token may see")
	e.Cloud = finding.Side{Problem: "reading load balancer lb-1: 401"}
	says(t, explain.Service(e), true, "!DigitalOcean: not known: reading load balancer lb-1: 401")
}

func mustDesire(t *testing.T, in loadbalancer.Input) loadbalancer.Request {
	t.Helper()
	result, err := loadbalancer.Desired(in)
	if err != nil {
		t.Fatal(err)
	}
	return result.Request
}

// Of a Service that asks for nothing there is nothing to say, not even what its Events warn of.
func TestServiceOfAnotherKind(t *testing.T) {
	t.Parallel()
	e := web(nil)
	e.Input.Service.Spec.Type = corev1.ServiceTypeClusterIP
	e.Events = []finding.Event{{At: now, Warning: true, Reason: "X", Text: "x", Source: "y"}}
	got := explain.Service(e)
	says(t, got, false, "asks for: no load balancer of DigitalOcean: the service gets no load balancer from DigitalOcean: service shop/web is of type ClusterIP, not LoadBalancer")
	silent(t, got, "load balancer", "targets", "answers at")
}

// The verdict is the same in explain, status and the page; what is settling has an end.
func TestJudgeOfALoadBalancer(t *testing.T) {
	t.Parallel()
	const describe, edit = "kubectl -n shop describe service web", "change what is refused: kubectl -n shop edit service web"
	const see = "see what digitalocean-cloud-controller-manager reports: " + describe
	empty := func(e *explain.ServiceEvidence, old time.Duration) {
		e.Input.Service.Status, e.Input.Service.CreationTimestamp = corev1.ServiceStatus{}, metav1.NewTime(now.Add(-old))
	}
	deleted := func(e *explain.ServiceEvidence, ago time.Duration) {
		e.Input.Service.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)}
	}
	for name, test := range map[string]struct {
		change     func(e *explain.ServiceEvidence)
		state      finding.State
		text, next string
	}{
		"well":       {func(*explain.ServiceEvidence) {}, finding.Agree, "", ""},
		"of no kind": {func(e *explain.ServiceEvidence) { e.Input.Service.Spec.Type = corev1.ServiceTypeClusterIP }, finding.Agree, "", ""},
		"being made": {func(e *explain.ServiceEvidence) { empty(e, 4*time.Minute) }, finding.Settling, "the Service is 4m old, and DigitalOcean takes some minutes to make a load balancer", ""},
		"not made":   {func(e *explain.ServiceEvidence) { empty(e, 6*time.Minute) }, finding.Disagree, "status.loadBalancer is empty (since 6m)", see},
		"of no time": {func(e *explain.ServiceEvidence) { e.Input.Service.Status = corev1.ServiceStatus{} }, finding.Disagree, "status.loadBalancer is empty", see},
		"to come":    {func(e *explain.ServiceEvidence) { empty(e, -time.Hour) }, finding.Disagree, "status.loadBalancer is empty (since 0s)", see},
		"deleted":    {func(e *explain.ServiceEvidence) { deleted(e, time.Minute) }, finding.Settling, "it is being deleted; finalizers that hold it: none (since 60s)", ""},
		"hangs":      {func(e *explain.ServiceEvidence) { deleted(e, time.Hour) }, finding.Disagree, "it is being deleted; finalizers that hold it: none (since 60m)", see},
		"new, deleted": {func(e *explain.ServiceEvidence) {
			empty(e, time.Minute)
			deleted(e, 0)
		}, finding.Settling, "it is being deleted; finalizers that hold it: none (since 0s)", ""},
		"refused": {func(e *explain.ServiceEvidence) {
			e.Input.Service.Annotations = map[string]string{annotation.Type: "x"}
		}, finding.Disagree, "*", edit},
		"lost": {func(e *explain.ServiceEvidence) {
			e.Input.Service.Annotations, e.Lost = map[string]string{annotation.LoadBalancerID: "lb-1"}, true
		}, finding.Disagree, "DigitalOcean has no load balancer lb-1 that this token may see", "digitalocean-cloud-controller-manager makes another within minutes; if not: " + describe},
		"no Nodes": {func(e *explain.ServiceEvidence) { e.Input.Nodes = nil }, finding.Disagree, "no node is ready for the load balancer: the cluster has no nodes", see},
		"no targets": {func(e *explain.ServiceEvidence) {
			e.Input.Observed = &loadbalancer.Observed{ID: "lb-1", Status: loadbalancer.StatusActive, IP: "203.0.113.9"}
		}, finding.Disagree, "at DigitalOcean it has no targets, and should have 2", see},
		"another's": {func(e *explain.ServiceEvidence) {
			empty(e, time.Hour)
			e.Input.Service.Spec.LoadBalancerClass = new("example.com/other")
		}, finding.Disagree, "status.loadBalancer is empty (since 60m)", "see what its controller reports: " + describe},
	} {
		e := web(nil)
		test.change(&e)
		v := e.Judge()
		if v.State != test.state || test.text != "*" && v.Text(now) != test.text || test.text == "*" && v.What == "" || v.Next != test.next {
			t.Errorf("%s: %s, %q, next %q", name, v.State, v.Text(now), v.Next)
		}
		got := explain.Service(e)
		if got.Attention != v.State.NeedsAttention() {
			t.Errorf("%s: explain differs: %v", name, flat(got))
		}
	}
}

// A Service is given some minutes for its load balancer before somebody has to look.
func TestServiceIsNew(t *testing.T) {
	t.Parallel()
	e := web(nil)
	e.Input.Service.Status = corev1.ServiceStatus{}
	e.Input.Service.CreationTimestamp = metav1.NewTime(e.Now.Add(-90 * time.Second))
	says(t, explain.Service(e), false, "answers at: nothing yet: the Service is 90s old, and DigitalOcean takes some minutes to make a load balancer")
	e.Now = e.Now.Add(4 * time.Minute)
	says(t, explain.Service(e), true, "!answers at: nothing yet: status.loadBalancer is empty (since 5m)")
}

// One that is refused is promised nothing, by whatever it is seen; one that only waits, or whose trouble is over, is.
func TestServiceIsNewAndRefused(t *testing.T) {
	t.Parallel()
	const promise, refusal = "answers at: nothing yet: the Service is 90s old, and DigitalOcean takes", "!answers at: nothing yet: status.loadBalancer is empty"
	event := func(ago time.Duration, warning bool, reason string) finding.Event {
		return finding.Event{At: now.Add(-ago), Warning: warning, Reason: reason, Text: "x", Source: "y", Unverified: true}
	}
	for name, tt := range map[string]struct {
		pairs    []string
		owned    metav1.ConditionStatus
		events   []finding.Event
		promised bool
	}{
		"a wrong value":         {pairs: []string{annotation.Prefix + "type", "x"}},
		"another's":             {owned: metav1.ConditionFalse},
		"its own":               {owned: metav1.ConditionTrue, promised: true},
		"DigitalOcean refuses":  {events: []finding.Event{event(time.Minute, true, "SyncLoadBalancerFailed")}},
		"it is over":            {events: []finding.Event{event(time.Minute, true, "SyncLoadBalancerFailed"), event(0, false, "LoadBalancerPending")}, promised: true},
		"some Node is left out": {events: []finding.Event{event(time.Minute, true, "LoadBalancerNodesLeftOut")}, promised: true},
	} {
		annotations := map[string]string{}
		for i := 0; i < len(tt.pairs); i += 2 {
			annotations[tt.pairs[i]] = tt.pairs[i+1]
		}
		e := web(annotations)
		e.Input.Service.Status = corev1.ServiceStatus{}
		if tt.owned != "" {
			e.Input.Service.Status.Conditions = []metav1.Condition{{Type: "cloud.mooring.dev/LoadBalancerOwned", Status: tt.owned, Reason: "X"}}
		}
		e.Input.Service.CreationTimestamp, e.Events = metav1.NewTime(e.Now.Add(-90*time.Second)), tt.events
		got, want := strings.Join(flat(explain.Service(e)), "\n"), refusal
		if tt.promised {
			want = promise
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Defaults of the cluster are told from the Service's own annotations; a disowned load balancer, a deletion and conditions are told.
func TestServiceStanding(t *testing.T) {
	t.Parallel()
	e := web(map[string]string{annotation.Disown: "true"})
	e.Input.Cluster.Defaults = annotation.Defaults{annotation.SizeUnit: "3"}
	deleted := metav1.NewTime(now.Add(-5 * time.Minute))
	e.Input.Service.DeletionTimestamp, e.Input.Service.Finalizers = &deleted, []string{"service.kubernetes.io/load-balancer-cleanup"}
	e.Input.Service.Status.Conditions = []metav1.Condition{{Type: "LoadBalancerPortsError", Status: metav1.ConditionTrue, Reason: "Ports", Message: "no UDP"}}
	says(t, explain.Service(e), true,
		"disowned: nothing is sent, annotation service.kubernetes.io/do-loadbalancer-disown forbids it", `size-unit: "3", a default of the cluster: option size 3`,
		"!deletion: it is being deleted; finalizers that hold it: service.kubernetes.io/load-balancer-cleanup (since 5m)", "condition: LoadBalancerPortsError is True, Ports: no UDP")
}

// A load balancer is not well by an old report: while the cloud component does not work, after the last outcome was a
// failure however long ago, or when DigitalOcean has lost it. Each time there is a next step.
func TestServiceIsNotWellByAnOldReport(t *testing.T) {
	t.Parallel()
	e := web(nil)
	says(t, explain.Service(e), false, "answers at: 203.0.113.9")
	e.Unkept = "not kept up to date: digitalocean-cloud-controller-manager: its Lease is no longer renewed"
	says(t, explain.Service(e), true, "!reported: "+e.Unkept, "next: kubectl mooring doctor controllers")

	const next = "next: see what digitalocean-cloud-controller-manager reports: kubectl -n shop describe service web"
	e = web(nil)
	e.Events = []finding.Event{{
		At: now.Add(-50 * time.Minute), Warning: true, Reason: loadbalancer.ReasonFailed, Source: "service-controller", Text: "422",
	}}
	says(t, explain.Service(e), true, "!trouble: "+loadbalancer.ReasonFailed+" 50m ago: 422", next)
	e = web(nil)
	e.Input.Service.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)}
	says(t, explain.Service(e), true, next)
	e = web(map[string]string{annotation.LoadBalancerID: "lb-1"})
	e.Lost = true
	says(t, explain.Service(e), true, "next: digitalocean-cloud-controller-manager makes another within minutes; if not: "+
		"kubectl -n shop describe service web")
}
