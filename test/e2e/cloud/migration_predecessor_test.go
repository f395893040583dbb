// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// cleanup is the finalizer of Kubernetes' service controller.
const cleanup = "service.kubernetes.io/load-balancer-cleanup"

// balanced is a Service as its user wrote it, and what the upstream project makes of it.
type balanced struct {
	service *corev1.Service
	// request returns the body of the upstream project's POST and PUT (the facts, section 1.3; recorded in loadbalancer-vectors.json) for the Service as
	// the API server has stored it.
	request func(*corev1.Service) map[string]any
	// annotations are the user's own.
	annotations map[string]string
}

type object = map[string]any

// join makes a droplet and its Node, as a kubelet with --cloud-provider=external registers it.
func (w *moved) join(name string) digitalocean.Droplet {
	w.t.Helper()
	d, err := w.outside.CreateDroplet(digitalocean.DropletSpec{Name: name, VPCUUID: movedVPC, Tags: []string{workerTag}})
	w.must(err)
	w.droplets = append(w.droplets, d.ID)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}},
	}
	_, err = w.cluster.Client.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
	w.must(err)
	_, err = w.cluster.Client.CoreV1().Nodes().PatchStatus(w.t.Context(), name, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	w.must(err)
	return d
}

// theirNode is what the upstream project makes of a Node (the facts, section 1.5).
func theirNode(n *corev1.Node, d digitalocean.Droplet) {
	n.Spec.ProviderID = fmt.Sprintf("digitalocean://%d", d.ID)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
	if len(n.Spec.Taints) == 0 {
		n.Spec.Taints = nil
	}
	maps.Copy(n.Labels, map[string]string{
		corev1.LabelInstanceType: d.SizeSlug, corev1.LabelInstanceTypeStable: d.SizeSlug,
		corev1.LabelFailureDomainBetaRegion: d.Region.Slug, corev1.LabelTopologyRegion: d.Region.Slug,
	})
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: d.Name}}
	for _, kind := range []struct {
		network string
		address corev1.NodeAddressType
	}{{"private", corev1.NodeInternalIP}, {"public", corev1.NodeExternalIP}} {
		for _, v4 := range d.Networks.V4 {
			if v4.Type == kind.network {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind.address, Address: v4.IPAddress})
			}
		}
	}
}

// initialize writes a Node as the upstream project does.
func (w *moved) initialize(d digitalocean.Droplet) {
	w.t.Helper()
	nodes := w.cluster.Client.CoreV1().Nodes()
	n, err := nodes.Get(w.t.Context(), d.Name, metav1.GetOptions{})
	w.must(err)
	theirNode(n, d)
	status := n.Status
	n, err = nodes.Update(w.t.Context(), n, metav1.UpdateOptions{})
	w.must(err)
	n.Status = status
	_, err = nodes.UpdateStatus(w.t.Context(), n, metav1.UpdateOptions{})
	w.must(err)
}

// create creates a Service as a user does, and returns it as the API server has it.
func (w *moved) create(b balanced) *corev1.Service {
	w.t.Helper()
	s, err := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Create(w.t.Context(), b.service, metav1.CreateOptions{})
	w.must(err)
	b.annotations = maps.Clone(s.Annotations)
	w.balanced[s.Name] = b
	return s
}

// balance makes the load balancer of a Service as the upstream project does: the finalizer of the service controller, the POST, the two
// annotations, and the address when there is one. It returns DigitalOcean's answer if that is a refusal.
func (w *moved) balance(s *corev1.Service, b balanced) string {
	w.t.Helper()
	services := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	status, answer := w.call(http.MethodPost, "/v2/load_balancers", w.body(s, b))
	if status != http.StatusAccepted {
		return fmt.Sprintf("%d %s", status, answer)
	}
	var made struct {
		LoadBalancer digitalocean.LoadBalancer `json:"load_balancer"`
	}
	w.must(json.Unmarshal(answer, &made))
	s = s.DeepCopy()
	s.Finalizers = append(s.Finalizers, cleanup)
	w.theirAnnotations(s, made.LoadBalancer)
	s, err := services.Update(w.t.Context(), s, metav1.UpdateOptions{})
	w.must(err)
	s.Status.LoadBalancer.Ingress = theirIngress(s, w.balancer(s))
	_, err = services.UpdateStatus(w.t.Context(), s, metav1.UpdateOptions{})
	w.must(err)
	return ""
}

