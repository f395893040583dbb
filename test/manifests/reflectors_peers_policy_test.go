// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// calicoAPIServer is the account of Calico's own API server, by which it writes what it serves.
const calicoAPIServer = "system:serviceaccount:calico-apiserver:calico-apiserver"

// acting is an administrator's client under another name.
func acting(t *testing.T, c *controlplane.Cluster, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	out := must.Get(client.New(config, client.Options{})).Or(t)
	return out
}

func bgpPeer(group schema.GroupVersion, name string) *unstructured.Unstructured {
	peer := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeSelector": "all()", "peerSelector": "has(x)"}}}
	peer.SetGroupVersionKind(group.WithKind(apiv3.KindBGPPeer))
	peer.SetName(name)
	return peer
}

// TestOnlyTheOperatorWritesItsPeers has an administrator, who has every right, edit, relabel and delete the BGPPeers of a topology on an API server with the
// shipped policy, in both groups in which Calico serves them, and with the label where libcalico-go keeps it; the operator and Calico's API server may.
func TestOnlyTheOperatorWritesItsPeers(t *testing.T) {
	t.Parallel()
	c := controlplane.New(t)
	c.InstallCalicoCRDs(t)
	installNative(t, c)
	installReflectors(t, c)
	person, operator, calico := acting(t, c, "jane"), acting(t, c, "system:serviceaccount:"+namespace+":calico-route-reflector-operator"), acting(t, c, calicoAPIServer)
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "only calico-route-reflector-operator writes it")
	}
	edit := func(c client.Client, peer *unstructured.Unstructured, patch string) error {
		return c.Patch(t.Context(), peer.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	const spec, anotherSpec = `{"spec":{"nodeSelector":"has(y)"}}`, `{"spec":{"nodeSelector":"has(z)"}}`
	unlabel := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{"projectcalico.org/metadata":null}}}`, v1alpha1.TopologyLabel)
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:"main"}}}`, v1alpha1.TopologyLabel)
	for _, group := range []schema.GroupVersion{calicoCRDs(), calicoNative()} {
		ours, kept, others := bgpPeer(group, "main-clients"), bgpPeer(group, "main-reflectors"), bgpPeer(group, "rack")
		ours.SetLabels(map[string]string{v1alpha1.TopologyLabel: "main"})
		kept.SetAnnotations(map[string]string{"projectcalico.org/metadata": fmt.Sprintf(`{"labels":{%q:"main"}}`, v1alpha1.TopologyLabel)})
		for _, peer := range []*unstructured.Unstructured{ours, kept, others} {
			must.Do(t, operator.Create(t.Context(), peer.DeepCopy()))
		}
		probes := 0
		testkit.Eventually(t, "the policy to be in force in "+group.String(), func() string {
			probes++
			if err := edit(person, ours, fmt.Sprintf(`{"metadata":{"annotations":{"probe":"%d"}}}`, probes)); !refused(err) {
				return fmt.Sprint(err)
			}
			return ""
		})
		for _, peer := range []*unstructured.Unstructured{ours, kept} {
			for _, patch := range []string{spec, unlabel} {
				if err := edit(person, peer, patch); !refused(err) {
					t.Errorf("%s %s: %s by a person: %v", group, peer.GetName(), patch, err)
				}
			}
			if err := person.Delete(t.Context(), peer.DeepCopy()); !refused(err) {
				t.Errorf("%s %s: deleted by a person: %v", group, peer.GetName(), err)
			}
			must.Do(t, edit(operator, peer, spec))
			must.Do(t, edit(calico, peer, anotherSpec))
		}
		// What is nobody's topology's is anybody's, but for becoming a topology's.
		must.Do(t, edit(person, others, spec))
		if err := edit(person, others, label); !refused(err) {
			t.Errorf("%s: labeled by a person: %v", group, err)
		}
		for _, peer := range []*unstructured.Unstructured{ours, kept} {
			must.Do(t, operator.Delete(t.Context(), peer.DeepCopy()))
		}
		must.Do(t, person.Delete(t.Context(), others.DeepCopy()))
	}
	for _, u := range files(t)["dist/calico-route-reflector-operator-kdd.yaml"] {
		if u.GetName() == "calico-route-reflector-operator-bgp-peers" {
			t.Errorf("kdd has %s, and its operator has an account of its own", u.GetKind())
		}
	}
}
