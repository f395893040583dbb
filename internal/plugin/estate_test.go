// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// estateStage is a cluster with ID ours, whose account has something of everybody's.
type estateStage struct {
	volumesStage

	cloud *sim.Simulator
	api   *doapi.Client
	// ids are what was made at DigitalOcean, by what it is.
	ids map[string]string
	// before is what happens before a request reaches DigitalOcean.
	before func(*http.Request)
}

func newEstateStage(t *testing.T) *estateStage {
	t.Helper()
	clearEnvironment(t)
	s := &estateStage{volumesStage: volumesStage{T: t, cluster: controlplane.Lend(t)}, ids: map[string]string{}, before: func(*http.Request) {}}
	// DigitalOcean's clock was two hours slow when all was made: nothing is new.
	s.cloud = sim.New(sim.Options{Seed: 1, Clock: clocktesting.NewFakeClock(time.Now().Add(-2 * time.Hour))})
	s.account = s.cloud.Account("")
	handler := s.cloud.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.before(r)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("DO_OVERRIDE_URL", server.URL)
	t.Setenv("DO_ACCESS_TOKEN", sim.DefaultToken)
	s.fill(server.URL)
	return s
}

// fill makes what everybody has.
func (s *estateStage) fill(url string) {
	s.Helper()
	ctx, client := s.Context(), s.cluster.Client
	droplet, err := s.account.CreateDroplet(sim.DropletSpec{Name: "estate-1", Tags: []string{"k8s:ours"}})
	s.must(err)
	makeNode(s.T, s.cluster, "estate-1", providerid.Format(droplet.ID), "", nil)
	s.after(client.CoreV1().Nodes().Delete, "estate-1")
	for name, tags := range map[string][]string{"left": {"k8s:ours"}, "held": {"k8s:ours"}, "theirs": {"k8s:theirs"}, "persons": {"web"}} {
		lb, err := s.account.CreateLoadBalancer(sim.LoadBalancer{
			Name: name, Type: "REGIONAL", SizeUnit: 1, Tags: tags, DropletIDs: []int{droplet.ID},
			ForwardingRules: []sim.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080}},
		})
		s.must(err)
		s.ids[name] = lb.ID
	}
	certificate, err := s.account.CreateCertificate(sim.CertificateSpec{Name: loadbalancer.ManagedName([]string{"a.example.com"}), DNSNames: []string{"a.example.com"}})
	s.must(err)
	s.must(s.account.SetCertificateState(certificate.ID, "verified"))
	s.ids["certificate"] = certificate.ID
	firewall, err := s.account.CreateFirewall(sim.Firewall{
		Name: "public", Tags: &[]string{"k8s:ours"},
		InboundRules: []sim.InboundRule{{Protocol: "tcp", Ports: "80", Sources: sim.Peers{Addresses: []string{"0.0.0.0/0"}}}},
	})
	s.must(err)
	s.ids["firewall"] = firewall.ID
	s.ids["volume"] = s.volume("pvc-estate", "k8s:ours")
	s.claim("estate", s.ids["volume"])
	s.ids["orphan"] = s.volume("pvc-orphan", "k8s:ours")
	s.api, err = doapi.New(doapi.Options{URL: url, Token: doapi.StaticToken(sim.DefaultToken)})
	s.must(err)
	snapshot, err := s.api.CreateSnapshot(ctx, s.ids["volume"], "clone-pvc-copy", []string{"k8s:ours"})
	s.must(err)
	s.ids["snapshot"] = snapshot.ID
	s.service("held", func(v *corev1.Service) {
		v.Status.Conditions = []metav1.Condition{{
			Type: loadbalancer.ConditionHeld, Status: metav1.ConditionTrue, Reason: loadbalancer.RecordMade, Message: s.ids["held"], LastTransitionTime: metav1.Now(),
		}}
	})
	labels := map[string]string{"app": "ccm"}
	_, err = client.AppsV1().Deployments(metav1.NamespaceSystem).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "ccm"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "ccm", Image: "registry.example.com:5000/mooring/digitalocean-cloud-controller-manager:v0.1.0", Env: []corev1.EnvVar{
					{Name: "DO_CLUSTER_ID", Value: "ours"}, {Name: "PUBLIC_ACCESS_FIREWALL_NAME", Value: "public"}, {Name: "PUBLIC_ACCESS_FIREWALL_TAGS", Value: "k8s:ours, "},
				},
			}}},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.after(client.AppsV1().Deployments(metav1.NamespaceSystem).Delete, "ccm")
}

