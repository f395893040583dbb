// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"slices"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// balancer is a request as upstream builds them.
func balancer(name string, droplets ...int) *godo.LoadBalancerRequest {
	return &godo.LoadBalancerRequest{
		Name: name, Algorithm: "round_robin", Region: "nyc1", Type: "REGIONAL", DropletIDs: droplets,
		ForwardingRules: []godo.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080}},
		HealthCheck: &godo.HealthCheck{
			Protocol: "http", Port: 10256, Path: "/healthz", CheckIntervalSeconds: 3, ResponseTimeoutSeconds: 5, HealthyThreshold: 5,
			UnhealthyThreshold: 3, ProxyProtocol: new(false),
		},
		StickySessions: &godo.StickySessions{Type: "none"}, Tags: []string{"k8s:cid"}, DisableLetsEncryptDNSRecords: new(false),
		Firewall: &godo.LBFirewall{}, Network: "EXTERNAL", NetworkStack: "IPV4",
	}
}

func driveLoadBalancers(t *testing.T, r *recording, client *godo.Client) {
	t.Helper()
	droplets, _, err := client.Droplets.List(background(), nil)
	must.Do(t, err)
	first, second := droplets[0].ID, droplets[1].ID

	validate := balancer("checked")
	validate.ValidateOnly = true
	_, _, err = client.LoadBalancers.Create(background(), validate)
	must.Do(t, err)

	created, _, err := client.LoadBalancers.Create(background(), balancer("web", first))
	must.Do(t, err)
	if created.Status != "new" || created.IP != "" || created.ID == "" {
		t.Errorf("a new load balancer: %+v", created)
	}
	got, _, err := client.LoadBalancers.Get(background(), created.ID)
	must.Do(t, err)
	if got.Status != "active" || got.IP == "" || got.SizeUnit != 1 || *got.HTTPIdleTimeoutSeconds != 60 {
		t.Errorf("an active load balancer: %+v", got)
	}
	again, _, err := client.LoadBalancers.Update(background(), got.ID, got.AsRequest())
	must.Do(t, err)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("a PUT of what is there changed it:\n%s", diff)
	}
	driveSubresources(t, client, got.ID, first, second)
	driveOtherBalancers(t, client, first)

	_, response, err := client.LoadBalancers.Create(background(), balancer("web", first))
	status(t, http.StatusUnprocessableEntity, response, err)
	change := got.AsRequest()
	change.ValidateOnly = true
	change.VPCSubnetUUID = "6a3bd5b1-6f2b-4c3b-8a5e-1df0d6f1b5a4"
	_, _, err = client.LoadBalancers.Update(background(), got.ID, change)
	must.Do(t, err)
	change.Network = "INTERNAL"
	_, response, err = client.LoadBalancers.Update(background(), got.ID, change)
	status(t, http.StatusUnprocessableEntity, response, err)
	if _, err := r.sim.Account("").LoadBalancer("checked"); err == nil {
		t.Error("validate_only created a load balancer")
	}
	must.Get(client.LoadBalancers.Delete(background(), got.ID)).Or(t)
	response, err = client.LoadBalancers.Delete(background(), got.ID)
	status(t, http.StatusNotFound, response, err)
}

func driveSubresources(t *testing.T, client *godo.Client, id string, first, second int) {
	t.Helper()
	must.Get(client.LoadBalancers.AddDroplets(background(), id, second)).Or(t)
	must.Get(client.LoadBalancers.RemoveDroplets(background(), id, first)).Or(t)
	rule := godo.ForwardingRule{EntryProtocol: "tcp", EntryPort: 81, TargetProtocol: "tcp", TargetPort: 30081}
	must.Get(client.LoadBalancers.AddForwardingRules(background(), id, rule)).Or(t)
	got, _, err := client.LoadBalancers.Get(background(), id)
	must.Do(t, err)
	if !slices.Equal(got.DropletIDs, []int{second}) || len(got.ForwardingRules) != 2 {
		t.Errorf("after changes of droplets and rules: %v %v", got.DropletIDs, got.ForwardingRules)
	}
	must.Get(client.LoadBalancers.RemoveForwardingRules(background(), id, rule)).Or(t)
	response, err := client.LoadBalancers.RemoveForwardingRules(background(), id, got.ForwardingRules[0])
	status(t, http.StatusUnprocessableEntity, response, err)
}