// body is the request of the upstream project with what is the cluster's: targets, tag and VPC.
func (w *moved) body(s *corev1.Service, b balanced) object {
	body := b.request(s)
	body["droplet_ids"], body["tags"], body["vpc_uuid"] = w.droplets, []string{"k8s:" + movedCluster}, movedVPC
	return body
}

// theirAnnotations are the two that the upstream project writes back.
func (w *moved) theirAnnotations(s *corev1.Service, lb digitalocean.LoadBalancer) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotation.LoadBalancerID], s.Annotations[annotation.Type] = lb.ID, lb.Type
}

// theirIngress is the status that the upstream project publishes: the hostname alone if there is one, else the addresses.
func theirIngress(s *corev1.Service, lb digitalocean.LoadBalancer) []corev1.LoadBalancerIngress {
	if name := s.Annotations[annotation.Hostname]; name != "" {
		return []corev1.LoadBalancerIngress{{Hostname: strings.ToLower(name)}}
	}
	out := []corev1.LoadBalancerIngress{{IP: lb.IP}}
	if lb.IPv6 != "" {
		out = append(out, corev1.LoadBalancerIngress{IP: lb.IPv6})
	}
	return out
}

// firewallBody is the upstream project's request for the firewall (the facts, section 1.6; firewall-vectors.json), for the Services of this test.
func (w *moved) firewallBody() object {
	w.t.Helper()
	list, err := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	everywhere := object{"addresses": []string{"0.0.0.0/0", "::/0"}}
	inbound := []object{}
	open := func(protocol corev1.Protocol, port int32, sources object) {
		rule := object{"protocol": strings.ToLower(string(protocol)), "ports": fmt.Sprint(port), "sources": sources}
		if !slices.ContainsFunc(inbound, func(o object) bool { return cmp.Equal(o, rule) }) {
			inbound = append(inbound, rule)
		}
	}
	for _, s := range list.Items {
		direct := s.Annotations[annotation.Type] == annotation.TypeRegionalNetwork && s.Annotations[annotation.Network] != "INTERNAL"
		for _, p := range s.Spec.Ports {
			switch {
			case s.Spec.Type == corev1.ServiceTypeNodePort:
				open(p.Protocol, p.NodePort, everywhere)
			case s.Spec.Type == corev1.ServiceTypeLoadBalancer && direct:
				open(p.Protocol, p.Port, everywhere)
			}
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && direct {
			open(corev1.ProtocolTCP, checkedPort(&s), object{"load_balancer_uids": []string{s.Annotations[annotation.LoadBalancerID]}})
		}
	}
	return object{
		"name": movedFirewall, "tags": []string{workerTag}, "droplet_ids": nil, "inbound_rules": inbound,
		"outbound_rules": []object{
			{"protocol": "tcp", "ports": "all", "destinations": everywhere}, {"protocol": "udp", "ports": "all", "destinations": everywhere},
			{"protocol": "icmp", "destinations": everywhere},
		},
	}
}

// checkedPort is the port of the health check: kube-proxy's, or the Service's own.
func checkedPort(s *corev1.Service) int32 {
	if s.Spec.HealthCheckNodePort != 0 {
		return s.Spec.HealthCheckNodePort
	}
	return 10256
}

// rulesOf are the inbound rules of the firewall at DigitalOcean, as a set.
func (w *moved) rulesOf(f digitalocean.Firewall) map[string]bool {
	out := map[string]bool{}
	for _, r := range f.InboundRules {
		slices.Sort(r.Sources.Addresses)
		out[text(w.t, r)] = true
	}
	return out
}

// theirs fails unless everything is as the upstream project leaves it: Nodes, Services, load balancers, the firewall. Load balancers and the
// firewall are held against the upstream project's own requests: it sends them at its start, whatever there is, and none of them changes anything.
func (w *moved) theirs(when string) {
	w.t.Helper()
	for _, d := range w.outside.Droplets() {
		n, err := w.cluster.Client.CoreV1().Nodes().Get(w.t.Context(), d.Name, metav1.GetOptions{})
		w.must(err)
		want := n.DeepCopy()
		want.Labels, want.Annotations = map[string]string{"kubernetes.io/hostname": d.Name}, nil
		theirNode(want, d)
		if diff := cmp.Diff(want, n); diff != "" {
			w.t.Errorf("%s: Node %s (- the upstream project's, + is):\n%s", when, d.Name, diff)
		}
	}
	list, err := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			w.theirService(when, s)
		}
	}
	if all := w.outside.LoadBalancers(); len(all) != len(w.balanced) {
		w.t.Errorf("%s: %d load balancers for %d Services", when, len(all), len(w.balanced))
	}
	firewalls := w.outside.Firewalls()
	if len(firewalls) != 1 {
		w.t.Fatalf("%s: firewalls %+v", when, firewalls)
	}
	status, answer := w.call(http.MethodPut, "/v2/firewalls/"+firewalls[0].ID, w.firewallBody())
	if status != http.StatusOK {
		w.t.Fatalf("%s: the upstream project's request for the firewall is answered %d %s", when, status, answer)
	}
	if diff := cmp.Diff(w.rulesOf(firewalls[0]), w.rulesOf(w.outside.Firewalls()[0])); diff != "" {
		w.t.Errorf("%s: the upstream project changes the firewall (- before, + after):\n%s", when, diff)
	}
}

