// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// recording is what is needed of loadbalancer-vectors.json: requests that the unmodified predecessor made.
type recording struct {
	Meta struct {
		FakeAPI struct {
			Certificates []struct{ ID, Name string }
		} `json:"fake_api"`
	}
	Services []corev1.Service
	Vectors  []struct {
		ID, Service int
		Context     string
		NodeSet     string `json:"node_set"`
		Error       string
		Request     json.RawMessage
	}
}

// Load balancers are made by the recorded requests of the upstream project, byte for byte but for what is the cluster's own (names made of UIDs, node
// ports), each with the Service that it was recorded for. Ours takes all of them over, and nothing is sent and nothing is written. What the
// API server or DigitalOcean refuses today was never there.
func TestTakesOverWhatThePredecessorWasRecordedToMake(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(testkit.Shared(t, "data", "digitalocean", "loadbalancer-vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all recording
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	w := newMoved(t)
	w.install(false)
	for i, name := range []string{"node-1", "node-2", "node-3"} {
		d := w.join(name)
		if w.initialize(d); d.ID != 101+i {
			t.Fatalf("droplet %s has the ID %d", name, d.ID)
		}
	}
	for _, c := range all.Meta.FakeAPI.Certificates {
		_, err := w.outside.CreateCertificate(digitalocean.CertificateSpec{ID: c.ID, Name: c.Name, Custom: true})
		w.must(err)
	}
	step, count := 1, map[string]int{}
	if testing.Short() {
		step = 24
	}
	for i, v := range all.Vectors {
		if i%step != 0 || v.Context != "net" || v.NodeSet != "v4x3" || v.Error != "" {
			continue
		}
		count["recorded"]++
		count[w.replay(fmt.Sprint("v-", v.ID), all.Services[v.Service].DeepCopy(), v.Request)]++
	}
	t.Logf("requests: %v", count)
	if taken := len(w.balanced); taken == 0 || taken*2 < count["recorded"] {
		t.Errorf("of %d recorded load balancers just %d could be made", count["recorded"], taken)
	}
	before, mark := w.objects(), w.cloud.Mark()
	p := w.startPod()
	w.looked(p)
	w.nothingSent(mark, "taking over")
	if refused := p.counted(t, `mooring_digitalocean_loadbalancer_syncs_total{outcome="refused"}`); refused > 0 {
		t.Errorf("%d Services are refused that the upstream project served", refused)
	}
	w.likely(before, w.objects())
}

// replay makes a Service and its load balancer, and returns what became of that.
func (w *moved) replay(name string, s *corev1.Service, recorded json.RawMessage) string {
	w.t.Helper()
	old := s.Spec.DeepCopy()
	s.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: maps.Clone(s.Annotations)}
	delete(s.Annotations, annotation.LoadBalancerID)
	s.Status, s.Spec.Type, s.Spec.HealthCheckNodePort = corev1.ServiceStatus{}, corev1.ServiceTypeLoadBalancer, 0
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
	services := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(w.t.Context(), s.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return "refused by the API server"
	}
	b := balanced{service: s, request: func(s *corev1.Service) object { return w.renumbered(s, old, recorded) }}
	created := w.create(b)
	if refused := w.balance(created, b); refused != "" {
		w.must(services.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
		delete(w.balanced, name)
		return "refused by DigitalOcean"
	}
	return "taken over"
}

// renumbered is a recorded request with the Service's own name and node ports.
func (w *moved) renumbered(s *corev1.Service, old *corev1.ServiceSpec, recorded json.RawMessage) object {
	w.t.Helper()
	var body object
	w.must(json.Unmarshal(recorded, &body))
	if s.Annotations[annotation.Name] == "" {
		body["name"] = plain(s, "", "")["name"]
	}
	ofPort := func(match func(corev1.ServicePort) bool) (int32, bool) {
		if i := slices.IndexFunc(old.Ports, match); i >= 0 {
			return s.Spec.Ports[i].NodePort, true
		}
		return 0, false
	}
	if body["type"] == annotation.TypeRegional {
		for _, r := range body["forwarding_rules"].([]any) {
			entry := r.(object)["entry_port"].(float64)
			if to, found := ofPort(func(p corev1.ServicePort) bool { return float64(p.Port) == entry }); found {
				r.(object)["target_port"] = to
			}
		}
	}
	check := body["health_check"].(object)
	// A Service of policy Local without such a port exists only where no API server is.
	if port, _ := check["port"].(float64); s.Spec.HealthCheckNodePort != 0 && port == float64(checkedPort(&corev1.Service{Spec: *old})) {
		check["port"] = s.Spec.HealthCheckNodePort
	} else if to, found := ofPort(func(p corev1.ServicePort) bool { return p.NodePort != 0 && float64(p.NodePort) == port }); found {
		check["port"] = to
	}
	return body
}