// after deletes an object when the test is over, if it is still there: the cluster is lent.
func (s *estateStage) after(remove func(ctx context.Context, name string, options metav1.DeleteOptions) error, name string) {
	s.Cleanup(func() {
		if err := remove(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	})
}

// service makes a Service with a status in namespace default.
func (s *estateStage) service(name string, change func(*corev1.Service)) {
	s.Helper()
	v := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	change(v)
	made, err := s.cluster.Client.CoreV1().Services("default").Create(s.Context(), v, metav1.CreateOptions{})
	s.must(err)
	made.Status = v.Status
	_, err = s.cluster.Client.CoreV1().Services("default").UpdateStatus(s.Context(), made, metav1.UpdateOptions{})
	s.must(err)
	s.after(s.cluster.Client.CoreV1().Services("default").Delete, name)
}

// states are the states of what was made, "" of what is not listed.
func (s *estateStage) states() (map[string]estate.State, estate.Report) {
	s.Helper()
	code, out, errs := run(s.T, []string{"estate", "--kubeconfig", s.cluster.Kubeconfig, "-o", "json"})
	var r estate.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 2 || errs != "" {
		s.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	states := map[string]estate.State{}
	for what, id := range s.ids {
		for _, o := range r.Objects {
			if o.ID == id {
				states[what] = o.State
			}
		}
	}
	return states, r
}

// there is what exists at DigitalOcean of what was made.
func (s *estateStage) there() []string {
	ids := map[string]bool{}
	for _, lb := range s.account.LoadBalancers() {
		ids[lb.ID] = true
	}
	for _, c := range s.account.Certificates() {
		ids[c.ID] = true
	}
	for _, f := range s.account.Firewalls() {
		ids[f.ID] = true
	}
	for _, v := range s.account.Volumes() {
		ids[v.ID] = true
	}
	for _, snapshot := range s.account.Snapshots() {
		ids[snapshot.ID] = true
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.ids)), func(what string) bool { return !ids[s.ids[what]] })
}

// remove runs the command.
func (s *estateStage) remove(code int, kind, what string, yes bool, wants ...string) {
	s.Helper()
	args := []string{"estate", "remove", kind, s.ids[what], "--kubeconfig", s.cluster.Kubeconfig}
	if yes {
		args = append(args, "--yes")
	}
	expect(s.T, code, "", args, wants...)
}

