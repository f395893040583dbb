// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
)

const (
	// asItWas is the stage before us and after us.
	asItWas    = "as the upstream project leaves it"
	ourImage   = "registry.example/digitalocean-cloud-controller-manager:v1"
	theirImage = upstream.CloudImage
)

// The upstream project's Deployment with another image takes over what the upstream project left, and changes nothing. Then machines and
// Services come and go, and all of it is as the upstream project would have left it. Then the upstream project's image runs again, and finds
// what it expects.
func TestFromThePredecessorAndBack(t *testing.T) {
	t.Parallel()
	w := newMoved(t)
	w.install(true)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		w.initialize(w.join(name))
	}
	w.serve()
	w.theirs(asItWas)
	before, things, settings := w.objects(), w.things(), w.deployment().Spec

	t.Log("what is shown")
	shown := w.runFromPage("## Preview", "")
	for name := range w.balanced {
		if !strings.Contains(shown, "default/"+name) {
			t.Errorf("the plan does not show Service %s:\n%s", name, shown)
		}
	}
	if !strings.Contains(shown, movedFirewall) {
		t.Errorf("the plan does not show the firewall:\n%s", shown)
	}

	t.Log("only the image changed")
	mark := w.cloud.Mark()
	w.runFromPage("## Change only the image", ourImage)
	settings.Template.Spec.Containers[0].Image = ourImage
	if diff := cmp.Diff(settings, w.deployment().Spec); diff != "" {
		t.Errorf("more than the image has changed:\n%s", diff)
	}
	p := w.startPod()
	w.looked(p)
	w.nothingSent(mark, "taking over")
	after := w.objects()
	w.likely(before, after)
	w.theirs("taken over")

	t.Log("life goes on")
	w.life()
	w.theirs("after some life with ours")

	t.Log("rollback")
	mark = w.cloud.Mark()
	w.runFromPage("### Rollback", theirImage)
	p.Stop()
	if p.ExitCode() != 0 {
		t.Errorf("exit code %d", p.ExitCode())
	}
	w.nothingSent(mark, "ending")
	settings.Template.Spec.Containers[0].Image = theirImage
	if diff := cmp.Diff(settings, w.deployment().Spec); diff != "" {
		t.Errorf("the Deployment is not the one that it was:\n%s", diff)
	}
	w.publishAgain()
	w.theirs(asItWas)
	w.leaves(things)
}

// The release file goes over the upstream project's, two replicas take over, one leads, and nothing is changed; then the upstream project's
// file again.
func TestFromThePredecessorToTwoReplicasAndBack(t *testing.T) {
	t.Parallel()
	w := newMoved(t)
	w.install(true)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		w.initialize(w.join(name))
	}
	w.serve()
	objects, things, installed := w.objects(), w.things(), w.installed()

	mark := w.cloud.Mark()
	w.runFromPage("## Two replicas, fewer rights and probes", ourImage)
	spec := w.deployment().Spec
	if container := spec.Template.Spec.Containers[0]; *spec.Replicas != 2 || container.Image != ourImage || container.LivenessProbe == nil {
		t.Errorf("%d replicas of %+v", *spec.Replicas, container)
	}
	pods := []*pod{w.startPod(), w.startPod()}
	leader := w.leader(pods...)
	w.looked(leader)
	w.nothingSent(mark, "taking over with two replicas")
	w.likely(objects, w.objects())
	w.theirs("taken over with two replicas")
	for _, p := range pods {
		p.Stop()
		if strings.Contains(p.Output(), "forbidden") {
			t.Error("the release's rights are not enough")
		}
	}

	t.Log("rollback")
	w.runFromPage("### Rollback from two replicas", theirImage)
	if diff := cmp.Diff(installed, w.installed()); diff != "" {
		t.Errorf("the upstream project's objects (- before, + after):\n%s", diff)
	}
	w.publishAgain()
	w.theirs(asItWas)
	w.leaves(things)
}

