// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	nodeRolesPolicy        = "calico-route-reflector-operator-node-roles"
	operatorAccount        = "system:serviceaccount:" + namespace + ":calico-route-reflector-operator"
	calicoNode             = "system:serviceaccount:calico-system:calico-node"
	listedAccount          = "system:serviceaccount:velero:velero"
	calicoNodeOfKubeSystem = "system:serviceaccount:kube-system:calico-node"
)

// roleKeys are what makes a Node a reflector or moves a client, by key, and whether it is a label or an annotation.
func roleKeys() map[string]string {
	return map[string]string{
		v1alpha1.ReflectorLabel: "labels", v1alpha1.GroupLabel: "labels", v1alpha1.ClientLabel: "labels",
		v1alpha1.JoinsLabel: "labels", routereflector.ClusterIDAnnotation: "annotations",
	}
}

// hiddenRoles are texts of Calico's labels annotation that make its Node a reflector for Calico. JSON has many ways to
// write a label.
func hiddenRoles() []string {
	return []string{
		`{"bgp.mooring.dev/reflector":"main"}`,
		`{"bgp.mooring.dev\/reflector":"main"}`,
		`{"\u0062gp.mooring.dev/reflector":"main"}`,
		`{"a":"b", "bgp.mooring\u002edev/reflector" : "main"}`,
	}
}

// nodeAccounts is an API server with NodeRestriction, a Node, and those who write it.
type nodeAccounts struct {
	*testing.T

	admin   client.Client
	cluster *controlplane.Cluster
}

// roleNode is the name of the Node.
const roleNode = "node-6"

// as is the client of an account; kubelets have a kubelet's rights, all others every right.
func (a nodeAccounts) as(user string) client.Client {
	a.Helper()
	return must.Get(client.New(a.config(user), client.Options{})).Or(a.T)
}

func (a nodeAccounts) config(user string) *rest.Config {
	config := rest.CopyConfig(a.cluster.Config)
	group := "system:masters"
	if strings.HasPrefix(user, "system:node:") {
		group = "system:nodes"
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{group, "system:authenticated"}}
	return config
}

// operator is the operator's client, which the policy lets write everything.
func (a nodeAccounts) operator() client.Client { return a.as(operatorAccount) }

// write writes one label or annotation of the Node, by the Node or by its status. value is JSON.
func (a nodeAccounts) write(c client.Client, status bool, kind, key, value string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: roleNode}}
	text := fmt.Appendf(nil, `{"metadata":{%q:{%q:%s}}}`, kind, key, value)
	patch := client.RawPatch(types.MergePatchType, text)
	if status {
		return c.Status().Patch(a.Context(), n, patch)
	}
	return c.Patch(a.Context(), n, patch)
}

// refused reports whether the policy refused a write, and named the key.
func refusedRole(err error, key string) bool {
	return err != nil && strings.Contains(err.Error(), "only calico-route-reflector-operator changes a Node's role") &&
		strings.Contains(err.Error(), key)
}

// install installs the shipped policy with one more account on its list, and waits until it is in force.
func (a nodeAccounts) install(server *objects.Server, kubelet client.Client) {
	a.Helper()
	applied := 0
	for _, u := range files(a.T)["dist/calico-route-reflector-operator-kubernetes.yaml"] {
		if !strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") || u.GetName() != nodeRolesPolicy {
			continue
		}
		conditions, has, err := unstructured.NestedSlice(u.Object, "spec", "matchConditions")
		must.Do(a.T, err)
		if has {
			condition, _ := conditions[0].(map[string]any)
			text, _ := condition["expression"].(string)
			condition["expression"] = strings.Replace(text, `[ "`, `[ "`+listedAccount+`", "`, 1)
			if condition["expression"] == text {
				a.Fatalf("there is no list in %s", text)
			}
			must.Do(a.T, unstructured.SetNestedSlice(u.Object, conditions, "spec", "matchConditions"))
		}
		must.Do(a.T, server.Apply(a.Context(), u))
		applied++
	}
	if applied != 2 {
		a.Fatalf("%d objects of policies are shipped", applied)
	}
	probes := 0 // each with a value of its own: one that is there already is not a change
	testkit.Eventually(a, "the policy to be in force", func() string {
		probes++
		err := a.write(kubelet, false, "labels", v1alpha1.ReflectorLabel, fmt.Sprintf(`"probe-%d"`, probes))
		if !refusedRole(err, v1alpha1.ReflectorLabel) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// newNodeAccounts has the shipped policy in force. Before it is, a kubelet and calico-node do all that it refuses, or
// the rest would show nothing.
func newNodeAccounts(t *testing.T) nodeAccounts {
	t.Helper()
	c := controlplane.New(t)
	server := objects.ConnectTo(t, c)
	a := nodeAccounts{T: t, admin: server.Client, cluster: c}
	must.Do(t, a.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: roleNode}}))
	kubelet := a.as("system:node:" + roleNode)
	must.Do(t, a.write(kubelet, false, "labels", v1alpha1.ReflectorLabel, `"main"`))
	must.Do(t, a.write(kubelet, true, "annotations", routereflector.ClusterIDAnnotation, `"244.0.0.1"`))
	must.Do(t, a.write(a.admin, false, "labels", v1alpha1.ReflectorLabel, "null"))
	must.Do(t, a.write(a.admin, false, "annotations", routereflector.ClusterIDAnnotation, "null"))
	for _, text := range hiddenRoles() {
		must.Do(t, a.write(a.as(calicoNode), true, "annotations", routereflector.LabelsAnnotation, fmt.Sprintf("%q", text)))
		if seen := a.calicoSees(); seen.Labels[v1alpha1.ReflectorLabel] != "main" {
			t.Errorf("%s: Calico has the labels %v", text, seen.Labels)
		}
	}
	must.Do(t, a.write(a.admin, false, "annotations", routereflector.LabelsAnnotation, "null"))
	a.install(server, kubelet)
	return a
}

