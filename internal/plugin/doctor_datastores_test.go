// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	libcalicov3 "github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// ground is a cluster as it is to be in either of Calico's datastores: nodes n0 and so on, of which the first have the IDs.
type ground struct {
	nodes  int
	ids    []string
	labels func(i int) map[string]string
	peers  map[string]calicov3.BGPPeerSpec
	meshOn bool
	// felix has Felix program the routes of an IP pool with IPIP, which BIRD does in Calico 3.31.
	felix bool
	// open has no policy that keeps Pods from the nodes' port for BGP.
	open bool
}

// hazard is what is found there, but for what is OK. inEtcd is that in etcdv3, where it differs.
type hazard struct {
	ground
	want, inEtcd []string
}

func reflectors(i int, of ...int) map[string]string {
	if slices.Contains(of, i) {
		return map[string]string{"rr": "true"}
	}
	return nil
}

// recipe are the two BGPPeers of Calico's documentation.
func recipe() map[string]calicov3.BGPPeerSpec {
	return map[string]calicov3.BGPPeerSpec{
		"clients":    {NodeSelector: "!has(rr)", PeerSelector: "has(rr)"},
		"reflectors": {NodeSelector: "has(rr)", PeerSelector: "has(rr)"},
	}
}

// hazards are the list, each in a cluster of its own.
func hazards() map[string]hazard {
	const id = "244.0.0.1"
	first := func(n int) func(i int) map[string]string {
		return func(i int) map[string]string {
			if i >= n {
				return nil
			}
			return reflectors(i, i)
		}
	}
	overlapping := recipe()
	overlapping["rack"] = calicov3.BGPPeerSpec{NodeSelector: "has(rack)", PeerSelector: "has(rr)", SourceAddress: calicov3.SourceAddressNone}
	masters := recipe()
	masters["masters"] = calicov3.BGPPeerSpec{NodeSelector: "all()", PeerSelector: "has(node-role.kubernetes.io/master)"}
	return map[string]hazard{
		"nothing": {ground: ground{nodes: 4, ids: []string{id, id}, labels: first(2), peers: recipe()}},
		"a port that Pods reach": {
			ground: ground{nodes: 4, ids: []string{id, id}, labels: first(2), peers: recipe(), open: true},
			want: []string{"note bgp-port: Pods can connect to TCP port 179 of the nodes: the sessions of BGPPeers clients, reflectors have no password, " +
				"and no GlobalNetworkPolicy denies it"},
		},
		"a black hole of one ID": {
			ground: ground{nodes: 4, ids: []string{id, id}, labels: func(i int) map[string]string { return map[string]string{"side": []string{"left", "right"}[i%2]} },
				peers: map[string]calicov3.BGPPeerSpec{
					"left":  {NodeSelector: "side == 'left'", PeerSelector: "side == 'left'"},
					"right": {NodeSelector: "side == 'right'", PeerSelector: "side == 'right'"},
				}},
			want: []string{
				"problem reachability: 8 of 12 ways from a node to another have no route by IPv4, such as n1 to n0 and n3 to n0",
				"warning redundancy: 1 node with n0 as the only reflector by IPv4: n2", "warning redundancy: 1 node with n1 as the only reflector by IPv4: n3",
			},
		},
		"paths of many IDs": {
			ground: ground{nodes: 7, ids: []string{"244.0.0.1", "244.0.0.2", "244.0.0.3", "244.0.0.4", "244.0.0.5"}, labels: first(5), peers: recipe()},
			want:   []string{"problem paths: by the model a node has up to 325 paths to one prefix; there are 5 reflectors with 5 cluster IDs"},
		},
		"the mesh left on": {
			ground: ground{nodes: 4, ids: []string{id, id}, labels: first(2), peers: recipe(), meshOn: true},
			want:   []string{"warning mesh: the node-to-node mesh is on in addition to 2 reflectors that serve clients (n0, n1)"},
		},
		"routes of two owners": {
			ground: ground{nodes: 4, ids: []string{id, id}, labels: first(2), peers: recipe(), felix: true},
			want:   []string{"problem cluster-routes: Felix and BIRD both program the routes between nodes of IP pools pods (IPIP)"},
		},
		"a single reflector": {
			ground: ground{nodes: 3, ids: []string{id}, labels: first(1), peers: recipe()},
			want:   []string{"warning redundancy: 2 nodes with n0 as the only reflector by IPv4: n1, n2"},
		},
		"options that differ": {
			ground: ground{nodes: 4, ids: []string{id, id}, peers: overlapping, labels: func(i int) map[string]string {
				if i == 3 {
					return map[string]string{"rack": "1"}
				}
				return reflectors(i, 0, 1)
			}},
			want: []string{"warning session-options: BGPPeers clients and rack ask for 2 common sessions with different options, such as that of n0 with n3"},
		},
		"labels of Kubernetes": {
			ground: ground{nodes: 4, ids: []string{id, id}, labels: first(2), peers: masters},
			want: []string{
				"warning selectors: spec.peerSelector of BGPPeer masters depends on a label of Kubernetes: has(node-role.kubernetes.io/master)",
				"warning selectors: spec.peerSelector of BGPPeer masters selects no node: has(node-role.kubernetes.io/master)",
			},
		},
		"an ID that is none": {
			ground: ground{nodes: 4, ids: []string{id, id, "1.2.3.4%!(EXTRA int32=7)"}, labels: first(2), peers: recipe()},
			want:   []string{`problem cluster-ids: annotation projectcalico.org/RouteReflectorClusterID of Node n2 is "1.2.3.4%!(EXTRA int32=7)", which is not an IPv4 address`},
			inEtcd: []string{`problem cluster-ids: spec.bgp.routeReflectorClusterID of Calico Node n2 is "1.2.3.4%!(EXTRA int32=7)", which is not an IPv4 address`},
		},
	}
}