func driveOtherBalancers(t *testing.T, client *godo.Client, droplet int) {
	t.Helper()
	certificates, _, err := client.Certificates.ListByName(background(), "web", nil)
	must.Do(t, err)
	secure := balancer("secure", droplet)
	secure.NetworkStack, secure.SizeUnit, secure.Tags = "DUALSTACK", 3, nil
	secure.ForwardingRules = []godo.ForwardingRule{
		{EntryProtocol: "https", EntryPort: 443, TargetProtocol: "http", TargetPort: 30443, CertificateID: certificates[0].ID},
		{EntryProtocol: "http3", EntryPort: 443, TargetProtocol: "http", TargetPort: 30443, CertificateID: certificates[0].ID},
		{EntryProtocol: "http2", EntryPort: 8443, TargetProtocol: "http2", TargetPort: 30444, TlsPassthrough: true},
	}
	secure.StickySessions = &godo.StickySessions{Type: "cookies", CookieName: "stick", CookieTtlSeconds: 300}
	secure.Firewall = &godo.LBFirewall{Allow: []string{"ip:192.0.2.1"}, Deny: []string{"cidr:198.51.100.0/24"}}
	secure.IP = "203.0.113.7"
	created, _, err := client.LoadBalancers.Create(background(), secure)
	must.Do(t, err)
	got, _, err := client.LoadBalancers.Get(background(), created.ID)
	must.Do(t, err)
	if got.IP != secure.IP || got.IPv6 == "" || got.SizeSlug != "lb-medium" {
		t.Errorf("a load balancer with an address of one's own: %+v", got)
	}
	response, err := client.Certificates.Delete(background(), certificates[0].ID)
	status(t, http.StatusForbidden, response, err)

	internal := balancer("internal")
	internal.Type, internal.Network, internal.DropletIDs, internal.Tag = "REGIONAL_NETWORK", "INTERNAL", nil, "k8s:worker"
	internal.ForwardingRules = []godo.ForwardingRule{{EntryProtocol: "udp", EntryPort: 53, TargetProtocol: "udp", TargetPort: 53}}
	_, _, err = client.LoadBalancers.Create(background(), internal)
	must.Do(t, err)
	found, _, err := client.LoadBalancers.ListByNames(background(), []string{"internal", "secure"}, nil)
	must.Do(t, err)
	if len(found) != 2 || len(found[1].DropletIDs) != 6 {
		t.Errorf("by names: %+v", found)
	}
	found, _, err = client.LoadBalancers.ListByUUIDs(background(), []string{created.ID}, nil)
	must.Do(t, err)
	if len(found) != 1 {
		t.Errorf("by UUIDs: %+v", found)
	}
}

func driveTags(t *testing.T, client *godo.Client) {
	t.Helper()
	balancers, _, err := client.LoadBalancers.List(background(), nil)
	must.Do(t, err)
	resources := &godo.TagResourcesRequest{Resources: []godo.Resource{{ID: balancers[0].ID, Type: godo.LoadBalancerResourceType}}}
	response, err := client.Tags.TagResources(background(), "k8s:later", resources)
	status(t, http.StatusNotFound, response, err)
	_, _, err = client.Tags.Create(background(), &godo.TagCreateRequest{Name: "k8s:later"})
	must.Do(t, err)
	must.Get(client.Tags.TagResources(background(), "k8s:later", resources)).Or(t)
	tag, _, err := client.Tags.Get(background(), "k8s:later")
	must.Do(t, err)
	if tag.Resources.Count != 1 {
		t.Errorf("tag: %+v", tag.Resources)
	}
	tags, _, err := client.Tags.List(background(), nil)
	must.Do(t, err)
	if len(tags) != 3 {
		t.Errorf("%d tags, not 3", len(tags))
	}
	_, err = client.Tags.UntagResources(background(), "k8s:later", &godo.UntagResourcesRequest{Resources: resources.Resources})
	must.Do(t, err)
	must.Get(client.Tags.Delete(background(), "k8s:later")).Or(t)
	_, response, err = client.Tags.Create(background(), &godo.TagCreateRequest{Name: "not valid"})
	status(t, http.StatusBadRequest, response, err)
}

