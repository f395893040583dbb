// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// configure writes, through Calico's own client, one resource of each kind that is about the host alone.
func (w *kubeWorld) configure(t *testing.T, host string) {
	t.Helper()
	c, period := w.calico.Client(), uint32(10)
	endpoint := apiv3.NewHostEndpoint()
	endpoint.Name, endpoint.Labels = host+"-auto-hep", map[string]string{createdByLabel: createdByControllers, "role": "worker"}
	endpoint.Spec = apiv3.HostEndpointSpec{Node: host, InterfaceName: "*"}
	peer := apiv3.NewBGPPeer()
	peer.Name, peer.Spec = "peer-of-"+host, apiv3.BGPPeerSpec{Node: host, PeerIP: "192.0.2.1", ASNumber: 64512}
	status := apiv3.NewCalicoNodeStatus()
	status.Name = "status-of-" + host
	status.Spec = apiv3.CalicoNodeStatusSpec{Node: host, Classes: []apiv3.NodeStatusClassType{apiv3.NodeStatusClassTypeBGP}, UpdatePeriodSeconds: &period}
	felixOf := apiv3.NewFelixConfiguration()
	felixOf.Name, felixOf.Spec.DefaultEndpointToHostAction = perNode+host, "Return"
	bgpOf := apiv3.NewBGPConfiguration()
	bgpOf.Name, bgpOf.Spec.LogSeverityScreen = perNode+host, "Debug"
	_, e1 := c.HostEndpoints().Create(t.Context(), endpoint, options.SetOptions{})
	_, e2 := c.BGPPeers().Create(t.Context(), peer, options.SetOptions{})
	_, e3 := c.CalicoNodeStatus().Create(t.Context(), status, options.SetOptions{})
	_, e4 := c.FelixConfigurations().Create(t.Context(), felixOf, options.SetOptions{})
	_, e5 := c.BGPConfigurations().Create(t.Context(), bgpOf, options.SetOptions{})
	must.Do(t, errors.Join(e1, e2, e3, e4, e5))
}

func (w *kubeWorld) dropConfiguration(t *testing.T, host string) {
	t.Helper()
	for kind, name := range configurationOf(host) {
		w.drop(t, kind, name)
	}
}

// configurationOf is what configure writes: name by kind.
func configurationOf(host string) map[string]string {
	return map[string]string{
		apiv3.KindHostEndpoint: host + "-auto-hep", apiv3.KindBGPPeer: "peer-of-" + host, apiv3.KindCalicoNodeStatus: "status-of-" + host,
		apiv3.KindFelixConfiguration: perNode + host, apiv3.KindBGPConfiguration: perNode + host,
	}
}

// bystanders are objects that are not a host's, or another's: a virtual affinity with its block, a reservation, a policy, a peer of some hosts,
// and a bare-metal host's endpoint.
func (w *kubeWorld) bystanders(t *testing.T, host string) {
	t.Helper()
	must.Get(w.calico.Backend().Create(t.Context(), &model.KVPair{
		Key: model.BlockAffinityKey{
			CIDR: cnet.MustParseCIDR("10.244.250.0/26"), Host: apiv3.VirtualLoadBalancer, AffinityType: model.IPAMAffinityTypeVirtual,
		},
		Value: &model.BlockAffinity{State: model.StateConfirmed},
	})).Or(t)
	t.Cleanup(func() { w.drop(t, kindAffinity, "load-balancer-10-244-250-0-26") })
	w.object(t, kindBlock, "10-244-250-0-26", map[string]any{
		"cidr": "10.244.250.0/26", "affinity": "virtual:" + apiv3.VirtualLoadBalancer, "allocations": []any{int64(0)}, "unallocated": []any{}, "strictAffinity": false,
		"attributes": []any{map[string]any{"handle_id": "lb-of-" + host, "secondary": map[string]any{"service": host, "type": "LoadBalancer"}}},
	})
	w.object(t, apiv3.KindIPReservation, host, map[string]any{"reservedCIDRs": []any{"10.244.251.0/26"}})
	w.object(t, apiv3.KindGlobalNetworkPolicy, "default."+host, map[string]any{"selector": "host == '" + host + "'"})
	w.object(t, apiv3.KindBGPPeer, "by-selector", map[string]any{"nodeSelector": "kubernetes.io/hostname == '" + host + "'", "peerIP": "192.0.2.2"})
	w.object(t, apiv3.KindHostEndpoint, "metal", map[string]any{"node": "kdd-metal", "interfaceName": "eth0"})
}