// inBothDatastores sees that what is found in a cluster does not hang on where Calico keeps its data.
func inBothDatastores(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	s := &store{t: t, cluster: cluster}
	s.open()
	for name, h := range hazards() {
		t.Run(name, func(t *testing.T) {
			on := *s
			on.t = t
			on.clear()
			on.inKubernetes(h.ground)
			on.finds("kubernetes", h.want)
			on.clear()
			on.inEtcd(h.ground)
			want := h.want
			if h.inEtcd != nil {
				want = h.inEtcd
			}
			t.Setenv("ETCD_ENDPOINTS", on.etcd.Endpoint)
			on.finds("etcdv3", want)
		})
	}
	t.Run("only in etcd", func(t *testing.T) {
		on := *s
		on.t = t
		on.onlyInEtcd()
	})
}

// store is a cluster, and an etcd for Calico alongside it.
type store struct {
	t       *testing.T
	cluster *controlplane.Cluster
	etcd    *testkit.Etcd
	dynamic dynamic.Interface
	calico  libcalicov3.Interface
}

func (s *store) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) open() {
	s.t.Helper()
	s.etcd = testkit.NewEtcd(s.t)
	var err error
	s.dynamic, err = dynamic.NewForConfig(s.cluster.Config)
	s.must(err)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, s.etcd.Endpoint
	s.calico, err = libcalicov3.New(*config)
	s.must(err)
	s.t.Cleanup(func() { _ = s.calico.Close() })
}

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: plural}
}

// clear removes everything from both.
func (s *store) clear() {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.cluster.Client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for _, plural := range []string{"bgppeers", "bgpconfigurations", "felixconfigurations", "ippools", "clusterinformations", "globalnetworkpolicies"} {
		s.must(s.dynamic.Resource(resource(plural)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	_, err := s.etcd.Client.Delete(ctx, "/calico/", clientv3.WithPrefix())
	s.must(err)
}

// machines makes Ready Nodes; a node of Calico's kubernetes datastore has its data in annotations.
func (s *store) machines(g ground, annotations func(i int) map[string]string) {
	s.t.Helper()
	nodes := s.cluster.Client.CoreV1().Nodes()
	for i := range g.nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Annotations: annotations(i)}}
		if g.labels != nil {
			n.Labels = g.labels(i)
		}
		made, err := nodes.Create(s.t.Context(), n, metav1.CreateOptions{})
		s.must(err)
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = nodes.UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
		s.must(err)
	}
}

func address(i int) string { return fmt.Sprintf("10.0.0.%d/24", i+1) }

