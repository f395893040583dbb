// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"slices"
	"testing"
	"time"
)

func TestCertificates(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Certificates: CertificateOptions{VerifiedAfter: time.Minute}})
	var encrypt, own Certificate
	a.want(201, "POST", "/v2/certificates", map[string]any{"name": "web", "dns_names": []string{"example.com"}}, "certificate", &encrypt)
	a.want(201, "POST", "/v2/certificates", map[string]any{
		"name": "own", "type": "custom", "private_key": "k", "leaf_certificate": "l",
	}, "certificate", &own)
	if encrypt.State != "pending" || encrypt.Type != "lets_encrypt" || own.State != "verified" || own.Type != "custom" {
		t.Errorf("new certificates: %+v %+v", encrypt, own)
	}
	a.clock.Step(time.Minute)
	a.want(200, "GET", "/v2/certificates/"+encrypt.ID, nil, "certificate", &encrypt)
	if encrypt.State != "verified" {
		t.Errorf("after its time: %s", encrypt.State)
	}
	for query, want := range map[string]int{"": 2, "?name=web": 1, "?name=Web": 0} {
		var list []Certificate
		a.want(200, "GET", "/v2/certificates"+query, nil, "certificates", &list)
		if len(list) != want {
			t.Errorf("%q lists %d", query, len(list))
		}
	}
	for words, body := range map[string]map[string]any{
		"type must be":                 {"name": "x", "type": "paper"},
		"needs private_key":            {"name": "x", "type": "custom"},
		"needs dns_names":              {"name": "x"},
		"name is needed":               {"dns_names": []string{"example.com"}},
		"certificate name \\\"web\\\"": {"name": "web", "dns_names": []string{"example.com"}},
	} {
		a.refused(422, "POST", "/v2/certificates", body, words)
	}
	must.Do(t, a.sim.Account("").SetCertificateState(encrypt.ID, "error"))
	a.want(200, "GET", "/v2/certificates/"+encrypt.ID, nil, "certificate", &encrypt)
	if encrypt.State != "error" {
		t.Errorf("state: %s", encrypt.State)
	}
	a.want(204, "DELETE", "/v2/certificates/"+own.ID, nil, "", nil)
	a.refused(404, "GET", "/v2/certificates/"+own.ID, nil, "not_found")
}

// TestCertificatesInUse: a load balancer takes a certificate of Let's Encrypt when it is verified, and keeps it whatever becomes of it.
func TestCertificatesInUse(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Certificates: CertificateOptions{VerifiedAfter: time.Minute}})
	var crt Certificate
	a.want(201, "POST", "/v2/certificates", map[string]any{"name": "web", "type": "lets_encrypt", "dns_names": []string{"example.com"}}, "certificate", &crt)
	secure := map[string]any{"forwarding_rules": []any{rule("https", 443, "http", map[string]any{"certificate_id": crt.ID})}}
	a.refused(422, "POST", "/v2/load_balancers", balancer("web", secure), "is not ready for use")
	lb := a.create("web", nil)
	a.refused(422, "PUT", "/v2/load_balancers/"+lb.ID, balancer("web", secure), "is not ready for use")
	a.clock.Step(time.Minute)
	a.want(200, "PUT", "/v2/load_balancers/"+lb.ID, balancer("web", secure), "", nil)
	must.Do(t, a.sim.Account("").SetCertificateState(crt.ID, "error"))
	a.want(200, "PUT", "/v2/load_balancers/"+lb.ID, balancer("web", secure), "", nil)
}

// TestProjects: a load balancer that names no project is in the default one and stays where it is; it is not put into one that does not exist.
func TestProjects(t *testing.T) {
	t.Parallel()
	const mine = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
	a := newAPI(t, Options{Accounts: []AccountOptions{{Projects: []string{mine}}}})
	plain := a.create("plain", nil)
	own := a.create("own", map[string]any{"project_id": mine})
	if plain.ProjectID != DefaultProject || own.ProjectID != mine {
		t.Errorf("%q, %q", plain.ProjectID, own.ProjectID)
	}
	a.refused(422, "POST", "/v2/load_balancers", balancer("x", map[string]any{"project_id": "11111111-495b-4884-9a69-1050c6793cd6"}), "could not be found")
	a.want(200, "PUT", "/v2/load_balancers/"+own.ID, balancer("own", nil), "", nil)
	a.want(200, "PUT", "/v2/load_balancers/"+plain.ID, balancer("plain", map[string]any{"project_id": mine}), "", nil)
	if a.get(own.ID).ProjectID != mine || a.get(plain.ID).ProjectID != mine {
		t.Errorf("%+v, %+v", a.get(own.ID), a.get(plain.ID))
	}
}

