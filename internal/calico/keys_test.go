// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestKeysAreCalicos(t *testing.T) {
	t.Parallel()
	resource := func(kind, namespace, name string) model.Key {
		return model.ResourceKey{Kind: kind, Namespace: namespace, Name: name}
	}
	cases := map[string]model.Key{
		nodeKey("n1"):                   resource(libapiv3.KindNode, "", "n1"),
		reportKey("n1"):                 model.LastStatusReportKey{Hostname: "n1", RegionString: model.NoRegion},
		clusterInformationKey:           resource(apiv3.KindClusterInformation, "", "default"),
		endpointKey("ns", "n1-k8s-p-e"): resource(libapiv3.KindWorkloadEndpoint, "ns", "n1-k8s-p-e"),
	}
	for kind, prefix := range resourcePrefixes() {
		cases[prefix+"node.n1"] = resource(kind, "", "node.n1")
	}
	for ours, key := range cases {
		theirs := must.Get(model.KeyToDefaultPath(key)).Or(t)
		if ours != theirs {
			t.Errorf("key of %v: got %s, want %s", key, ours, theirs)
		}
	}
	for _, cidr := range []string{"10.0.0.64/26", "fd00::40/122"} {
		block, err := blockKey(netip.MustParsePrefix(cidr))
		if err != nil || block[:len(blockPrefix)] != blockPrefix {
			t.Errorf("key of block %s: got %s, %v; want it below %s", cidr, block, err, blockPrefix)
		}
		affinity, err := affinityKey("n1", netip.MustParsePrefix(cidr))
		if want := affinityPrefix + "n1/"; err != nil || affinity[:len(want)] != want {
			t.Errorf("key of the affinity to %s: got %s, %v; want it below %s", cidr, affinity, err, want)
		}
	}
}

func TestEndpointHost(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		endpointKey("ns", "n1-k8s-pod-eth0"):               "n1",
		endpointKey("ns", "n1-k8s-pod--with--dashes-eth0"): "n1",
		endpointKey("ns", "node--1-k8s-pod-eth0"):          "node-1",
		endpointKey("ns", "n1--k8s-k8s-pod-eth0"):          "n1-k8s",
		endpointKey("ns", "n1.example.com-k8s-pod-eth0"):   "n1.example.com",
		endpointPrefix + "no-namespace":                    "",
	}
	for key, want := range cases {
		if got := endpointHost(key); got != want {
			t.Errorf("host of %s: got %q, want %q", key, got, want)
		}
	}
}

func TestSetAnnotationChangesNothingElse(t *testing.T) {
	t.Parallel()
	object := `{"kind":"Node","future":{"x":[1,2]},"metadata":{"name":"n","annotations":{"a":"1"},"new":true},"spec":{"big":12345678901234567890}}`
	updated := must.Get(setAnnotation([]byte(object), "b", "2")).Or(t)
	var got map[string]json.RawMessage
	must.Do(t, json.Unmarshal(updated, &got))
	want := map[string]json.RawMessage{
		"kind": json.RawMessage(`"Node"`), "future": json.RawMessage(`{"x":[1,2]}`), "spec": json.RawMessage(`{"big":12345678901234567890}`),
		"metadata": json.RawMessage(`{"annotations":{"a":"1","b":"2"},"name":"n","new":true}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after setting an annotation (-want +got):\n%s", diff)
	}
	back := must.Get(setAnnotation(updated, "b", "")).Or(t)
	var restored map[string]json.RawMessage
	if err := json.Unmarshal(back, &restored); err != nil || string(restored["metadata"]) != `{"annotations":{"a":"1"},"name":"n","new":true}` {
		t.Errorf("removing it again: got %s (%v), want what was there before", back, err)
	}
	if same, err := setAnnotation([]byte(object), "b", ""); err != nil || string(same) != object {
		t.Errorf("removing what is not there: got %s (%v), want every byte as it was", same, err)
	}
}

func FuzzSetAnnotation(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"n"}}`), "v")
	f.Add([]byte(`{"metadata":{"annotations":null}}`), "")
	f.Add([]byte(`null`), "v")
	f.Add([]byte(`{"metadata":null}`), "v")
	f.Fuzz(func(t *testing.T, object []byte, value string) {
		updated, err := setAnnotation(object, "nodes.mooring.dev/decommission", value)
		if err == nil && !json.Valid(updated) {
			t.Fatalf("wrote %s, which is not JSON", updated)
		}
	})
}

func FuzzNode(f *testing.F) {
	f.Add("n1", []byte(`{"metadata":{"name":"n1"},"spec":{"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`))
	f.Add("n1", []byte(`{}`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		node, err := parseNode(nodePrefix+name, value, 1)
		if err == nil && node.Name != name {
			t.Fatalf("the Node is called %q, its key %q", node.Name, name)
		}
		_ = endpointHost(endpointPrefix + name)
	})
}