func (s *store) inKubernetes(g ground) {
	s.t.Helper()
	s.machines(g, func(i int) map[string]string {
		out := map[string]string{routereflector.IPv4Annotation: address(i)}
		if i < len(g.ids) {
			out[routereflector.ClusterIDAnnotation] = g.ids[i]
		}
		return out
	})
	create := func(plural, kind, name string, spec any) {
		text, err := json.Marshal(map[string]any{
			"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
		})
		s.must(err)
		object := &unstructured.Unstructured{}
		s.must(object.UnmarshalJSON(text))
		_, err = s.dynamic.Resource(resource(plural)).Create(s.t.Context(), object, metav1.CreateOptions{})
		s.must(err)
	}
	for name, spec := range g.peers {
		create("bgppeers", calicov3.KindBGPPeer, name, spec)
	}
	create("bgpconfigurations", calicov3.KindBGPConfiguration, "default", calicov3.BGPConfigurationSpec{NodeToNodeMeshEnabled: &g.meshOn})
	if !g.open {
		create("globalnetworkpolicies", calicov3.KindGlobalNetworkPolicy, "bgp", noBGP())
	}
	if g.felix {
		create("clusterinformations", calicov3.KindClusterInformation, "default", calicov3.ClusterInformationSpec{CalicoVersion: "v3.31.0"})
		create("ippools", calicov3.KindIPPool, "pods", ipip())
		create("felixconfigurations", calicov3.KindFelixConfiguration, "default", felixToo())
	}
}

// noBGP keeps all Pods from TCP port 179.
func noBGP() calicov3.GlobalNetworkPolicySpec {
	tcp := numorstring.ProtocolFromString("TCP")
	return calicov3.GlobalNetworkPolicySpec{
		NamespaceSelector: "all()", Types: []calicov3.PolicyType{calicov3.PolicyTypeEgress},
		Egress: []calicov3.Rule{{
			Action: calicov3.Deny, Protocol: &tcp,
			Destination: calicov3.EntityRule{Ports: []numorstring.Port{numorstring.SinglePort(179)}},
		}},
	}
}

func ipip() calicov3.IPPoolSpec {
	return calicov3.IPPoolSpec{CIDR: "10.244.0.0/16", IPIPMode: calicov3.IPIPModeAlways}
}

func felixToo() calicov3.FelixConfigurationSpec {
	enabled := clusterroutes.Enabled
	return calicov3.FelixConfigurationSpec{ProgramClusterRoutes: &enabled}
}

func (s *store) inEtcd(g ground) {
	s.t.Helper()
	ctx := s.t.Context()
	s.machines(g, func(int) map[string]string { return nil })
	s.must(s.calico.EnsureInitialized(ctx, "v3.31.0", "k8s,bgp"))
	for i := range g.nodes {
		n := libapiv3.NewNode()
		n.Name = fmt.Sprintf("n%d", i)
		if g.labels != nil {
			n.Labels = g.labels(i)
		}
		n.Spec = libapiv3.NodeSpec{
			OrchRefs: []libapiv3.OrchRef{{NodeName: n.Name, Orchestrator: orchestrator}}, BGP: &libapiv3.NodeBGPSpec{IPv4Address: address(i)},
		}
		invalid := i < len(g.ids) && strings.Contains(g.ids[i], "%")
		if i < len(g.ids) && !invalid {
			n.Spec.BGP.RouteReflectorClusterID = g.ids[i]
		}
		_, err := s.calico.Nodes().Create(ctx, n, options.SetOptions{})
		s.must(err)
		if invalid {
			s.spoil(n.Name, g.ids[i])
		}
	}
	for name, spec := range g.peers {
		p := calicov3.NewBGPPeer()
		p.Name, p.Spec = name, spec
		_, err := s.calico.BGPPeers().Create(ctx, p, options.SetOptions{})
		s.must(err)
	}
	c := calicov3.NewBGPConfiguration()
	c.Name, c.Spec = "default", calicov3.BGPConfigurationSpec{NodeToNodeMeshEnabled: &g.meshOn}
	_, err := s.calico.BGPConfigurations().Create(ctx, c, options.SetOptions{})
	s.must(err)
	if !g.open {
		policy := calicov3.NewGlobalNetworkPolicy()
		policy.Name, policy.Spec = "default.bgp", noBGP()
		_, err := s.calico.GlobalNetworkPolicies().Create(ctx, policy, options.SetOptions{})
		s.must(err)
	}
	if g.felix {
		pool, felix := calicov3.NewIPPool(), calicov3.NewFelixConfiguration()
		pool.Name, pool.Spec, felix.Name, felix.Spec = "pods", ipip(), "default", felixToo()
		_, err := s.calico.IPPools().Create(ctx, pool, options.SetOptions{})
		s.must(err)
		_, err = s.calico.FelixConfigurations().Create(ctx, felix, options.SetOptions{})
		s.must(err)
	}
}