// TestRotation: the new certificate has the old name and another ID, is in the load balancer's rules at once, and the old one is gone.
func TestRotation(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	old, err := a.sim.Account("").CreateCertificate(CertificateSpec{Name: "web", DNSNames: []string{"example.com"}})
	must.Do(t, err)
	lb := a.create("web", map[string]any{"forwarding_rules": []any{
		rule("https", 443, "http", map[string]any{"certificate_id": old.ID}), rule("tcp", 80, "tcp", nil),
	}})
	a.refused(403, "DELETE", "/v2/certificates/"+old.ID, nil, "Make sure the certificate is not in use before deleting it")
	renewed := must.Get(a.sim.Account("").RotateCertificate(old.ID)).Or(t)
	if renewed.ID == old.ID || renewed.Name != "web" || renewed.State != "verified" || renewed.Type != "lets_encrypt" {
		t.Errorf("renewed: %+v", renewed)
	}
	if got := a.get(lb.ID).ForwardingRules; got[0].CertificateID != renewed.ID || got[1].CertificateID != "" {
		t.Errorf("rules: %+v", got)
	}
	a.refused(404, "GET", "/v2/certificates/"+old.ID, nil, "not_found")
	if _, err := a.sim.Account("").RotateCertificate(old.ID); err == nil {
		t.Error("a certificate that is gone can be rotated")
	}
}

func firewallBody(changes ...any) map[string]any {
	body := map[string]any{"name": "fw", "inbound_rules": []any{inbound("tcp", "80", "0.0.0.0/0")}}
	for i := 0; i < len(changes); i += 2 {
		body[fmt.Sprint(changes[i])] = changes[i+1]
	}
	return body
}

func inbound(protocol, ports, address string) map[string]any {
	return map[string]any{"protocol": protocol, "ports": ports, "sources": map[string]any{"addresses": []string{address}}}
}

func TestFirewalls(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Firewalls: FirewallOptions{SettledAfter: time.Minute, MaxRules: 5}})
	byTag, byID := a.droplet(DropletSpec{Name: "a", Tags: []string{"k8s:worker"}}), a.droplet(DropletSpec{Name: "b"})
	a.refused(422, "POST", "/v2/firewalls", firewallBody("tags", []string{"nobody"}), "tag \\\"nobody\\\" does not exist")
	var f Firewall
	a.want(202, "POST", "/v2/firewalls", firewallBody("tags", []string{"k8s:worker"}, "droplet_ids", []int{byID.ID}), "firewall", &f)
	if f.Status != "waiting" || len(f.PendingChanges) != 2 || f.PendingChanges[0].DropletID != byTag.ID {
		t.Errorf("a new firewall: %+v", f)
	}
	path := "/v2/firewalls/" + f.ID
	a.clock.Step(time.Minute)
	a.want(200, "GET", path, nil, "firewall", &f)
	if f.Status != "succeeded" || len(f.PendingChanges) != 0 {
		t.Errorf("a settled firewall: %+v", f)
	}
	a.refused(409, "POST", "/v2/firewalls", firewallBody(), "duplicate name")
	a.want(200, "PUT", path, firewallBody("name", "renamed"), "firewall", &f)
	if f.Status != "waiting" || len(*f.Tags) != 0 || len(*f.DropletIDs) != 0 {
		t.Errorf("PUT did not reset what was left out: %+v", f)
	}
	must.Do(t, a.sim.Account("").SetFirewallStatus("renamed", "failed"))
	var list []Firewall
	a.want(200, "GET", "/v2/firewalls", nil, "firewalls", &list)
	if len(list) != 1 || list[0].Status != "failed" {
		t.Errorf("list: %+v", list)
	}
	a.want(202, "POST", "/v2/firewalls", firewallBody("droplet_ids", []int{byID.ID}), "firewall", &f)
	must.Do(t, a.sim.Account("").DeleteDroplet("b"))
	a.want(200, "GET", "/v2/firewalls/"+f.ID, nil, "firewall", &f)
	if len(*f.DropletIDs) != 0 {
		t.Errorf("a droplet that is gone is still in the firewall: %v", *f.DropletIDs)
	}
	a.want(204, "DELETE", path, nil, "", nil)
	for _, method := range []string{"GET", "DELETE"} {
		a.refused(404, method, path, nil, "not_found")
	}
	a.refused(404, "PUT", path, firewallBody(), "not_found")
}

