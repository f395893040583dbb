// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// journal are the lines of a log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) write(_, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) has(part string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.lines, func(l string) bool { return strings.Contains(l, part) })
}

// seeder is one on a stage, with an environment.
type seeder struct {
	Seeder
	journal
	told  *events.FakeRecorder
	clock *clocktesting.FakeClock
}

func (s *stage) seeder(config *rest.Config, env map[string]string) *seeder {
	s.t.Helper()
	b, err := calico.OpenBGP(s.t.Context(), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: schemeOf(b)})
	if err != nil {
		s.t.Fatal(err)
	}
	out := &seeder{told: events.NewFakeRecorder(10), clock: clocktesting.NewFakeClock(s.now())}
	out.Seeder = Seeder{
		Reader: s.client, Live: c, Client: c, Calico: &KubernetesDatastore{BGPKubernetes: b, Reader: s.client}, Leases: coordinationclient.NewForConfigOrDie(config).Leases("default"), Events: out.told, Clock: out.clock,
		Getenv: func(name string) string { return env[name] }, Log: funcr.New(out.write, funcr.Options{}),
	}
	return out
}

// run runs it to its end.
func (s *seeder) run(t *testing.T) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// seedStage has nodes, and nothing of an earlier test's.
func seedStage(t *testing.T, on *cluster.Cluster) *stage {
	t.Helper()
	s := emptyStage(t, on)
	s.makeNodes(4)
	forget := func(ctx context.Context) {
		err := s.cluster.Client.CoordinationV1().Leases("default").Delete(ctx, SeedLease, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	forget(t.Context())
	t.Cleanup(func() { forget(context.WithoutCancel(t.Context())) })
	return s
}

func (s *stage) topologies() []string {
	s.t.Helper()
	var list v1alpha1.RouteReflectorTopologyList
	if err := s.client.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, t := range list.Items {
		out = append(out, t.Name)
	}
	return out
}

// The variables make a topology once, and what becomes of it is not theirs any more: not when it is edited, and not when it is deleted.
func TestSeedOnce(t *testing.T) {
	t.Parallel()
	s := seedStage(t, cluster.Lend(t))
	env := map[string]string{"ROUTE_REFLECTOR_CLUSTER_ID": "10.1.2.3", "ROUTE_REFLECTOR_MIN": "2", "ROUTE_REFLECTOR_WAIT_TIMEOUT": "5"}
	first := s.seeder(s.config, env)
	first.run(t)
	made := s.topology("main")
	if made.Spec.ClusterID != "10.1.2.3" || *made.Spec.Redundancy != 2 || made.Spec.Mesh != v1alpha1.MeshObserve || made.Spec.Adopt != nil {
		t.Errorf("%+v", made.Spec)
	}
	for _, want := range []string{
		"Normal MadeFromEnvironment created from the variables ROUTE_REFLECTOR_*, which are not read again; remove them",
		"Normal EnvironmentDiffers the node-to-node mesh is on and stays so, as the old operator never turned it off (spec.mesh: Observe)",
		"Normal EnvironmentDiffers ROUTE_REFLECTOR_WAIT_TIMEOUT is not needed: sessions are checked, without a fixed wait",
	} {
		if got := <-first.told.Events; got != want {
			t.Errorf("the Event is %q, want %q", got, want)
		}
	}
	if !first.has("RouteReflectorTopology created from the variables ROUTE_REFLECTOR_*, which are not read again; remove them") {
		t.Error(first.lines)
	}
	env["ROUTE_REFLECTOR_MIN"] = "4"
	s.seeder(s.config, env).run(t)
	if *s.topology("main").Spec.Redundancy != 2 {
		t.Error("it was overwritten")
	}
	if err := s.client.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	s.seeder(s.config, env).run(t)
	if got := s.topologies(); len(got) > 0 {
		t.Errorf("somebody deleted it, and it is back: %v", got)
	}
}

// A process that dies between the two writes leaves a topology that the next one takes as it is.
func TestSeedDiesBetween(t *testing.T) {
	t.Parallel()
	s := seedStage(t, cluster.Lend(t))
	env := map[string]string{"ROUTE_REFLECTOR_MIN": "2"}
	dying := s.seeder(s.config, env)
	ctx, die := context.WithCancel(t.Context())
	dying.Client = dies{dying.Client, die}
	done := make(chan error)
	go func() { done <- dying.Start(ctx) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := s.cluster.Client.CoordinationV1().Leases("default").Get(t.Context(), SeedLease, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease is there: %v", err)
	}
	env["ROUTE_REFLECTOR_MIN"] = "4"
	next := s.seeder(s.config, env)
	next.run(t)
	if got := *s.topology("main").Spec.Redundancy; got != 2 || !next.has("The variables ROUTE_REFLECTOR_* are not read, since there is a topology") {
		t.Errorf("redundancy %d, %v", got, next.lines)
	}
	if _, err := s.cluster.Client.CoordinationV1().Leases("default").Get(t.Context(), SeedLease, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// dies is a client whose process dies after it has created something.
type dies struct {
	client.Client

	die context.CancelFunc
}

func (d dies) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	err := d.Client.Create(ctx, object, opts...)
	d.die()
	return err
}

// What the variables say that cannot be had is said in one line, and nothing is made of it, now or later, until they are right.
func TestSeedRefused(t *testing.T) {
	t.Parallel()
	s := seedStage(t, cluster.Lend(t))
	for env, want := range map[string]string{
		"ROUTE_REFLECTOR_MIN=x": `"error"="ROUTE_REFLECTOR_MIN \"x\": must be a whole number from 1 to 50"`,
		"ROUTE_REFLECTOR_MIN=8": `"error"="ROUTE_REFLECTOR_MIN 8: every client has a session with every reflector, so that a topology has at most 6"`,
	} {
		name, value, _ := strings.Cut(env, "=")
		refused := s.seeder(s.config, map[string]string{name: value})
		refused.run(t)
		const line = "No topology is created from the variables ROUTE_REFLECTOR_*; correct them and start again, or create a RouteReflectorTopology"
		if !refused.has(line) || !refused.has(want) || len(refused.lines) != 1 || len(s.topologies()) > 0 {
			t.Errorf("%v, %v", refused.lines, s.topologies())
		}
	}
	s.seeder(s.config, map[string]string{"ROUTE_REFLECTOR_MIN": "2"}).run(t)
	if got := s.topologies(); !slices.Equal(got, []string{"main"}) {
		t.Errorf("%v", got)
	}
}

// Without the right to create one it says so once, and without variables it asks for nothing.
func TestSeedRights(t *testing.T) {
	t.Parallel()
	s := seedStage(t, cluster.Real(t))
	limited := rest.CopyConfig(s.config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "nobody-in-particular"}
	refused := s.seeder(limited, map[string]string{"ROUTE_REFLECTOR_MIN": "2"})
	refused.run(t)
	if !refused.has("apply config/calico-route-reflector-operator/overlays/environment, or remove them") || len(refused.lines) != 1 {
		t.Error(refused.lines)
	}
	quiet := s.seeder(limited, map[string]string{"DATASTORE_TYPE": "kubernetes"})
	if quiet.run(t); len(quiet.lines) > 0 {
		t.Error(quiet.lines)
	}
}

// Where calico-node has not set BGP up yet, it waits: what it saw would be too few nodes.
func TestSeedWaits(t *testing.T) {
	t.Parallel()
	s := seedStage(t, cluster.Lend(t))
	s.clear(t.Context())
	if err := s.calico.EnsureInitialized(t.Context(), "v3.31.0", "k8s,bgp"); err != nil {
		t.Fatal(err)
	}
	waits := s.seeder(s.config, map[string]string{"ROUTE_REFLECTOR_MIN": "2"})
	done := make(chan error)
	go func() { done <- waits.Start(t.Context()) }()
	testkit.Eventually(t, "it to wait", func() string {
		if waits.has("no Node has a BGP address by calico-node yet") && waits.clock.HasWaiters() {
			return ""
		}
		return "it does not"
	})
	s.makeNode(0)
	waits.clock.Step(seedRetry + time.Second)
	if err := <-done; err != nil || !slices.Equal(s.topologies(), []string{"main"}) {
		t.Errorf("%v, %v", err, s.topologies())
	}
}
