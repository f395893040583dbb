// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

const (
	// scenarioTopology is that of all scenarios.
	scenarioTopology = "lab"
	handLabel        = "route-reflector"
	handPeer         = "peer-with-route-reflectors"
	oldLabel         = "calico-route-reflector"
	oldMeshPeer      = "rrs-to-rrs"
	oldClientPeers   = "peer-to-rrs-"
	// linger is for how long files and probe are watched after the last write: confd takes a second at most to render what has changed. The short
	// run has half of it.
	linger = 4 * time.Second
)

// adopter is somebody who made reflectors before there was an operator.
type adopter struct {
	*lab
	client.Client
	// files are the configurations of all birds as they were, by path.
	files map[string]configuration
}

// configuration is a file that BIRD reads.
type configuration struct {
	text    string
	written time.Time
}

func (l *lab) adopter() *adopter {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	config.QPS = -1
	bgp, err := calico.OpenBGP(l.t.Context(), config)
	if err != nil {
		l.t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		l.t.Fatal(err)
	}
	bgp.AddToScheme(scheme)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		l.t.Fatal(err)
	}
	return &adopter{lab: l, Client: c, files: l.birdFiles()}
}

// birdFiles are the configurations of all birds, by path.
func (l *lab) birdFiles() map[string]configuration {
	l.t.Helper()
	out := map[string]configuration{}
	err := filepath.WalkDir(filepath.Join(l.BGPNetwork(), "nodes"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "bird.cfg" && d.Name() != "bird6.cfg" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		out[path] = configuration{string(text), info.ModTime()}
		return err
	})
	if err != nil || len(out) == 0 {
		l.t.Fatalf("reading the configurations of bird: %v, %d files", err, len(out))
	}
	return out
}

// unchanged sees that confd has written none of the files since they were remembered, for as long as something goes on.
func (a *adopter) unchanged(when string) {
	a.t.Helper()
	now := a.birdFiles()
	if !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(a.files))) {
		a.t.Fatalf("%s there are other files", when)
	}
	for path, was := range a.files {
		if is := now[path]; is.text != was.text {
			a.t.Errorf("%s %s is\n%s\nit was\n%s", when, path, is.text, was.text)
		} else if !is.written.Equal(was.written) {
			a.t.Errorf("%s confd has written %s again, with nothing changed", when, path)
		}
	}
	if a.t.Failed() {
		a.t.FailNow()
	}
}

// lingering polls something for a while.
func (a *adopter) lingering(look func()) {
	long := linger
	if testing.Short() {
		long /= 2
	}
	end := time.NewTimer(long)
	defer end.Stop()
	ticker := time.NewTicker(linger / 10)
	defer ticker.Stop()
	for {
		look()
		select {
		case <-end.C:
			return
		case <-ticker.C:
		}
	}
}

