// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(namespace, name, address string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: ports},
	}
}

func endpointSlice(port string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	number, protocol := int32(8443), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
	}
}

func endpoint(address, host string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if host != "" {
		e.Hostname = &host
	}
	return e
}

// zone is a cluster's, with a Service of every kind.
func zone() Zone {
	external := service("default", "far", "")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "web.shop.svc.cluster.local"
	var crowd []discoveryv1.Endpoint
	for i := range 200 {
		crowd = append(crowd, endpoint(fmt.Sprintf("10.244.9.%d", i+1), "", true))
	}
	six := endpointSlice("https", endpoint("fd00::1", "db-9", true))
	six.AddressType = discoveryv1.AddressTypeIPv6
	return NewZone([]*corev1.Service{
		service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}),
		service("shop", "web", "10.96.4.5", corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}),
		service("shop", "db", corev1.ClusterIPNone), service("shop", "idle", corev1.ClusterIPNone), service("shop", "crowd", corev1.ClusterIPNone),
		service("shop", "unborn", ""), external,
	}, map[string][]*discoveryv1.EndpointSlice{
		"shop/db": {endpointSlice("https", endpoint("10.244.0.9", "", true), endpoint("10.244.0.7", "db-0", true), endpoint("10.244.0.8", "db-1", false)), six},
		// A Service with an address is known by that, whatever is behind it.
		"shop/web":   {endpointSlice("", endpoint("10.244.0.10", "x", true))},
		"shop/crowd": {endpointSlice("https", crowd...)},
	})
}

// serve starts a server and returns a resolver as Go's programs have it.
func serve(t *testing.T, z Zone) *net.Resolver {
	t.Helper()
	server, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	server.Update(z)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Address().String())
	}}
}

// TestAddresses asks as programs do.
func TestAddresses(t *testing.T) {
	t.Parallel()
	resolver := serve(t, zone())
	for name, want := range map[string][]string{
		"kubernetes.default.svc.cluster.local.": {"10.96.0.1"},
		"kubernetes.default.svc.":               {"10.96.0.1"},
		"KUBERNETES.Default.svc.Cluster.LOCAL.": {"10.96.0.1"},
		"web.shop.svc.cluster.local.":           {"10.96.4.5"},
		"db.shop.svc.cluster.local.":            {"10.244.0.7", "10.244.0.9"},
		"db-0.db.shop.svc.cluster.local.":       {"10.244.0.7"},
		"10-244-0-9.db.shop.svc.cluster.local.": {"10.244.0.9"},
		"db-1.db.shop.svc.cluster.local.":       nil, // not ready
		"db-9.db.shop.svc.cluster.local.":       nil, // of another family
		"x.web.shop.svc.cluster.local.":         nil, // not headless
		"unborn.shop.svc.cluster.local.":        nil,
		"idle.shop.svc.cluster.local.":          nil,
		"nothing.shop.svc.cluster.local.":       nil,
		"kubernetes.default.svc.example.com.":   nil,
		"example.com.":                          nil,
		"cluster.local.":                        nil,
	} {
		addresses, err := resolver.LookupHost(t.Context(), name)
		slices.Sort(addresses)
		if !slices.Equal(addresses, want) {
			t.Errorf("%s: %v, %v; want %v", name, addresses, err, want)
		}
		if failed, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !failed.IsNotFound || failed.IsTemporary) {
			t.Errorf("%s: %v is not an answer that there is nothing", name, err)
		}
	}
}

// TestLongAnswer: what does not fit into a packet comes by TCP.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	addresses, err := serve(t, zone()).LookupHost(t.Context(), "crowd.shop.svc.cluster.local.")
	if err != nil || len(addresses) != 200 {
		t.Errorf("%d addresses, %v; want 200", len(addresses), err)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	resolver := serve(t, zone())
	for service, want := range map[string][]string{
		"kubernetes.default": {"kubernetes.default.svc.cluster.local.:443"},
		"db.shop":            {"10-244-0-9.db.shop.svc.cluster.local.:8443", "db-0.db.shop.svc.cluster.local.:8443"},
		"web.shop":           nil, // its port has no name
	} {
		_, records, err := resolver.LookupSRV(t.Context(), "https", "tcp", service+".svc.cluster.local.")
		var got []string
		for _, r := range records {
			got = append(got, fmt.Sprintf("%s:%d", r.Target, r.Port))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v; want %v", service, got, err, want)
		}
	}
}

