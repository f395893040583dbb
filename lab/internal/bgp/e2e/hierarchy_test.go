// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
)

// inGroups is how many machines there are in TestHierarchy: two groups of two reflectors, two spines, and three clients.
const inGroups = 9

// TestHierarchy has the nodes become too many for one group of reflectors, and few enough again: Auto makes a hierarchy of two groups, and a
// flat topology of that. The loss that is expected is none but that of the nodes whose own role changes. In each shape BIRD has the
// sessions, paths and routes that the model predicts.
func TestHierarchy(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out; generated hierarchies are in the short run of TestModel")
	}
	l := startScenarios(t, inGroups)
	l.awaitRoutes()
	if !l.part(scenario.Enable, func(l *lab) { judge(l.t, l.scenario(scenario.Enable)) }) {
		return
	}
	spec := l.topology().Spec
	stop, err := scenario.Operate(t.Context(), operator(), l.Kubeconfig(), filepath.Join(l.BGPNetwork(), operatorLog))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, part := range []struct {
		name string
		run  func(*lab)
	}{
		{"flat to hierarchical", func(l *lab) { l.reshape(5, v1alpha1.ModeHierarchical, 2) }},
		{"hierarchical to flat", func(l *lab) { l.reshape(500, v1alpha1.ModeFlat, 1) }},
		{"and to a hierarchy again", func(l *lab) { l.reshape(5, v1alpha1.ModeHierarchical, 2) }},
		{"from a hierarchy to the mesh", toTheMesh},
		{"from the mesh to a hierarchy", func(l *lab) { l.divide(spec) }},
	} {
		if !l.part(part.name, part.run) {
			return // what comes next needs this one's end
		}
	}
}

// divide makes the topology again, with fewer clients for each reflector: a hierarchy, of the mesh.
func (l *lab) divide(spec v1alpha1.RouteReflectorTopologySpec) {
	spec.Sizing.MaxClientsPerReflector = 5
	topology := v1alpha1.RouteReflectorTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RouteReflectorTopology"},
		ObjectMeta: metav1.ObjectMeta{Name: path.Base(topologyPath)}, Spec: spec,
	}
	body, err := json.Marshal(topology)
	if err != nil {
		l.t.Fatal(err)
	}
	rest := l.kubernetes().CoreV1().RESTClient()
	if err := rest.Post().AbsPath(path.Dir(topologyPath)).Body(body).Do(l.t.Context()).Error(); err != nil {
		l.t.Fatal(err)
	}
	l.reshape(5, v1alpha1.ModeHierarchical, 2)
}

// reshape lets a reflector have so many clients, and waits for the shape that Auto makes of it.
func (l *lab) reshape(clients int, mode v1alpha1.Mode, groups int32) {
	before := l.clusterIDs()
	end := l.begin()
	l.patchTopology(fmt.Sprintf(`{"spec":{"sizing":{"maxClientsPerReflector":%d}}}`, clients))
	l.await("the shape", func() error {
		t := l.topology()
		s := t.Status
		if err := isReady(&t); err != nil {
			return err
		}
		if s.Mode != mode || s.Groups != groups || s.ReadyReflectors != s.DesiredReflectors {
			return fmt.Errorf("its status is %+v", s)
		}
		return nil
	})
	l.awaitRoutes()
	l.observe()
	l.noCollateral(end())
	if len(before) > 0 {
		l.keepsIDs(before)
	}
	l.asPredicted(mode, groups)
}

// clusterIDs are those of the reflectors, by node.
func (l *lab) clusterIDs() map[string]string {
	l.t.Helper()
	all, reflectors := l.nodes()
	out := map[string]string{}
	for _, name := range reflectors {
		out[name] = all[name].Annotations[routereflector.ClusterIDAnnotation]
	}
	return out
}

// keepsIDs sees that no reflector that stayed one has another cluster ID: its sessions would have been reset.
func (l *lab) keepsIDs(before map[string]string) {
	l.t.Helper()
	after, stayed := l.clusterIDs(), 0
	for name, id := range before {
		if now, is := after[name]; is {
			stayed++
			if now != id {
				l.t.Errorf("%s had the cluster ID %s, and has %s", name, id, now)
			}
		}
	}
	if stayed < scenario.Redundancy {
		l.t.Errorf("only %d of %v are still reflectors: %v", stayed, before, after)
	}
}

// asPredicted compares BIRD with the model, and counts BGPPeers, cluster IDs and paths.
func (l *lab) asPredicted(mode v1alpha1.Mode, groups int32) {
	l.t.Helper()
	b := newBench(l)
	s := &shape{}
	summary, err := b.compare(s)
	if err != nil {
		l.t.Error(err)
	}
	_, _, _, most := b.predict(s)
	var peers calicov3.BGPPeerList
	b.must(b.api.List(l.t.Context(), &peers))
	ids := l.clusterIDs()
	distinct := slices.Compact(slices.Sorted(maps.Values(ids)))
	l.t.Logf("%s: %d BGPPeers, cluster IDs %v: %s", mode, len(peers.Items), distinct, summary)
	wantPeers, wantIDs, wantPaths := 2, 1, scenario.Redundancy
	if mode == v1alpha1.ModeHierarchical {
		wantPeers, wantIDs, wantPaths = 2*int(groups)+3, int(groups)+1, 8
	}
	if len(peers.Items) > wantPeers || len(distinct) != wantIDs || most > wantPaths {
		l.t.Errorf("there are %d BGPPeers (at most %d), cluster IDs %v (of %d), %d paths to a prefix (at most %d)", len(peers.Items), wantPeers, ids, wantIDs,
			most, wantPaths)
	}
}