func TestKubernetesDatastoreLosesWhatAHostLeftOfEveryKindAndNothingElse(t *testing.T) {
	w, host := newKubeWorld(t), "kdd-all"
	w.bystanders(t, host)
	w.join(t, "kdd-all-other", 10, 1)
	w.configure(t, "kdd-all-other")
	agent := w.join(t, host, 11, 2)
	w.configure(t, host)
	must.Get(agent.LeaveAffinityWithoutBlock(t.Context())).Or(t)
	w.leave(t, host)
	s, before := w.read(t, host), w.everything(t)

	var names []string
	for _, r := range s.host.Resources {
		if configurationOf(host)[string(r.Kind)] != r.Name || r.Automatic != (r.Kind == apiv3.KindHostEndpoint) {
			t.Errorf("resource %+v: want one of %v, the host endpoint alone automatic", r, configurationOf(host))
		}
		names = append(names, string(r.Kind))
	}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(resourcePlurals()))) {
		t.Errorf("resources are of kinds %v, want one of each", names)
	}
	if m := s.host.Mentions; len(m) != 1 || !strings.Contains(m[0], "by-selector") {
		t.Errorf("mentions are %q, want the peer that chooses it by its name", m)
	}
	must.Do(t, w.clean(t, w.store, host))

	after, removed := w.everything(t), map[string]int{}
	for object := range before {
		if _, still := after[object]; !still {
			kind, _, _ := strings.Cut(object, " ")
			removed[kind]++
			delete(before, object)
		}
	}
	want := map[string]int{
		"hostendpoints": 1, "bgppeers": 1, "caliconodestatuses": 1, "felixconfigurations": 1, "bgpconfigurations": 1,
		"blockaffinities": 2, "ipamblocks": 1, "ipamhandles": 3,
	}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed were (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("others were written (-want +got):\n%s", diff)
	}
}

func TestKubernetesDatastoreKeepsHostsOfResourcesApart(t *testing.T) {
	w := newKubeWorld(t)
	w.bystanders(t, "kdd-named")
	w.configure(t, "kdd-named")
	t.Cleanup(func() { w.dropConfiguration(t, "kdd-named") })
	w.join(t, "kdd-known", 12, 0)
	w.configure(t, "kdd-known")

	s := must.Get(w.store.Snapshot(t.Context())).Or(t)
	implied := func(name string) bool {
		return slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Name == name })
	}
	for _, name := range []string{"kdd-metal", "kdd-named"} {
		if implied(name) || !slices.Contains(s.ResourceHosts, name) {
			t.Errorf("%s has resources alone: implied %t, hosts of resources %v", name, implied(name), s.ResourceHosts)
		}
	}
	if !implied("kdd-known") || slices.Contains(s.ResourceHosts, "kdd-known") {
		t.Errorf("kdd-known has addresses, too: implied %t, hosts of resources %v", implied("kdd-known"), s.ResourceHosts)
	}
	if implied(apiv3.VirtualLoadBalancer) {
		t.Error("the virtual affinity implies a host")
	}
	hosts, err := w.store.Hosts(t.Context(), 0, []string{"kdd-named"})
	if err != nil || len(hosts) != 1 || len(hosts[0].Resources) != 5 || len(hosts[0].Unreadable) > 0 {
		t.Errorf("got %+v, %v, want the five resources", hosts, err)
	}
}

