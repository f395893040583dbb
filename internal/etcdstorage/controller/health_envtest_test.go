// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// smallCore is an etcd with a database of at most 8 MiB, in place of the core.
func (g *stage) smallCore() *testkit.Etcd {
	g.t.Helper()
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "storage-proxies"})
	files := testkit.NewTLSFolder(g.t, g.authority.Issue(g.t, testkit.Leaf{}), g.authority.PEM)
	url, peer := "https://"+testkit.FreeAddress(g.t), "http://"+testkit.FreeAddress(g.t)
	process := testkit.Start(g.t, filepath.Join(g.t.TempDir(), "log"), nil, testkit.Binary(g.t, "etcd"), "--name=small", "--data-dir="+filepath.Join(g.t.TempDir(), "data"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=small="+peer,
		"--cert-file="+files.Cert(), "--key-file="+files.Key(), "--trusted-ca-file="+files.CA(), "--client-cert-auth", "--quota-backend-bytes=8388608", "--unsafe-no-fsync",
		"--log-level=error")
	g.t.Cleanup(process.Kill)
	core := &testkit.Etcd{Endpoint: url}
	core.Client = core.Connect(g.t, clientv3.Config{TLS: pair.Client(g.t, g.authority)})
	testkit.Eventually(g.t, "the core", func() string {
		if _, err := core.Client.Get(g.t.Context(), "any"); err != nil {
			return err.Error()
		}
		return ""
	})
	return core
}

// overwrite overwrites a key until the size of the core's database, and how the last put ended, are as wanted.
func overwrite(t *testing.T, core *testkit.Etcd, key string, until func(size int64, err error) bool) {
	t.Helper()
	value := strings.Repeat("x", 100<<10)
	for range 300 {
		_, err := core.Client.Put(t.Context(), key, value)
		// A hash makes etcd commit what it has buffered; without it the size of the file would lag, and leap beyond the quota.
		must.Get(pb.NewMaintenanceClient(core.Client.ActiveConnection()).Hash(t.Context(), &pb.HashRequest{})).Or(t)
		status := must.Get(core.Client.Status(t.Context(), core.Endpoint)).Or(t)
		if until(status.DbSize, err) {
			return
		}
	}
	t.Fatal("the core has room for ever")
}

// fill overwrites a key until the core has the alarm NOSPACE.
func fill(t *testing.T, core *testkit.Etcd, key string) {
	t.Helper()
	overwrite(t, core, key, func(_ int64, err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) })
}

// A core that runs out of space is reported on each EtcdStorage within one resync, as are its recovery and what was near: the condition CoreHealthy, and
// metrics. The members are asked once for all tenants.
func TestACoreWithoutSpaceIsReported(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	core := g.smallCore()
	g.at(core)
	registry := prometheus.NewRegistry()
	g.r.Metrics = NewMetrics(registry)
	names := []string{"crowded", "crowded-too"}
	for _, name := range names {
		g.storage(name, "{}")
		g.sync(name)
		g.expect(name, v1alpha1.ConditionCoreHealthy, metav1.ConditionTrue, "Healthy", "")
	}
	key := "/" + names[0] + "/x"
	look := func(status metav1.ConditionStatus, reason, words string) {
		t.Helper()
		g.clock.Step(g.r.Timing.Resync)
		before := g.r.Core.looks
		defer func() {
			if n := g.r.Core.looks - before; n != 1 {
				t.Errorf("the members were asked %d times for %d tenants", n, len(names))
			}
		}()
		for _, name := range names {
			g.sync(name)
			g.expect(name, v1alpha1.ConditionCoreHealthy, status, reason, words)
		}
	}
	overwrite(t, core, key, func(size int64, _ error) bool { return size >= 8<<20*85/100 })
	look(metav1.ConditionFalse, "NearlyFull", core.Endpoint+" has ")
	fill(t, core, key)
	look(metav1.ConditionFalse, "NoSpace", "no tenant can write")
	if n := testutil.ToFloat64(g.r.Metrics.coreAlarms.WithLabelValues("nospace")); n != 1 {
		t.Errorf("%v members without space in the metrics", n)
	}
	g.expect(names[1], v1alpha1.ConditionCoreReachable, metav1.ConditionTrue, "Reachable", "")
	// What the message says is done.
	answer := must.Get(core.Client.Get(t.Context(), "any")).Or(t)
	must.Get(core.Client.Compact(t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())).Or(t)
	must.Get(core.Client.Defragment(t.Context(), core.Endpoint)).Or(t)
	must.Get(core.Client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})).Or(t)
	look(metav1.ConditionTrue, "Healthy", "")
	m := g.r.Metrics
	size, quota := testutil.ToFloat64(m.coreBytes.WithLabelValues(core.Endpoint, "size")), testutil.ToFloat64(m.coreBytes.WithLabelValues(core.Endpoint, "quota"))
	if alarms := testutil.ToFloat64(m.coreAlarms.WithLabelValues("nospace")); alarms != 0 || size <= 0 || size > quota || quota != 8<<20 ||
		testutil.ToFloat64(m.coreUp.WithLabelValues(core.Endpoint)) != 1 || testutil.ToFloat64(m.coreLeader.WithLabelValues(core.Endpoint)) != 1 {
		t.Errorf("%v alarms, size %v of %v", alarms, size, quota)
	}
}