// orchestrator is what calico-node calls Kubernetes in orchRefs.
const orchestrator = "k8s"

// nodeKey is where a Calico Node stands.
func nodeKey(name string) string { return "/calico/resources/v3/projectcalico.org/nodes/" + name }

// spoil gives a Calico Node a cluster ID that Calico's own client refuses to write.
func (s *store) spoil(name, id string) {
	s.t.Helper()
	found, err := s.etcd.Client.Get(s.t.Context(), nodeKey(name))
	s.must(err)
	if len(found.Kvs) != 1 {
		s.t.Fatalf("there is no Calico Node %s", name)
	}
	var object map[string]any
	s.must(json.Unmarshal(found.Kvs[0].Value, &object))
	s.must(unstructured.SetNestedField(object, id, "spec", "bgp", "routeReflectorClusterID"))
	text, err := json.Marshal(object)
	s.must(err)
	_, err = s.etcd.Client.Put(s.t.Context(), nodeKey(name), string(text))
	s.must(err)
}

// finds compares what is found with what is wanted, but for what is OK.
func (s *store) finds(where string, want []string) {
	s.t.Helper()
	code, out, errs := run(s.t, []string{"doctor", "rr", "--kubeconfig", s.cluster.Kubeconfig, "-o", "json"})
	var all struct {
		Findings []finding.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		s.t.Fatalf("in %s: exit code %d, %v: %s%s", where, code, err, out, errs)
	}
	var got []string
	for _, f := range all.Findings {
		if f.Severity != finding.OK {
			got = append(got, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.What))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("in %s (-want +got):\n%s", where, diff)
	}
	bad := slices.ContainsFunc(want, func(w string) bool { return !strings.HasPrefix(w, string(finding.Note)) })
	if attention := map[bool]int{true: 2, false: 0}[bad]; code != attention {
		s.t.Errorf("in %s the exit code is %d, want %d: %s", where, code, attention, errs)
	}
}