// The command reads a real API server and DigitalOcean: what each thing is, what it costs, and what is unknown where a list fails or hides tags.
func TestEstate(t *testing.T) {
	s := newEstateStage(t)
	want := map[string]estate.State{
		"left": estate.Unreferenced, "held": estate.Referenced, "certificate": estate.Unreferenced, "firewall": estate.Referenced, "volume": estate.Referenced, "orphan": estate.Unreferenced,
		"snapshot": estate.Unreferenced, // theirs and the person's are not listed
	}
	states, r := s.states()
	if diff := cmp.Diff(want, states); diff != "" || r.Others != 2 || len(r.NotRead) > 0 {
		t.Errorf("%d others, not read %q: %s", r.Others, r.NotRead, diff)
	}
	if r.Droplets.Nodes != 1 || r.Droplets.MonthlyCents != 2400 || r.Droplets.Unpriced != 0 {
		t.Errorf("%+v", r.Droplets)
	}
	out := expect(t, 2, "", []string{"estate", "--kubeconfig", s.cluster.Kubeconfig}, "Nothing refers to:\n  load balancer left ("+s.ids["left"]+"), $12.00 a month\n",
		"    next: kubectl mooring estate remove load-balancer "+s.ids["left"]+" --yes\n", "$12.00 a month: Service default/held\n", "Deployment kube-system/ccm\n")
	if strings.Contains(out, s.ids["theirs"]) || strings.Contains(out, s.ids["persons"]) {
		t.Errorf("what is somebody else's is listed: %s", out)
	}

	asked := []string{"doctor", "estate", "--kubeconfig", s.cluster.Kubeconfig}
	expect(t, 2, "", asked, "warning  estate: nothing refers to load balancer left (", "do:  kubectl mooring estate remove load-balancer ", "0 problems, 4 warnings, 0 notes, 0 ok\n")

	for _, test := range []struct {
		route, side string
		unknown     []string
	}{
		{"GET /v2/load_balancers", "load balancers: ", []string{"left", "held", "certificate"}},
		{"GET /v2/certificates", "certificates: ", []string{"certificate"}},
		{"GET /v2/volumes", "volumes: ", []string{"orphan", "snapshot"}},
		{"GET /v2/snapshots", "volumes: snapshots at DigitalOcean: ", []string{"snapshot"}},
	} {
		s.must(s.cloud.Inject(fault.Rule{Route: test.route, Kind: fault.Error, Status: http.StatusForbidden, Nth: 1, Times: -1}))
		states, r := s.states()
		for what, state := range want {
			switch got := states[what]; {
			case slices.Contains(test.unknown, what) && (got == estate.Unreferenced || got == estate.Referenced):
				t.Errorf("%s fails: %s is %q", test.route, what, got)
			case !slices.Contains(test.unknown, what) && got != state:
				t.Errorf("%s fails: %s is %q", test.route, what, got)
			}
		}
		if !slices.ContainsFunc(r.NotRead, func(n string) bool { return strings.HasPrefix(n, test.side) }) {
			t.Errorf("%s fails, and not read is %q", test.route, r.NotRead)
		}
		s.cloud.ClearFaults()
	}
	s.hidden()
	clearEnvironment(t)
	expect(t, 0, "", asked, "note     estate: what nothing refers to at DigitalOcean is not known: DigitalOcean is not queried: there is no token in DO_ACCESS_TOKEN\n")
	expect(t, 1, "", []string{"estate", "--kubeconfig", s.cluster.Kubeconfig}, "error: DigitalOcean is not queried: there is no token in DO_ACCESS_TOKEN")
}

// hidden is a token that may not see tags: what only a tag would show is not called anybody's or nobody's.
func (s *estateStage) hidden() {
	s.Helper()
	for what, id := range s.ids {
		if slices.Contains([]string{"left", "held", "theirs", "persons"}, what) {
			s.must(s.account.EditLoadBalancer(id, func(lb *sim.LoadBalancer) { lb.Tags = nil })) // the description of load balancers has no tags
		}
	}
	s.account.AddToken(sim.Token{Value: "tagless", Scopes: []string{
		"account:read", "load_balancer:read", "certificate:read", "droplet:read", "firewall:read", "sizes:read", "regions:read", "block_storage:read", "api:read", "api:write", "snapshot:read",
	}})
	s.Setenv("DO_ACCESS_TOKEN", "tagless")
	states, r := s.states()
	if states["left"] != "" || states["held"] != estate.Referenced || !slices.ContainsFunc(r.NotRead, func(n string) bool {
		return strings.HasPrefix(n, "tags: DigitalOcean shows no tags with this token (scope tag:read), so that nothing shows whether 3 load balancers ")
	}) {
		s.Errorf("without tags: %v, not read %q", states, r.NotRead)
	}
}