func (a *adopter) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *adopter) merge(object client.Object, patch string) {
	a.t.Helper()
	a.must(a.Patch(a.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (a *adopter) node(name, patch string) {
	a.t.Helper()
	a.merge(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

// peer creates a BGPPeer as kubectl does.
func (a *adopter) peer(name, from, to string) {
	a.t.Helper()
	p := &calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector, p.Spec.PeerSelector = from, to
	a.must(a.Create(a.t.Context(), p))
}

// reflectors are the nodes with a cluster ID, with it.
func (a *adopter) reflectors() map[string]string {
	a.t.Helper()
	var nodes corev1.NodeList
	a.must(a.List(a.t.Context(), &nodes))
	out := map[string]string{}
	for _, n := range nodes.Items {
		if id := n.Annotations[routereflector.ClusterIDAnnotation]; id != "" {
			out[n.Name] = id
		}
	}
	return out
}

// release ends the topology of the scenarios as docs/migration says, without an operator: its reflectors are those of somebody else's BGPPeers, which
// must be there, from then on.
func (a *adopter) release() {
	a.t.Helper()
	for _, name := range []string{scenarioTopology + "-clients", scenarioTopology + "-reflectors"} {
		a.must(a.Delete(a.t.Context(), &calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for node := range a.reflectors() {
		a.node(node, `{"metadata":{"labels":{"`+v1alpha1.ReflectorLabel+`":null}}}`)
	}
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: scenarioTopology}}
	a.merge(topology, `{"metadata":{"finalizers":null}}`)
	a.must(a.Delete(a.t.Context(), topology))
	a.await("the topology to be gone", func() error {
		err := a.Get(a.t.Context(), client.ObjectKeyFromObject(topology), topology)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there; %w", err)
	})
}

// operate runs the operator over a topology that adopts, until done, looking at each poll.
func (a *adopter) operate(spec v1alpha1.RouteReflectorTopologySpec, look func(), done func(*v1alpha1.RouteReflectorTopology) error) {
	a.t.Helper()
	count := int32(len(a.reflectors()))
	spec.Redundancy, spec.Failure.Stabilization = &count, &metav1.Duration{}
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: scenarioTopology}, Spec: spec}
	a.must(a.Create(a.t.Context(), topology))
	log, err := os.OpenFile(filepath.Join(a.BGPNetwork(), operatorLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	a.must(err)
	defer func() { _ = log.Close() }()
	c := exec.CommandContext(a.t.Context(), operator(), "--kubeconfig="+a.Kubeconfig(), "--metrics-bind-address=0", "--health-probe-bind-address=0", "--settle-period=1s")
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.must(c.Start())
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		a.must(c.Wait())
	}()
	a.await("the adoption", func() error {
		look()
		a.must(a.Get(a.t.Context(), client.ObjectKeyFromObject(topology), topology))
		return done(topology)
	})
}

// foreign are the BGPPeers that are not the topology's.
func (a *adopter) foreign() []string {
	a.t.Helper()
	var peers calicov3.BGPPeerList
	a.must(a.List(a.t.Context(), &peers))
	var out []string
	for i := range peers.Items {
		calico.NormalizeBGP(&peers.Items[i])
		if peers.Items[i].Labels[v1alpha1.TopologyLabel] == "" {
			out = append(out, peers.Items[i].Name)
		}
	}
	return out
}

func isReady(t *v1alpha1.RouteReflectorTopology) error {
	if t.Status.Phase == v1alpha1.PhaseReady && t.Status.ObservedGeneration == t.Generation {
		return nil
	}
	return fmt.Errorf("its status is %+v", t.Status)
}

// adoptByHand makes of the scenarios' reflectors some by hand, as Calico documents it, and has a topology adopt them again. Neither costs a session:
// no bird has its configuration written even once, and no pair of nodes has an outage. The short run leaves out the last look, at which the topology
// becomes Ready.
func adoptByHand(l *lab) {
	a := l.adopter()
	was, id := a.reflectors(), l.startProbe()
	for node := range was {
		a.node(node, `{"metadata":{"labels":{"`+handLabel+`":"true"}}}`)
	}
	a.peer(handPeer, "all()", handLabel+" == 'true'")
	look := func() { a.unchanged("by hand") }
	// confd watches Nodes and BGPPeers each for itself: one that hears of the end of the topology's peers before it hears of the labels has no
	// peer for a moment.
	a.lingering(look)
	a.release()
	if !testing.Short() {
		a.lingering(look)
	}
	spec := v1alpha1.RouteReflectorTopologySpec{Adopt: &v1alpha1.Adoption{
		Nodes: metav1.LabelSelector{MatchLabels: map[string]string{handLabel: "true"}}, BGPPeers: []string{handPeer},
	}}
	look = func() { a.unchanged("while it is adopted") }
	a.operate(spec, look, func(t *v1alpha1.RouteReflectorTopology) error {
		if left := a.foreign(); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		if testing.Short() {
			return nil
		}
		return isReady(t)
	})
	a.lingering(look)
	report := l.stopProbe(id)
	l.t.Logf("lost %d of %d", report.All.Lost, report.All.Sent)
	if report.All.Sent == 0 || report.All.Outages > 0 {
		l.t.Errorf("all pairs: %+v; want no outage; %v", report.All, report.Losers)
	}
	if now := a.reflectors(); !maps.Equal(now, was) {
		l.t.Errorf("the reflectors are %v; they were %v", now, was)
	}
}

// adoptMulti makes of the scenarios' reflectors what the upstream project's topology multi makes, an ID for each and a BGPPeer for each
// pair, and has a topology adopt them: one keeps its ID, the others take it over one at a time, and nobody else has an outage.
func adoptMulti(l *lab) {
	a := l.adopter()
	names := slices.Sorted(maps.Keys(a.reflectors()))
	a.makeMulti(names)
	l.awaitRoutes()
	a.awaitSettled(names)
	kept := a.reflectors()[names[0]]
	id := l.startProbe()
	spec := v1alpha1.RouteReflectorTopologySpec{ClusterID: kept, Adopt: &v1alpha1.Adoption{
		Nodes:    metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: oldLabel, Operator: metav1.LabelSelectorOpExists}}},
		BGPPeers: []string{oldMeshPeer, oldClientPeers + "*"},
	}}
	changing := 0
	a.operate(spec, func() { changing = max(changing, len(a.foreign())) }, isReady)
	l.awaitRoutes()
	report, err := l.client().StopProbe(l.t.Context(), id, names[1:])
	a.must(err)
	l.t.Logf("of %d BGPPeers; lost %d of %d, longest outage %v; collateral %+v", changing, report.All.Lost, report.All.Sent, report.All.LongestOutage, report.Collateral)
	if report.Collateral.Sent == 0 || report.Collateral.Outages > 0 {
		l.t.Errorf("pairs of which neither node changed its ID: %+v; want no outage; %v", report.Collateral, report.Losers)
	}
	want := map[string]string{}
	for _, name := range names {
		want[name] = kept
	}
	if now := a.reflectors(); !maps.Equal(now, want) || len(a.foreign()) > 0 {
		l.t.Errorf("the reflectors are %v, want %v; left are %v", now, want, a.foreign())
	}
	for _, name := range names { // the next ones that make reflectors by hand begin without it
		a.node(name, `{"metadata":{"labels":{"`+oldLabel+`":null}}}`)
	}
}

// makeMulti gives each reflector but the first an ID of its own, and each client BGPPeers with three of them.
func (a *adopter) makeMulti(names []string) {
	a.t.Helper()
	for i, name := range names {
		a.node(name, fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, oldLabel, i))
	}
	a.peer(oldMeshPeer, "has("+oldLabel+")", "has("+oldLabel+")")
	var nodes corev1.NodeList
	a.must(a.List(a.t.Context(), &nodes))
	for i, n := range nodes.Items {
		if slices.Contains(names, n.Name) {
			continue
		}
		for k := range min(3, len(names)) {
			to := (i + k) % len(names)
			a.peer(fmt.Sprintf("%s%d-%s", oldClientPeers, to, n.UID), fmt.Sprintf("kubernetes.io/hostname == '%s'", n.Name), fmt.Sprintf("%s == '%d'", oldLabel, to))
		}
	}
	a.release()
	for i, name := range names[1:] {
		a.node(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"244.0.9.%d"}}}`, routereflector.ClusterIDAnnotation, i+1))
	}
}

// awaitSettled waits until every bird has the configuration that belongs to the IDs.
func (a *adopter) awaitSettled(names []string) {
	a.t.Helper()
	a.await("the birds to know the new IDs", func() error {
		for _, name := range names {
			id, found := a.reflectors()[name], false
			for path, file := range a.birdFiles() {
				found = found || strings.Contains(path, "/"+name+"/") && strings.Contains(file.text, "rr cluster id "+id)
			}
			if !found {
				return fmt.Errorf("%s has no cluster ID %s", name, id)
			}
		}
		return nil
	})
	a.awaitRoutes()
}