func driveFirewalls(t *testing.T, client *godo.Client) {
	t.Helper()
	anywhere := []string{"0.0.0.0/0", "::/0"}
	request := &godo.FirewallRequest{
		Name: "k8s-fw", Tags: []string{"k8s:worker"},
		InboundRules: []godo.InboundRule{
			{Protocol: "tcp", PortRange: "30080", Sources: &godo.Sources{Addresses: anywhere}},
			{Protocol: "tcp", PortRange: "10256", Sources: &godo.Sources{LoadBalancerUIDs: []string{"4de7ac8b-495b-4884-9a69-1050c6793cd6"}}},
		},
		OutboundRules: []godo.OutboundRule{
			{Protocol: "tcp", PortRange: "all", Destinations: &godo.Destinations{Addresses: anywhere}},
			{Protocol: "icmp", Destinations: &godo.Destinations{Addresses: anywhere}},
		},
	}
	created, _, err := client.Firewalls.Create(background(), request)
	must.Do(t, err)
	if created.Status != "waiting" || created.OutboundRules[0].PortRange != "0" || created.OutboundRules[1].PortRange != "0" {
		t.Errorf("a new firewall: %+v", created)
	}
	_, response, err := client.Firewalls.Create(background(), request)
	status(t, http.StatusConflict, response, err)
	request.InboundRules = nil
	updated, _, err := client.Firewalls.Update(background(), created.ID, request)
	must.Do(t, err)
	if len(updated.InboundRules) != 0 {
		t.Errorf("after a PUT without inbound rules: %+v", updated.InboundRules)
	}
	got, _, err := client.Firewalls.Get(background(), created.ID)
	must.Do(t, err)
	if got.Status != "succeeded" {
		t.Errorf("status %s", got.Status)
	}
	list, _, err := client.Firewalls.List(background(), nil)
	must.Do(t, err)
	if len(list) != 1 {
		t.Errorf("%d firewalls", len(list))
	}
	request.Tags = []string{"nobody"}
	_, response, err = client.Firewalls.Update(background(), created.ID, request)
	status(t, http.StatusUnprocessableEntity, response, err)
	request.Name, request.Tags = "other", []string{"k8s:worker"}
	other, _, err := client.Firewalls.Create(background(), request)
	must.Do(t, err)
	must.Get(client.Firewalls.Delete(background(), other.ID)).Or(t)
}

// driveRefusals tries what tokens may not do, and what networks show.
func driveRefusals(t *testing.T, r *recording) {
	t.Helper()
	_, response, err := r.client(t, "dop_v1_wrong").Account.Get(background())
	status(t, http.StatusUnauthorized, response, err)
	scoped := r.client(t, scopedToken)
	droplets, _, err := scoped.Droplets.List(background(), nil)
	must.Do(t, err)
	if droplets[0].Tags != nil || droplets[0].Image != nil || droplets[0].VPCUUID != "" {
		t.Errorf("a token without scopes sees %+v", droplets[0])
	}
	firewalls, _, err := scoped.Firewalls.List(background(), nil)
	must.Do(t, err)
	if firewalls[0].Tags != nil || firewalls[0].DropletIDs == nil {
		t.Errorf("a token without tag:read sees %+v", firewalls[0])
	}
	_, response, err = scoped.LoadBalancers.List(background(), nil)
	status(t, http.StatusForbidden, response, err)
	account, _, err := r.client(t, "dop_v1_account").Account.Get(background())
	must.Do(t, err)
	if account.DropletLimit != 0 {
		t.Error("a token without droplet:read sees the limit of droplets")
	}
	client := r.client(t, "dop_v1_simulated")
	vpcs, _, err := client.VPCs.List(background(), nil)
	must.Do(t, err)
	_, _, err = client.VPCs.Get(background(), vpcs[0].ID)
	must.Do(t, err)
	must.Get(client.Droplets.DeleteByTag(background(), "k8s:worker")).Or(t)
}