// Only what nothing refers to is removed, after it was shown, and read again right before.
func TestEstateRemove(t *testing.T) {
	s := newEstateStage(t)
	all := s.there()
	s.remove(2, "load-balancer", "left", false, "This would be deleted: load balancer left (", "Nothing was deleted. To delete it: kubectl mooring estate remove load-balancer ")
	s.remove(1, "load-balancer", "left", true, "it is not recorded which account this cluster's droplets are in")
	s.recordAccount()
	for _, yes := range []bool{false, true} {
		s.remove(1, "load-balancer", "held", yes, "is not removed: Service default/held leads to it")
		s.remove(1, "load-balancer", "theirs", yes, "error: there is no load balancer "+s.ids["theirs"]+" of this cluster")
		s.remove(1, "load-balancer", "persons", yes, "error: there is no load balancer "+s.ids["persons"]+" of this cluster")
		s.remove(1, "volume", "volume", yes, "is not removed: PersistentVolume pvc-estate and claim default/estate lead to it")
		s.remove(1, "firewall", "firewall", yes, `error: unsupported kind "firewall": use certificate, load-balancer, snapshot, volume`)
	}
	s.must(s.cloud.Inject(fault.Rule{Route: "GET /v2/load_balancers", Kind: fault.Error, Status: http.StatusForbidden, Nth: 1, Times: -1}))
	s.remove(1, "certificate", "certificate", true, "whether somebody leads to it is not certain: load balancers could not be read")
	s.cloud.ClearFaults()
	s.alive()
	if diff := cmp.Diff(all, s.there()); diff != "" {
		t.Fatalf("something was deleted: %s", diff)
	}

	for what, kind := range map[string]string{"left": "load-balancer", "certificate": "certificate", "snapshot": "snapshot", "orphan": "volume"} {
		s.remove(0, kind, what, true, "Deleted "+strings.ReplaceAll(kind, "-", " ")+" ")
		s.remove(1, kind, what, true, "error: there is no ")
	}
	if diff := cmp.Diff([]string{"firewall", "held", "persons", "theirs", "volume"}, s.there()); diff != "" {
		t.Error(diff)
	}
	deletions := 0
	for _, e := range s.cloud.Requests(journal.Filter{}) {
		if e.Method == http.MethodDelete {
			deletions++
		}
	}
	if deletions != 4 {
		t.Errorf("%d requests to delete", deletions)
	}
}

// recordAccount records whose droplets the cluster's are, first wrongly.
func (s *estateStage) recordAccount() {
	s.Helper()
	account, err := s.api.Account(s.Context())
	s.must(err)
	leases := s.cluster.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Create(s.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "digitalocean-cloud-controller-manager-account", Annotations: map[string]string{"cloud.mooring.dev/account": "another"},
	}}, metav1.CreateOptions{})
	s.must(err)
	s.after(leases.Delete, lease.Name)
	s.remove(1, "load-balancer", "left", true, "error: the token is one of account ")
	lease.Annotations = map[string]string{"cloud.mooring.dev/account": account.UUID, "cloud.mooring.dev/team": account.Team}
	_, err = leases.Update(s.Context(), lease, metav1.UpdateOptions{})
	s.must(err)
}

// alive makes something lead to each object while it is being removed: it stays.
func (s *estateStage) alive() {
	s.Helper()
	for i, lead := range []struct {
		kind, what, path string
		change           func(*corev1.Service)
	}{
		{"load-balancer", "left", "/v2/load_balancers/", func(v *corev1.Service) { v.Annotations[annotation.LoadBalancerID] = s.ids["left"] }},
		{"certificate", "certificate", "/v2/certificates/", func(v *corev1.Service) { v.Annotations[annotation.CertificateDomains] = "a.example.com" }},
	} {
		name := fmt.Sprintf("late-%d", i)
		s.before = func(r *http.Request) {
			if r.Method == http.MethodGet && r.URL.Path == lead.path+s.ids[lead.what] {
				s.service(name, lead.change)
			}
		}
		s.remove(1, lead.kind, lead.what, true, "is not removed: Service default/"+name)
		s.before = func(*http.Request) {}
		s.must(s.cluster.Client.CoreV1().Services("default").Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
}