func TestRefusedFirewalls(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Firewalls: FirewallOptions{MaxRules: 1, KnownBalancers: true}})
	for words, body := range map[string]map[string]any{
		"name \\\"f\\\" is not valid":   firewallBody("name", "f"),
		"name \\\"a_b\\\" is not valid": firewallBody("name", "a_b"),
		"at least one inbound":          firewallBody("inbound_rules", nil),
		"at most 1 rules":               firewallBody("outbound_rules", []any{map[string]any{"protocol": "icmp", "destinations": map[string]any{}}}),
		"protocol must be one of":       firewallBody("inbound_rules", []any{inbound("sctp", "80", "0.0.0.0/0")}),
		"neither an address nor a CIDR": firewallBody("inbound_rules", []any{inbound("tcp", "80", "anywhere")}),
		"neither a port":                firewallBody("inbound_rules", []any{inbound("tcp", "90-80", "::/0")}),
		"droplet 7 does not exist":      firewallBody("droplet_ids", []int{7}),
		"load balancer \\\"lb-1\\\" does not exist": firewallBody("inbound_rules", []any{map[string]any{
			"protocol": "tcp", "ports": "80", "sources": map[string]any{"load_balancer_uids": []string{"lb-1"}},
		}}),
		"does not exist": firewallBody("inbound_rules", []any{map[string]any{
			"protocol": "tcp", "ports": "80", "sources": map[string]any{"tags": []string{"nobody"}},
		}}),
	} {
		a.refused(422, "POST", "/v2/firewalls", body, words)
	}
}

func TestNormalPorts(t *testing.T) {
	t.Parallel()
	for given, want := range map[[2]string]string{
		{"tcp", "all"}: "0", {"tcp", "0"}: "0", {"udp", ""}: "0", {"icmp", ""}: "0", {"icmp", "80"}: "0", {"tcp", "80"}: "80",
		{"tcp", "80-90"}: "80-90", {"tcp", "1-65535"}: "1-65535", {"tcp", "80-80"}: "80-80",
		{"tcp", "65536"}: "", {"tcp", "-1"}: "", {"tcp", "80-"}: "", {"tcp", "http"}: "", {"tcp", "0-80"}: "",
	} {
		got, refused := normalPorts(given[0], given[1])
		if got != want || (refused != nil) != (want == "") {
			t.Errorf("%v is %q (%v), not %q", given, got, refused, want)
		}
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	d := a.droplet(DropletSpec{Name: "node"})
	lb := a.create("web", map[string]any{"tags": []string{"k8s:one"}})
	resources := map[string]any{"resources": []any{
		map[string]any{"resource_id": fmt.Sprint(d.ID), "resource_type": "droplet"},
		map[string]any{"resource_id": lb.ID, "resource_type": "load_balancer"},
	}}
	a.refused(404, "POST", "/v2/tags/k8s:two/resources", resources, "not_found")
	a.want(201, "POST", "/v2/tags", map[string]any{"name": "k8s:two"}, "", nil)
	a.want(201, "POST", "/v2/tags", map[string]any{"name": "K8S:two"}, "", nil)
	a.want(204, "POST", "/v2/tags/K8S:TWO/resources", resources, "", nil)
	a.want(204, "POST", "/v2/tags/k8s:two/resources", resources, "", nil)
	var tag Tag
	a.want(200, "GET", "/v2/tags/k8s:two", nil, "tag", &tag)
	if tag.Name != "k8s:two" || tag.Resources.Count != 2 || tag.Resources.Droplets.Count != 1 {
		t.Errorf("tag: %+v", tag)
	}
	if got := a.get(lb.ID).Tags; !slices.Equal(got, []string{"k8s:one", "k8s:two"}) {
		t.Errorf("tags of the load balancer: %v", got)
	}
	missing := map[string]any{"resources": []any{
		map[string]any{"resource_id": fmt.Sprint(d.ID), "resource_type": "droplet"},
		map[string]any{"resource_id": "gone", "resource_type": "load_balancer"},
	}}
	a.refused(404, "DELETE", "/v2/tags/k8s:two/resources", missing, "not_found")
	if got := a.listDroplets("?tag_name=k8s:two"); len(got) != 1 {
		t.Error("one missing resource, and another was untagged")
	}
	a.want(204, "DELETE", "/v2/tags/k8s:two/resources", resources, "", nil)
	a.want(204, "POST", "/v2/tags/k8s:two/resources", resources, "", nil)
	a.want(204, "DELETE", "/v2/tags/k8s:two", nil, "", nil)
	if got := a.get(lb.ID).Tags; !slices.Equal(got, []string{"k8s:one"}) {
		t.Errorf("tags after a tag was deleted: %v", got)
	}
	if got := a.sim.State().Accounts[0].Tags; !slices.Equal(got, []string{"k8s:one"}) {
		t.Errorf("tags: %v", got)
	}
	a.sim.Account("").AddToken(Token{Value: "tagger", Scopes: []string{"tag:create", "droplet:update"}})
	a.token = "tagger"
	a.refused(403, "POST", "/v2/tags/k8s:one/resources", resources, "forbidden")
	a.token = DefaultToken
	a.refused(400, "POST", "/v2/tags", map[string]any{"name": "a b"}, "contains invalid characters")
	a.refused(422, "POST", "/v2/tags/k8s:one/resources", map[string]any{"resources": []any{
		map[string]any{"resource_id": "1", "resource_type": "image"},
	}}, "not simulated")
}