func TestKubernetesDatastoreKnowsAutomaticHostEndpoints(t *testing.T) {
	w, host := newKubeWorld(t), "kdd-heps"
	mark := `{"labels":{"projectcalico.org/created-by":"calico-kube-controllers"}}`
	metadata := map[string]map[string]any{
		"label":      {"labels": map[string]any{createdByLabel: createdByControllers}},
		"annotation": {"annotations": map[string]any{metadataAnnotation: mark}},
		"both":       {"labels": map[string]any{createdByLabel: createdByControllers}, "annotations": map[string]any{metadataAnnotation: mark}},
		"users":      {},
		"users-also": {"labels": map[string]any{"a": "b"}, "annotations": map[string]any{metadataAnnotation: `{"labels":{"a":"b"}}`}},
		"another's":  {"labels": map[string]any{createdByLabel: "someone-else"}},
	}
	want := map[string]bool{"label": true, "annotation": true, "both": true, "users": false, "users-also": false, "another-s": false}
	for name, m := range metadata {
		m["name"] = strings.ReplaceAll(name, "'", "-")
		w.create(t, apiv3.KindHostEndpoint, map[string]any{"metadata": m, "spec": map[string]any{"node": host, "interfaceName": "*"}})
		t.Cleanup(func() { w.drop(t, apiv3.KindHostEndpoint, m["name"].(string)) })
	}
	hosts := must.Get(w.store.Hosts(t.Context(), 0, []string{host})).Or(t)
	got := map[string]bool{}
	for _, r := range hosts[0].Resources {
		got[r.Name] = r.Automatic
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("automatic (-want +got):\n%s", diff)
	}
}

func TestKubernetesDatastoreDeletesOnlyWhatIsAboutTheHost(t *testing.T) {
	w := newKubeWorld(t)
	w.configure(t, "kdd-mine")
	w.configure(t, "kdd-mine-too")
	t.Cleanup(func() { w.dropConfiguration(t, "kdd-mine"); w.dropConfiguration(t, "kdd-mine-too") })
	hosts := must.Get(w.store.Hosts(t.Context(), 0, []string{"kdd-mine-too"})).Or(t)
	before := w.everything(t)
	for _, r := range hosts[0].Resources {
		if err := w.store.DeleteResource(t.Context(), Guard{Host: "kdd-mine"}, string(r.Kind), r.Name, r.Revision); err == nil {
			t.Errorf("%s %s was deleted for another host", r.Kind, r.Name)
		}
	}
	if err := w.store.DeleteResource(t.Context(), Guard{Host: "kdd-mine"}, apiv3.KindIPPool, "default-ipv4-ippool", 1); err == nil {
		t.Error("a pool was deleted")
	}
	if diff := cmp.Diff(before, w.everything(t)); diff != "" {
		t.Errorf("something was written (-want +got):\n%s", diff)
	}
}

// The journal's objects are what restore needs: removed and restored, they are as they were for everybody who reads them.
func TestKubernetesDatastoreRestoresWhatTheJournalHolds(t *testing.T) {
	w, host := newKubeWorld(t), "kdd-restored"
	s := func() seen { w.configure(t, host); return w.gone(t, host, 13, 1) }()
	t.Cleanup(func() { w.dropConfiguration(t, host) })
	specs, endpoint := w.specs(t), w.labels(t, host)
	must.Do(t, w.clean(t, w.store, host))
	refused := 0
	for _, object := range s.host.Objects {
		check, err := w.store.CheckRestore(t.Context(), object), w.store.Restore(t.Context(), object)
		if (check == nil) != (err == nil) {
			t.Errorf("restoring %s: the check said %v, then %v", object.Key, check, err)
		}
		if IsIPAM(object.Key) != errors.Is(err, ErrNotRestored) || err != nil && !errors.Is(err, ErrNotRestored) {
			t.Errorf("restoring %s: %v", object.Key, err)
		}
		if err != nil {
			refused++
		} else if err := w.store.Restore(t.Context(), object); !errors.Is(err, ErrUnchanged) {
			t.Errorf("restoring %s twice: %v", object.Key, err)
		}
	}
	if refused != 1 || len(s.host.Objects) != 6 {
		t.Errorf("refused %d of %d objects, want the affinity of six", refused, len(s.host.Objects))
	}
	for kind, name := range configurationOf(host) {
		if diff := cmp.Diff(specs[kind+" "+name], w.get(t, kind, name).Object["spec"]); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", kind, name, diff)
		}
	}
	if diff := cmp.Diff(endpoint, w.labels(t, host)); diff != "" {
		t.Errorf("labels as Calico's client shows them (-want +got):\n%s", diff)
	}
}