// theirService compares one Service and its load balancer.
func (w *moved) theirService(when string, s *corev1.Service) {
	w.t.Helper()
	b, known := w.balanced[s.Name]
	if !known {
		w.t.Errorf("%s: Service %s is unknown", when, s.Name)
		return
	}
	before := w.balancer(s)
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(b.annotations), Finalizers: []string{cleanup}}}
	w.theirAnnotations(want, before)
	want.Status.LoadBalancer.Ingress = theirIngress(s, before)
	for i := range want.Status.LoadBalancer.Ingress {
		if in := &want.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			in.IPMode = new(corev1.LoadBalancerIPModeVIP) // the API server's default
		}
	}
	got := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: s.Annotations, Finalizers: s.Finalizers}, Status: s.Status}
	if s.Annotations[annotation.EnableProxyProtocol] == "true" && when != asItWas {
		for i := range want.Status.LoadBalancer.Ingress { // the one thing of ours that is in a Service; the page says so
			want.Status.LoadBalancer.Ingress[i].IPMode = new(corev1.LoadBalancerIPModeProxy)
		}
	}
	got.Status.Conditions = withoutRecord(got.Status.Conditions)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: Service %s (- the upstream project's, + is):\n%s", when, s.Name, diff)
	}
	status, answer := w.call(http.MethodPut, "/v2/load_balancers/"+before.ID, w.body(s, b))
	if status != http.StatusOK {
		w.t.Errorf("%s: the upstream project's request for Service %s is answered %d %s", when, s.Name, status, answer)
	}
	if diff := cmp.Diff(before, w.balancer(s)); diff != "" {
		w.t.Errorf("%s: the upstream project's request changes the load balancer of Service %s (- before, + after):\n%s", when, s.Name, diff)
	}
}