// calicoSees is the Node as Calico's own client reads it.
func (a nodeAccounts) calicoSees() *libapiv3.Node {
	a.Helper()
	var n corev1.Node
	must.Do(a.T, a.admin.Get(a.Context(), types.NamespacedName{Name: roleNode}, &n))
	kv := must.Get(resources.K8sNodeToCalico(&n, false)).Or(a.T)
	out, ok := kv.Value.(*libapiv3.Node)
	if !ok {
		a.Fatalf("it is a %T", kv.Value)
	}
	return out
}

// TestOnlyTheOperatorWritesRoles has each account write, by a Node and by its status, all that makes a reflector or a
// client of another group of it, on an API server with NodeRestriction and the shipped policy.
func TestOnlyTheOperatorWritesRoles(t *testing.T) {
	t.Parallel()
	a := newNodeAccounts(t)
	kubelet := "system:node:" + roleNode
	for _, user := range []string{kubelet, calicoNode, calicoNodeOfKubeSystem, "jane"} {
		c := a.as(user)
		for key, kind := range roleKeys() {
			// The Node has Mooring's label, so that its cluster ID is nobody else's to change either.
			must.Do(t, a.write(a.operator(), false, "labels", v1alpha1.ReflectorLabel, `"main"`))
			must.Do(t, a.write(a.operator(), false, kind, key, `"2"`))
			for _, status := range []bool{false, true} {
				for _, value := range []string{"null", `"3"`} {
					if err := a.write(c, status, kind, key, value); !refusedRole(err, key) {
						t.Errorf("%s: setting %s to %s (status %v): %v", user, key, value, status, err)
					}
				}
			}
			must.Do(t, a.write(a.operator(), false, kind, key, "null"))
		}
		for _, text := range hiddenRoles() {
			const key = routereflector.LabelsAnnotation
			for _, status := range []bool{false, true} {
				if err := a.write(c, status, "annotations", key, fmt.Sprintf("%q", text)); !refusedRole(err, key) {
					t.Errorf("%s: setting %s to %s (status %v): %v", user, key, text, status, err)
				}
			}
			must.Do(t, a.write(a.operator(), true, "annotations", key, fmt.Sprintf("%q", text)))
			if err := a.write(c, true, "annotations", key, "null"); !refusedRole(err, key) {
				t.Errorf("%s: removing %s %s: %v", user, key, text, err)
			}
			must.Do(t, a.write(a.operator(), true, "annotations", key, "null"))
		}
	}
	for _, user := range []string{operatorAccount, listedAccount} {
		for key, kind := range roleKeys() {
			must.Do(t, a.write(a.as(user), false, kind, key, `"4"`))
			must.Do(t, a.write(a.as(user), true, kind, key, "null"))
		}
		must.Do(t, a.write(a.as(user), false, "annotations", routereflector.LabelsAnnotation, `"{}"`))
	}
}