// ask is one question and its answer.
func ask(t *testing.T, z Zone, name string, kind dnsmessage.Type, change func(*dnsmessage.Message)) dnsmessage.Message {
	t.Helper()
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&question)
	}
	wire, err := question.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answered, err := z.answer(wire, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reply dnsmessage.Message
	if err := reply.Unpack(answered); err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestReplies: a name that exists without the record that is asked for, one that does not exist, one that stands for another, and what is not answered.
func TestReplies(t *testing.T) {
	t.Parallel()
	other := func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }
	update := func(m *dnsmessage.Message) { m.OpCode = 5 }
	edns := func(m *dnsmessage.Message) {
		var opt dnsmessage.Resource
		_ = opt.Header.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
		opt.Body = &dnsmessage.OPTResource{}
		m.Additionals = append(m.Additionals, opt)
	}
	for _, c := range []struct {
		name      string
		kind      dnsmessage.Type
		change    func(*dnsmessage.Message)
		code      dnsmessage.RCode
		answers   int
		truncated bool
	}{
		{"web.shop.svc.cluster.local.", dnsmessage.TypeA, nil, dnsmessage.RCodeSuccess, 1, false},
		{"web.shop.svc.cluster.local.", dnsmessage.TypeALL, edns, dnsmessage.RCodeSuccess, 1, false},
		{"web.shop.svc.cluster.local.", dnsmessage.TypeAAAA, nil, dnsmessage.RCodeSuccess, 0, false},
		{"idle.shop.svc.cluster.local.", dnsmessage.TypeA, nil, dnsmessage.RCodeSuccess, 0, false},
		{"gone.shop.svc.cluster.local.", dnsmessage.TypeAAAA, edns, dnsmessage.RCodeNameError, 0, false},
		{"far.default.svc.cluster.local.", dnsmessage.TypeA, nil, dnsmessage.RCodeSuccess, 1, false},
		{"crowd.shop.svc.cluster.local.", dnsmessage.TypeA, nil, dnsmessage.RCodeSuccess, 0, true},
		{"web.shop.svc.cluster.local.", dnsmessage.TypeA, other, dnsmessage.RCodeNotImplemented, 0, false},
		{"web.shop.svc.cluster.local.", dnsmessage.TypeA, update, dnsmessage.RCodeNotImplemented, 0, false},
	} {
		reply := ask(t, zone(), c.name, c.kind, c.change)
		if reply.RCode != c.code || len(reply.Answers) != c.answers || reply.Truncated != c.truncated {
			t.Errorf("%s %v: %+v", c.name, c.kind, reply)
		}
		if reply.ID != 7 || !reply.Response || !reply.Authoritative || !reply.RecursionAvailable || !reply.RecursionDesired {
			t.Errorf("%s %v: header %+v", c.name, c.kind, reply.Header)
		}
		for _, a := range reply.Answers {
			if a.Header.TTL != 5 {
				t.Errorf("%s %v: TTL %d", c.name, c.kind, a.Header.TTL)
			}
		}
		wantsOpt := c.change != nil && len(reply.Additionals) > 0
		if wantsOpt && reply.Additionals[0].Header.Type != dnsmessage.TypeOPT {
			t.Errorf("%s %v: additionals %+v", c.name, c.kind, reply.Additionals)
		}
	}
}

// TestOrderDoesNotMatter: the same Services make the same zone.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	one, other := endpoint("10.244.0.1", "", true), endpoint("10.244.0.2", "", true)
	headless := []*corev1.Service{service("a", "b", corev1.ClusterIPNone)}
	first := NewZone(headless, map[string][]*discoveryv1.EndpointSlice{"a/b": {endpointSlice("p", one, other), endpointSlice("p", one)}})
	second := NewZone(headless, map[string][]*discoveryv1.EndpointSlice{"a/b": {endpointSlice("p", other, one)}})
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("%v\n%v", first, second)
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{
		"shop": "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
		"":     "search svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
	} {
		if got := ResolvConf(namespace); got != want {
			t.Errorf("%q: %q, want %q", namespace, got, want)
		}
	}
}

// FuzzAnswer: whatever comes, the server lives, and answers within the limit with something that can be read.
func FuzzAnswer(f *testing.F) {
	question := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("crowd.shop.svc.cluster.local."), Type: dnsmessage.TypeALL, Class: dnsmessage.ClassINET,
	}}}
	wire, err := question.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\xc0\x0c", 40)))
	z := zone()
	f.Fuzz(func(t *testing.T, content []byte) {
		answered, err := z.answer(content, 0)
		if err != nil {
			return
		}
		var reply dnsmessage.Message
		if err := reply.Unpack(answered); err != nil || !reply.Response || len(answered) > maxSize {
			t.Errorf("%d bytes, %v, %+v", len(answered), err, reply.Header)
		}
	})
}
