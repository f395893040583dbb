// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// onEtcd is a lab whose Calico keeps its data in an etcd of its own: confd of every node reads it, and the operator writes it.
type onEtcd struct {
	*lab
	calico clientv3.Interface
	access blueprint.EtcdAccess
}

// TestEtcd has the operator enable reflectors, scale them out and in, and replace one whose machine is gone, with Calico's data in etcd. The
// loss that is expected is that of the scenarios: no pair has an outage of which neither node changed its role or died. The short run ends
// with three reflectors.
func TestEtcd(t *testing.T) {
	nodes := 8
	if testing.Short() {
		nodes = 5
	}
	l := startScenarios(t, nodes, "--calico-datastore", blueprint.DatastoreEtcd)
	e := &onEtcd{lab: l}
	e.connect()
	t.Logf("%d nodes had every route after %v", nodes, l.awaitRoutes())
	e.install()
	stop, err := scenario.Operate(t.Context(), operator(), l.Kubeconfig(), filepath.Join(l.BGPNetwork(), operatorLog), e.environment()...)
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
		run  func(e *onEtcd)
		long bool
	}{
		{"enable", (*onEtcd).enable, false}, {"scale out", func(e *onEtcd) { e.scale(scenario.Redundancy + 1) }, false},
		{"scale in", func(e *onEtcd) { e.scale(scenario.Redundancy) }, true},
		{"a reflector dies", (*onEtcd).reflectorDies, true}, {"back to the mesh", (*onEtcd).disable, true},
	} {
		if part.long && testing.Short() {
			continue
		}
		if !l.part(part.name, func(l *lab) { part.run(&onEtcd{lab: l, calico: e.calico, access: e.access}) }) {
			return // what comes next needs this one's end
		}
	}
}

func (e *onEtcd) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// connect opens Calico's etcd by what the lab says of itself.
func (e *onEtcd) connect() {
	e.t.Helper()
	var lab folder.Lab
	e.must(folder.ReadJSON(e.LabFile(), &lab))
	if lab.CalicoEtcd == nil {
		e.t.Fatal("the lab has no etcd for Calico")
	}
	e.access = *lab.CalicoEtcd
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.EtcdV3
	config.Spec.EtcdEndpoints = strings.Join(e.access.Endpoints, ",")
	config.Spec.EtcdCACertFile, config.Spec.EtcdCertFile, config.Spec.EtcdKeyFile = e.access.CAFile, e.access.CertFile, e.access.KeyFile
	var err error
	e.calico, err = clientv3.New(*config)
	e.must(err)
	e.t.Cleanup(func() { _ = e.calico.Close() })
}

// environment names the datastore to the operator, as its manifest does.
func (e *onEtcd) environment() []string {
	return []string{
		"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + strings.Join(e.access.Endpoints, ","), "ETCD_CA_CERT_FILE=" + e.access.CAFile,
		"ETCD_CERT_FILE=" + e.access.CertFile, "ETCD_KEY_FILE=" + e.access.KeyFile,
	}
}

// install has the API server serve the kind.
func (e *onEtcd) install() {
	e.t.Helper()
	rest := e.kubernetes().CoreV1().RESTClient()
	const name = "routereflectortopologies.bgp.mooring.dev"
	text, err := os.ReadFile(filepath.Join(repository, "config", "crd", "bases", "bgp.mooring.dev_routereflectortopologies.yaml"))
	e.must(err)
	e.must(rest.Patch(types.ApplyPatchType).AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name).
		Param("fieldManager", "e2e").Body(text).Do(e.t.Context()).Error())
	e.await("the kind to be served", func() error {
		return rest.Get().AbsPath(filepath.Dir(topologyPath)).Do(e.t.Context()).Error()
	})
}

// reflectors are the Calico Nodes with the topology's label, with their cluster IDs. One that has the label without an ID, or an ID without
// the label, fails the test: the two are one write.
func (e *onEtcd) reflectors() map[string]string {
	e.t.Helper()
	nodes, err := e.calico.Nodes().List(e.t.Context(), options.ListOptions{})
	e.must(err)
	out := map[string]string{}
	for _, n := range nodes.Items {
		id := ""
		if n.Spec.BGP != nil {
			id = n.Spec.BGP.RouteReflectorClusterID
		}
		if labeled := n.Labels[v1alpha1.ReflectorLabel] == scenarioTopology; labeled != (id != "") {
			e.t.Fatalf("Calico Node %s has the label: %v, and cluster ID %q", n.Name, labeled, id)
		}
		if id != "" {
			out[n.Name] = id
		}
	}
	return out
}

// mesh reports whether the mesh is on, by etcd.
func (e *onEtcd) mesh() bool {
	e.t.Helper()
	all, err := e.calico.BGPConfigurations().List(e.t.Context(), options.ListOptions{})
	e.must(err)
	for i := range all.Items {
		if all.Items[i].Name == "default" {
			return routereflector.MeshFrom(&all.Items[i]).On
		}
	}
	return true
}