// plain is a request with the upstream project's defaults for all that a Service does not ask for.
func plain(s *corev1.Service, kind, stack string, rules ...object) object {
	name := s.Annotations[annotation.Name]
	if name == "" {
		name = ("a" + strings.ReplaceAll(string(s.UID), "-", ""))[:32]
	}
	return object{
		"name": name, "algorithm": "round_robin", "region": "nyc1", "type": kind, "forwarding_rules": rules,
		"health_check": object{
			"protocol": "http", "port": checkedPort(s), "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
			"healthy_threshold": 5, "unhealthy_threshold": 3, "proxy_protocol": false,
		},
		"sticky_sessions": object{"type": "none"}, "disable_lets_encrypt_dns_records": false, "firewall": object{}, "network": "EXTERNAL",
		"network_stack": stack,
	}
}

func rule(entry string, port int32, target string, to int32) object {
	return object{"entry_protocol": entry, "entry_port": port, "target_protocol": target, "target_port": to}
}

// network is the request for a Service of type REGIONAL_NETWORK: each port as it is.
func network(s *corev1.Service) object {
	var rules []object
	for _, p := range s.Spec.Ports {
		protocol := strings.ToLower(string(p.Protocol))
		rules = append(rules, rule(protocol, p.Port, protocol, p.Port))
	}
	return plain(s, annotation.TypeRegionalNetwork, "IPV4", rules...)
}

// written is a Service as a user writes it.
func written(name string, annotations map[string]string, ports ...int32) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name}},
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p, TargetPort: intstr.FromInt32(8080)})
	}
	return s
}

// kinds are Services of all sorts. The certificate must be there.
func kinds(certificate string) []balanced {
	with := func(body object, more object) object { maps.Copy(body, more); return body }
	local := written("local", nil, 8443)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return []balanced{
		{service: written("network", nil, 80, 443), request: network},
		{service: local, request: network},
		{service: written("internal", map[string]string{annotation.Network: "INTERNAL"}, 5432), request: func(s *corev1.Service) object {
			return with(network(s), object{"network": "INTERNAL"})
		}},
		{service: written("web", map[string]string{
			annotation.Type: annotation.TypeRegional, annotation.Protocol: "http", annotation.TLSPorts: "443", annotation.CertificateID: certificate,
			annotation.RedirectHTTPToHTTPS: "true", annotation.HealthCheckInterval: "10",
		}, 80, 443), request: func(s *corev1.Service) object {
			secure := rule("https", 443, "http", s.Spec.Ports[1].NodePort)
			secure["certificate_id"] = certificate
			body := plain(s, annotation.TypeRegional, "DUALSTACK", rule("http", 80, "http", s.Spec.Ports[0].NodePort), secure)
			body["health_check"].(object)["check_interval_seconds"] = 10
			return with(body, object{"redirect_http_to_https": true})
		}},
		{service: written("proxied", map[string]string{
			annotation.Type: annotation.TypeRegional, annotation.EnableProxyProtocol: "true", annotation.SizeUnit: "2",
			annotation.StickySessionsType: "cookies", annotation.StickySessionsCookieName: "DO-CCM", annotation.StickySessionsCookieTTL: "300",
			annotation.Protocol: "http",
		}, 80), request: func(s *corev1.Service) object {
			return with(plain(s, annotation.TypeRegional, "DUALSTACK", rule("http", 80, "http", s.Spec.Ports[0].NodePort)), object{
				"enable_proxy_protocol": true, "size_unit": 2,
				"sticky_sessions": object{"type": "cookies", "cookie_name": "DO-CCM", "cookie_ttl_seconds": 300},
			})
		}},
		{service: written("named", map[string]string{
			annotation.Type: annotation.TypeRegional, annotation.Name: "shop", annotation.Hostname: "Shop.example.com",
			annotation.AllowRules: "ip:203.0.113.7,cidr:198.51.100.0/24",
		}, 9000), request: func(s *corev1.Service) object {
			return with(plain(s, annotation.TypeRegional, "DUALSTACK", rule("tcp", 9000, "tcp", s.Spec.Ports[0].NodePort)), object{
				"firewall": object{"allow": []string{"ip:203.0.113.7", "cidr:198.51.100.0/24"}},
			})
		}},
	}
}