// onlyInEtcd is what the kubernetes datastore has no like of: objects that nobody can read, a datastore of its own that may be another cluster's, and
// Calico Nodes without a Kubernetes Node.
func (s *store) onlyInEtcd() {
	s.t.Helper()
	ctx := s.t.Context()
	good := hazards()["nothing"].ground
	s.clear()
	s.inEtcd(good)
	s.t.Setenv("ETCD_ENDPOINTS", s.etcd.Endpoint)
	before := s.etcd.Revision(s.t)
	s.finds("etcdv3", nil)
	if now := s.etcd.Revision(s.t); now != before {
		s.t.Errorf("the doctor has written to etcd: revision %d, was %d", now, before)
	}

	patch := func(name, text string) {
		s.t.Helper()
		_, err := s.cluster.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		s.must(err)
	}
	// What stands on Kubernetes' Nodes is nothing to Calico: neither an ID nor a label.
	patch("n2", `{"metadata":{"annotations":{"`+routereflector.ClusterIDAnnotation+`":"244.0.0.9"},"labels":{"rr":"true"}}}`)
	s.finds("etcdv3", nil)

	_, err := s.etcd.Client.Put(ctx, "/calico/resources/v3/projectcalico.org/bgppeers/broken", `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"whole"}}`)
	s.must(err)
	s.finds("etcdv3", []string{
		"problem unreadable: BGPPeer broken cannot be read, and nor can Calico: its value is not the object of that name",
		"note as-numbers: the AS numbers of those nodes and BGPPeers that can be read agree",
	})
	_, err = s.etcd.Client.Delete(ctx, "/calico/resources/v3/projectcalico.org/bgppeers/broken")
	s.must(err)

	s.must(s.cluster.Client.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	s.finds("etcdv3", []string{"warning redundancy: 2 nodes with n0 as the only reflector by IPv4: n2, n3", "warning redundancy: reflector n1 is not Ready"})
	s.whoseItIs()
}

// whoseItIs takes a datastore for another cluster's by its record, or without one by its nodes, and says of one that does not respond why.
func (s *store) whoseItIs() {
	s.t.Helper()
	ctx := s.t.Context()
	refused := func(want string, more ...string) {
		s.t.Helper()
		code, out, errs := run(s.t, append([]string{"doctor", "rr", "--kubeconfig", s.cluster.Kubeconfig}, more...))
		if code != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			s.t.Errorf("exit code %d, %q, %q; want one sentence with %q", code, out, errs, want)
		}
	}
	for _, name := range []string{"n2", "n3"} {
		s.must(s.cluster.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	refused("Calico's etcd does not look like this cluster's: of 4 Calico Nodes that name a Kubernetes Node, 1 name one that there is")
	for _, bound := range []string{"another", ""} {
		info, err := s.calico.ClusterInformation().Get(ctx, "default", options.GetOptions{})
		s.must(err)
		namespace, err := s.cluster.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		s.must(err)
		if bound == "" {
			bound = string(namespace.UID)
		}
		metav1.SetMetaDataAnnotation(&info.ObjectMeta, routereflector.BindingAnnotation, bound)
		_, err = s.calico.ClusterInformation().Update(ctx, info, options.SetOptions{})
		s.must(err)
		if bound == "another" {
			refused("belongs to the cluster whose namespace kube-system has UID another, and this one's has " + string(namespace.UID))
		}
	}
	// It is bound to this cluster, three of whose machines are gone.
	s.finds("etcdv3", []string{"warning redundancy: reflector n1 is not Ready"})
	s.t.Setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1")
	refused("calico's etcd at http://127.0.0.1:1 does not respond to a quorum read: dial tcp 127.0.0.1:1: connect: connection refused")
	s.t.Setenv("ETCD_ENDPOINTS", "")
	refused("the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS", "--datastore-type", "etcdv3")
}

// Bad settings are told before anything is read, each in one sentence.
func TestDoctorRouteReflectorsDatastore(t *testing.T) {
	const here = "http://192.0.2.1:2379"
	for name, test := range map[string]struct {
		environment map[string]string
		args        []string
		want        string
	}{
		"no endpoints":        {nil, []string{"--datastore-type", "etcdv3"}, "the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS"},
		"by the variable":     {map[string]string{"DATASTORE_TYPE": "etcdv3"}, nil, "the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS"},
		"an unknown one":      {nil, []string{"--datastore-type", "etcdv2"}, `datastore type "etcdv2" is unknown: it must be etcdv3 or kubernetes`},
		"two that differ":     {map[string]string{"CALICO_DATASTORE_TYPE": "etcdv3"}, []string{"--datastore-type", "kubernetes"}, "set one of them, or both alike"},
		"two at once":         {map[string]string{"CALICO_ETCD_ENDPOINTS": here}, []string{"--datastore-type", "kubernetes"}, "ETCD_ENDPOINTS is set as well: unset one of them"},
		"no URL":              {map[string]string{"ETCD_ENDPOINTS": "192.0.2.1:2379"}, nil, "which is not a URL such as https://10.0.0.1:2379"},
		"no such certificate": {map[string]string{"ETCD_ENDPOINTS": "https://192.0.2.1:2379", "ETCD_CA_CERT_FILE": "/no/such/file"}, nil, "ETCD_CA_CERT_FILE cannot be read: open /no/such/file"},
		"half a pair":         {map[string]string{"ETCD_ENDPOINTS": "https://192.0.2.1:2379", "ETCD_KEY_FILE": "/no/such/file"}, nil, "only one of ETCD_CERT_FILE and ETCD_KEY_FILE is set"},
		"files and datastore": {nil, []string{"--nodes", "nodes.json", "--datastore-type", "etcdv3"}, "--datastore-type and --nodes: give one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.environment {
				t.Setenv(variable, value)
			}
			code, out, errs := run(t, append([]string{"doctor", "routereflectors", "--kubeconfig", "/no/such/file"}, test.args...))
			if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q; want one sentence with %q", code, out, errs, test.want)
			}
		})
	}
}