// labels are those of the host's endpoint as Calico's own client shows them.
func (w *kubeWorld) labels(t *testing.T, host string) map[string]string {
	t.Helper()
	endpoint := must.Get(w.calico.Client().HostEndpoints().Get(t.Context(), host+"-auto-hep", options.GetOptions{})).Or(t)
	return endpoint.Labels
}

func TestKubernetesDatastoreRestoresNothingOverAnything(t *testing.T) {
	w, host := newKubeWorld(t), "kdd-again"
	w.configure(t, host)
	t.Cleanup(func() { w.dropConfiguration(t, host) })
	hosts := must.Get(w.store.Hosts(t.Context(), 0, []string{host})).Or(t)
	object := hosts[0].Objects[slices.IndexFunc(hosts[0].Objects, func(o Object) bool { return strings.Contains(o.Key, "/bgppeers/") })]
	peer := w.get(t, apiv3.KindBGPPeer, "peer-of-"+host)
	peer.Object["spec"].(map[string]any)["peerIP"] = "192.0.2.77"
	must.Get(w.of(apiv3.KindBGPPeer).Update(t.Context(), peer, metav1.UpdateOptions{})).Or(t)
	before := w.everything(t)
	for name, o := range map[string]Object{
		"exists in another form":  object,
		"another object's value":  {Key: objectPath + "bgppeers/other", Value: object.Value},
		"a pool":                  {Key: objectPath + "ippools/default-ipv4-ippool", Value: "{}"},
		"etcd's":                  {Key: "/calico/resources/v3/projectcalico.org/bgppeers/x", Value: "{}"},
		"a handle":                {Key: objectPath + "ipamhandles/x", Value: "{}"},
		"a way out of the folder": {Key: objectPath + "bgppeers/../ippools/x", Value: object.Value},
		"not JSON":                {Key: object.Key, Value: "{"},
	} {
		if err := w.store.Restore(t.Context(), o); !errors.Is(err, ErrNotRestored) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if diff := cmp.Diff(before, w.everything(t)); diff != "" {
		t.Errorf("something was written (-want +got):\n%s", diff)
	}
}

// The names of affinities are libcalico-go's, however long the host's is.
func TestAffinitiesAreNamedAsCalicoNamesThem(t *testing.T) {
	w := newKubeWorld(t)
	label := strings.Repeat("x", 60)
	for i, host := range []string{"kdd-short", strings.Join([]string{label, label, label, strings.Repeat("y", 56)}, "."), strings.Join([]string{label, label, label, label, "yyyyy"}, ".")} {
		for _, cidr := range []string{"10.245.%d.0/26", "fd00:10:244::%d00/122"} {
			prefix := netip.MustParsePrefix(strings.ReplaceAll(cidr, "%d", string(rune('1'+i))))
			must.Get(w.calico.Backend().Create(t.Context(), &model.KVPair{
				Key:   model.BlockAffinityKey{CIDR: cnet.MustParseCIDR(prefix.String()), Host: host, AffinityType: model.IPAMAffinityTypeHost},
				Value: &model.BlockAffinity{State: model.StateConfirmed},
			})).Or(t)
			object := w.get(t, kindAffinity, affinityName(host, prefix))
			revision := must.Get((&customResource{metadata: objectMetadata{ResourceVersion: object.GetResourceVersion()}}).revision()).Or(t)
			w.traffic.take()
			if err := w.store.DeleteAffinity(t.Context(), Guard{Host: host}, prefix, revision, false); err != nil {
				t.Error(err)
			}
			if requests := w.traffic.take(); len(requests) != 4 {
				t.Errorf("deleting the affinity of %s to %s took %d requests: %q", host, prefix, len(requests), requests)
			}
		}
	}
}