// settled waits until the topology is Ready with as many reflectors in etcd as are wanted, and every node has every route.
func (e *onEtcd) settled(want int) []string {
	e.t.Helper()
	var names []string
	e.await("the reflectors", func() error {
		t := e.topology()
		names = slices.Sorted(maps.Keys(e.reflectors()))
		var said []string
		for _, r := range t.Status.Reflectors {
			said = append(said, r.Node)
		}
		slices.Sort(said)
		if len(names) != want || !slices.Equal(said, names) || isReady(&t) != nil || e.mesh() {
			return fmt.Errorf("they are %v, the mesh is on: %v; want %d; the topology: %w", names, e.mesh(), want, isReady(&t))
		}
		return nil
	})
	e.awaitRoutes()
	return names
}

// under lets something happen under a probe. Nobody but anyone who dies and anyone who changes its role may have an outage.
func (e *onEtcd) under(dies []string, change func()) {
	e.t.Helper()
	before := e.reflectors()
	id := e.startProbe()
	change()
	after := e.reflectors()
	changed := slices.Clone(dies)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
		if before[name] != after[name] {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	report, err := e.client().StopProbe(e.t.Context(), id, slices.Compact(changed))
	e.must(err)
	e.t.Logf("%v died or changed their roles in %v; lost %d of %d, longest outage %v; others: lost %d of %d, %d outages", report.Changed, report.Duration,
		report.All.Lost, report.All.Sent, report.All.LongestOutage, report.Collateral.Lost, report.Collateral.Sent, report.Collateral.Outages)
	e.noCollateral(report)
}

// enable makes the topology: two reflectors, whose roles are in etcd alone, and no mesh.
func (e *onEtcd) enable() {
	e.under(nil, func() {
		rest := e.kubernetes().CoreV1().RESTClient()
		e.must(rest.Post().AbsPath(filepath.Dir(topologyPath)).Body(fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":"RouteReflectorTopology","metadata":{"name":%q},"spec":{"redundancy":%d,"failure":{"stabilization":"0s","unreachableGrace":"10s"}}}`,
			v1alpha1.GroupVersion.String(), scenarioTopology, scenario.Redundancy)).Do(e.t.Context()).Error())
		e.settled(scenario.Redundancy)
	})
	all, labeled := e.nodes()
	for name, n := range all {
		if id := n.Annotations[routereflector.ClusterIDAnnotation]; id != "" || len(labeled) > 0 {
			e.t.Errorf("Node %s has cluster ID %q, and %v have the label: neither has a place there", name, id, labeled)
		}
	}
	peers, err := e.calico.BGPPeers().List(e.t.Context(), options.ListOptions{})
	e.must(err)
	if len(peers.Items) != 2 {
		e.t.Errorf("there are %d BGPPeers, want 2", len(peers.Items))
	}
}

// scale makes so many reflectors of them; those that there are stay, as far as may be.
func (e *onEtcd) scale(to int) {
	before := e.reflectors()
	e.under(nil, func() {
		e.patchTopology(fmt.Sprintf(`{"spec":{"redundancy":%d}}`, to))
		e.settled(to)
	})
	kept := 0
	for name, id := range e.reflectors() {
		if before[name] == id {
			kept++
		}
	}
	if kept != min(len(before), to) {
		e.t.Errorf("of %v the reflectors are %v", before, e.reflectors())
	}
}

// reflectorDies: the machine falls silent, its Node is deleted, and calico-node-sync deletes its Calico Node. Another one takes its place.
func (e *onEtcd) reflectorDies() {
	victim := slices.Sorted(maps.Keys(e.reflectors()))[0]
	e.under([]string{victim}, func() {
		e.run("node", "remove", victim)
		_, err := e.calico.Nodes().Delete(e.t.Context(), victim, options.DeleteOptions{})
		e.must(err)
		if now := e.settled(scenario.Redundancy); slices.Contains(now, victim) {
			e.t.Errorf("the reflectors are %v", now)
		}
	})
}

// disable deletes the topology: the mesh comes back, and nothing of the operator's is left in etcd.
func (e *onEtcd) disable() {
	e.under(nil, func() {
		rest := e.kubernetes().CoreV1().RESTClient()
		e.must(rest.Delete().AbsPath(topologyPath).Do(e.t.Context()).Error())
		e.await("the end of the topology", func() error {
			if rest.Get().AbsPath(topologyPath).Do(e.t.Context()).Error() == nil {
				return errors.New("it is there")
			}
			return nil
		})
		e.awaitRoutes()
	})
	peers, err := e.calico.BGPPeers().List(e.t.Context(), options.ListOptions{})
	e.must(err)
	statuses, err := e.calico.CalicoNodeStatus().List(e.t.Context(), options.ListOptions{})
	e.must(err)
	if left := e.reflectors(); len(left) > 0 || len(peers.Items) > 0 || len(statuses.Items) > 0 || !e.mesh() {
		e.t.Errorf("left are reflectors %v, %d BGPPeers, %d CalicoNodeStatuses; the mesh is on: %v", left, len(peers.Items), len(statuses.Items), e.mesh())
	}
}