// leader waits until one of the Pods leads.
func (w *moved) leader(pods ...*pod) *pod {
	w.t.Helper()
	var found *pod
	testkit.Eventually(w.t, "a leader", func() string {
		for _, p := range pods {
			if strings.Contains(p.Output(), acquired) {
				found = p
				return ""
			}
		}
		return "nobody leads"
	})
	return found
}

// install applies the upstream project's file as its users do, with their settings in it.
func (w *moved) install(firewall bool) {
	w.t.Helper()
	env := map[string]string{"REGION": "nyc1", "DO_CLUSTER_ID": movedCluster, "DO_CLUSTER_VPC_ID": movedVPC, "DO_OVERRIDE_URL": w.url, "METRICS_ADDR": "127.0.0.1:9100"}
	if firewall {
		env["PUBLIC_ACCESS_FIREWALL_NAME"], env["PUBLIC_ACCESS_FIREWALL_TAGS"] = movedFirewall, workerTag
	}
	w.must(os.WriteFile(filepath.Join(w.dir, "predecessor.yml"), theirFile(w.t, env), 0o600))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "digitalocean", Namespace: metav1.NamespaceSystem}, StringData: map[string]string{"access-token": movedToken},
	}
	_, err := w.cluster.Client.CoreV1().Secrets(metav1.NamespaceSystem).Create(w.t.Context(), secret, metav1.CreateOptions{})
	w.must(err)
	w.kubectl("apply", "-f", "predecessor.yml")
}

// serve makes Services of all sorts, their load balancers and the firewall, as the upstream project does.
func (w *moved) serve() {
	w.t.Helper()
	certificate, err := w.outside.CreateCertificate(digitalocean.CertificateSpec{Name: "web", DNSNames: []string{"web.example.com"}})
	w.must(err)
	for _, b := range kinds(certificate.ID) {
		if refused := w.balance(w.create(b), b); refused != "" {
			w.t.Fatalf("the upstream project's request for Service %s: %s", b.service.Name, refused)
		}
	}
	w.nodePort("direct")
	if status, answer := w.call(http.MethodPost, "/v2/firewalls", w.firewallBody()); status != http.StatusAccepted {
		w.t.Fatalf("the upstream project's request for the firewall: %d %s", status, answer)
	}
}

