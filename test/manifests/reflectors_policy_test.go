// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestAKubeletCannotMakeItselfAReflector has a kubelet's account write its own Node, by the Node and by its status, on an API server with
// NodeRestriction: without the shipped policy it makes itself a reflector, and with it only what is not a role can be written.
func TestAKubeletCannotMakeItselfAReflector(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	server := objects.ConnectTo(t, cluster)
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:node-6", Groups: []string{"system:nodes", "system:authenticated"}}
	kubelet := must.Get(client.New(config, client.Options{})).Or(t)
	must.Do(t, server.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-6"}}))
	write := func(c client.Client, status bool, kind, key, value string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-6"}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{%q:{%q:%s}}}`, kind, key, value))
		if status {
			return c.Status().Patch(t.Context(), n, patch)
		}
		return c.Patch(t.Context(), n, patch)
	}
	role := map[string]string{
		v1alpha1.ReflectorLabel: "labels", v1alpha1.GroupLabel: "labels", v1alpha1.ClientLabel: "labels", v1alpha1.JoinsLabel: "labels",
		routereflector.ClusterIDAnnotation: "annotations", v1alpha1.KeepAnnotation: "annotations",
	}
	// The attack works where nobody forbids it, or the rest would show nothing.
	must.Do(t, write(kubelet, false, "labels", v1alpha1.ReflectorLabel, `"main"`))
	must.Do(t, write(kubelet, true, "annotations", routereflector.ClusterIDAnnotation, `"244.0.0.1"`))
	must.Do(t, write(server.Client, false, "labels", v1alpha1.ReflectorLabel, "null"))
	must.Do(t, write(server.Client, false, "annotations", routereflector.ClusterIDAnnotation, "null"))
	applied := 0
	for _, u := range files(t)["dist/calico-route-reflector-operator-kubernetes.yaml"] {
		if strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") && u.GetName() == "calico-route-reflector-operator-node-roles" {
			must.Do(t, server.Apply(t.Context(), u))
			applied++
		}
	}
	if applied != 2 {
		t.Fatalf("%d objects of policies are shipped", applied)
	}
	refused := func(err error, key string) bool {
		return err != nil && strings.Contains(err.Error(), "a kubelet must not change its Node's role as a route reflector") && strings.Contains(err.Error(), key)
	}
	probes := 0 // each with a value of its own: one that is there already is not a change
	testkit.Eventually(t, "the policy to be in force", func() string {
		probes++
		err := write(kubelet, false, "labels", v1alpha1.ReflectorLabel, fmt.Sprintf(`"probe-%d"`, probes))
		if !refused(err, v1alpha1.ReflectorLabel) {
			return fmt.Sprint(err)
		}
		return ""
	})
	for key, kind := range role {
		for _, status := range []bool{false, true} {
			if err := write(kubelet, status, kind, key, `"2"`); !refused(err, key) {
				t.Errorf("setting %s (status %v): %v", key, status, err)
			}
		}
		must.Do(t, write(server.Client, false, kind, key, `"2"`))
		for _, value := range []string{"null", `"3"`} {
			if err := write(kubelet, false, kind, key, value); !refused(err, key) {
				t.Errorf("changing %s to %s: %v", key, value, err)
			}
		}
	}
	// What a kubelet does all day goes on, on a Node that has a role.
	must.Do(t, write(kubelet, false, "labels", "example.com/rack", `"a"`))
	must.Do(t, write(kubelet, true, "annotations", "volumes.kubernetes.io/controller-managed-attach-detach", `"true"`))
	must.Do(t, server.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-6"}}))
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-6", Labels: map[string]string{v1alpha1.ReflectorLabel: "main"}}}
	if err := kubelet.Create(t.Context(), again); !refused(err, v1alpha1.ReflectorLabel) {
		t.Errorf("registering as a reflector: %v", err)
	}
	again.Labels = nil
	must.Do(t, kubelet.Create(t.Context(), again))
	var nodes corev1.NodeList
	must.Do(t, server.Client.List(t.Context(), &nodes))
	if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { _, has := n.Labels[v1alpha1.ReflectorLabel]; return has }) {
		t.Errorf("there is a reflector: %+v", nodes.Items)
	}
}