// TestWhatIsNotARoleIsWritten has each account write what is its own to write on a Node that is a reflector: the policy
// refuses no work of a kubelet, of calico-node or of a person.
func TestWhatIsNotARoleIsWritten(t *testing.T) {
	t.Parallel()
	a := newNodeAccounts(t)
	kubelet, person := a.as("system:node:"+roleNode), a.as("jane")
	must.Do(t, a.write(a.operator(), false, "labels", v1alpha1.ReflectorLabel, `"main"`))
	must.Do(t, a.write(a.operator(), false, "annotations", routereflector.ClusterIDAnnotation, `"244.0.0.1"`))
	must.Do(t, a.write(kubelet, false, "labels", "example.com/rack", `"a"`))
	must.Do(t, a.write(kubelet, true, "annotations", "volumes.kubernetes.io/controller-managed-attach-detach", `"true"`))
	const labels = routereflector.LabelsAnnotation
	must.Do(t, a.write(person, false, "annotations", labels, `"{\"rack\": \"a\"}"`))
	must.Do(t, a.write(person, false, "annotations", v1alpha1.KeepAnnotation, `""`))
	for _, user := range []string{"system:node:" + roleNode, calicoNode} {
		if err := a.write(a.as(user), true, "annotations", v1alpha1.KeepAnnotation, "null"); err == nil {
			t.Errorf("%s has taken the annotation %s away", user, v1alpha1.KeepAnnotation)
		}
	}
	if err := a.write(kubelet, true, "annotations", labels, `"{\"rack\": \"b\"}"`); !refusedRole(err, labels) {
		t.Errorf("a kubelet writes Calico's labels: %v", err)
	}
	a.calicoNodeWrites()
	a.registers(kubelet)
	// A Node without Mooring's label is somebody else's to make a reflector, but not its own programs'.
	must.Do(t, a.write(person, false, "annotations", routereflector.ClusterIDAnnotation, `"244.0.0.9"`))
	for _, user := range []string{"system:node:" + roleNode, calicoNode} {
		err := a.write(a.as(user), true, "annotations", routereflector.ClusterIDAnnotation, "null")
		if !refusedRole(err, routereflector.ClusterIDAnnotation) {
			t.Errorf("%s takes another's cluster ID away: %v", user, err)
		}
	}
}

// calicoNodeWrites has Calico's own client write the Node as calico-node does at its start: the whole Calico Node, by the
// status. It keeps what it has read, and may not write another cluster ID.
func (a nodeAccounts) calicoNodeWrites() {
	a.Helper()
	nodes := resources.NewNodeClient(must.Get(kubernetes.NewForConfig(a.config(calicoNode))).Or(a.T), false)
	key := model.ResourceKey{Name: roleNode, Kind: libapiv3.KindNode}
	read := func() (*model.KVPair, *libapiv3.Node) {
		kv := must.Get(nodes.Get(a.Context(), key, "")).Or(a.T)
		n, ok := kv.Value.(*libapiv3.Node)
		if !ok || n.Spec.BGP == nil {
			a.Fatalf("it is %+v", kv.Value)
		}
		return kv, n
	}
	kv, n := read()
	n.Spec.BGP.IPv4Address = "192.0.2.6/24"
	must.Get(nodes.Update(a.Context(), kv)).Or(a.T)
	kv, n = read()
	if n.Spec.BGP.IPv4Address != "192.0.2.6/24" || n.Spec.BGP.RouteReflectorClusterID != "244.0.0.1" ||
		n.Labels["rack"] != "a" || n.Labels[v1alpha1.ReflectorLabel] != "main" {
		a.Errorf("calico-node has written %+v %v", n.Spec.BGP, n.Labels)
	}
	n.Spec.BGP.RouteReflectorClusterID = ""
	if _, err := nodes.Update(a.Context(), kv); !refusedRole(err, routereflector.ClusterIDAnnotation) {
		a.Errorf("calico-node takes a reflector's cluster ID away: %v", err)
	}
}

// registers has a kubelet register its Node again: as a reflector it may not, in either way.
func (a nodeAccounts) registers(kubelet client.Client) {
	a.Helper()
	must.Do(a.T, a.admin.Delete(a.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: roleNode}}))
	again := func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: roleNode}} }
	labeled, annotated := again(), again()
	labeled.Labels = map[string]string{v1alpha1.ReflectorLabel: "main"}
	annotated.Annotations = map[string]string{routereflector.LabelsAnnotation: hiddenRoles()[0]}
	if err := kubelet.Create(a.Context(), labeled); !refusedRole(err, v1alpha1.ReflectorLabel) {
		a.Errorf("registering as a reflector: %v", err)
	}
	if err := kubelet.Create(a.Context(), annotated); !refusedRole(err, routereflector.LabelsAnnotation) {
		a.Errorf("registering with a reflector's label for Calico: %v", err)
	}
	must.Do(a.T, kubelet.Create(a.Context(), again()))
	if seen := a.calicoSees(); slices.Contains(slices.Collect(maps.Keys(seen.Labels)), v1alpha1.ReflectorLabel) {
		a.Errorf("it has the labels %v", seen.Labels)
	}
}