func (w *moved) nodePort(name string) {
	w.t.Helper()
	s := written(name, nil, 8080)
	s.Spec.Type = corev1.ServiceTypeNodePort
	_, err := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Create(w.t.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

// likely fails unless the objects are the same to the last resourceVersion, but for the record of a Service's load balancer. The status of a
// Service with the PROXY protocol alone may say so.
func (w *moved) likely(before, after map[string]string) {
	w.t.Helper()
	recorded := map[string]bool{}
	for name, content := range after {
		recorded[name] = strings.Contains(content, loadbalancer.ConditionHeld)
	}
	for _, objects := range []map[string]string{before, after} {
		for name, content := range objects {
			if !recorded[name] {
				continue
			}
			var s corev1.Service
			w.must(json.Unmarshal([]byte(content), &s))
			s.ResourceVersion, s.ManagedFields = "", nil
			for i := range s.Status.LoadBalancer.Ingress {
				if s.Annotations[annotation.EnableProxyProtocol] == "true" {
					s.Status.LoadBalancer.Ingress[i].IPMode = nil
				}
			}
			s.Status.Conditions = withoutRecord(s.Status.Conditions)
			objects[name] = text(w.t, s)
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		w.t.Errorf("the cluster was changed:\n%s", diff)
	}
}

// withoutRecord are the conditions but for the one that records which load balancer a Service has.
func withoutRecord(conditions []metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range conditions {
		if c.Type != loadbalancer.ConditionHeld {
			out = append(out, c)
		}
	}
	return out
}

// life is what happens in a cluster while ours runs: a machine joins, another is destroyed, Services come, change and go.
func (w *moved) life() {
	w.t.Helper()
	services := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	w.join("node-4")
	w.must(w.outside.DeleteDroplet("node-3"))
	w.droplets = slices.DeleteFunc(w.droplets, func(id int) bool { return id == 103 })
	_, err := w.cluster.Client.CoreV1().Nodes().PatchStatus(w.t.Context(), "node-3", []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`))
	w.must(err)
	w.create(balanced{service: written("new", nil, 81), request: network})
	w.nodePort("another")
	port := `[{"op":"add","path":"/spec/ports/-","value":{"name":"more","port":8088,"targetPort":8080}}]`
	_, err = services.Patch(w.t.Context(), "network", types.JSONPatchType, []byte(port), metav1.PatchOptions{})
	w.must(err)
	w.must(services.Delete(w.t.Context(), "internal", metav1.DeleteOptions{}))
	delete(w.balanced, "internal")
	testkit.Eventually(w.t, "all to be as it must", w.incomplete)
	w.settle()
}

// incomplete says what is not done yet.
func (w *moved) incomplete() string {
	nodes, services := w.cluster.Client.CoreV1().Nodes(), w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := nodes.Get(w.t.Context(), "node-3", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Sprintf("node-3 is there (%v)", err)
	}
	if n, err := nodes.Get(w.t.Context(), "node-4", metav1.GetOptions{}); err != nil || uninitialized(n) || len(n.Status.Addresses) == 0 {
		return fmt.Sprintf("node-4 is %+v (%v)", n, err)
	}
	if _, err := services.Get(w.t.Context(), "internal", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Sprintf("Service internal is there (%v)", err)
	}
	for name := range w.balanced {
		s, err := services.Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil || len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Sprintf("Service %s is %+v (%v)", name, s, err)
		}
		lb := w.balancer(s)
		if !slices.Equal(lb.DropletIDs, w.droplets) || len(lb.ForwardingRules) != len(s.Spec.Ports) {
			return fmt.Sprintf("the load balancer of %s is %+v", name, lb)
		}
	}
	var want digitalocean.Firewall
	w.must(json.Unmarshal([]byte(text(w.t, w.firewallBody())), &want))
	return cmp.Diff(w.rulesOf(want), w.rulesOf(w.outside.Firewalls()[0]))
}

// uninitialized reports that a Node has the taint that it came with.
func uninitialized(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// publishAgain writes the addresses of all Services as the upstream project does at its start, when it ensures each of them.
func (w *moved) publishAgain() {
	w.t.Helper()
	services := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	for name := range w.balanced {
		s, err := services.Get(w.t.Context(), name, metav1.GetOptions{})
		w.must(err)
		s.Status.LoadBalancer.Ingress = theirIngress(s, w.balancer(s))
		_, err = services.UpdateStatus(w.t.Context(), s, metav1.UpdateOptions{})
		w.must(err)
	}
}

// leaves fails unless what has come since is what the page lists, and is gone after the page's clean-up.
func (w *moved) leaves(before map[string]bool) {
	w.t.Helper()
	const heading = "## What it leaves"
	known := map[string]bool{}
	for line := range strings.Lines(migrationPage(w.t)) {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.Contains(cells[2], "`") {
			known[strings.TrimSpace(cells[1])+"/"+strings.Split(cells[2], "`")[1]] = true
		}
	}
	left := w.things()
	maps.DeleteFunc(left, func(name string, _ bool) bool { return before[name] })
	for name := range left {
		if !known[name] {
			w.t.Errorf("%s is left and the page does not name it", name)
		}
	}
	if !left["Lease/digitalocean-cloud-controller-manager-account"] {
		w.t.Errorf("the account is not recorded: %v are left", left)
	}
	w.runFromPage(heading, "")
	if diff := cmp.Diff(before, w.things()); diff != "" {
		w.t.Errorf("after the page's clean-up (- before, + after):\n%s", diff)
	}
}
