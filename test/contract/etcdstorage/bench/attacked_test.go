// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// Bounds of the core: far below the 4 GiB of database and 2 GiB of memory that it is shipped with.
const (
	mostDatabase = 1 << 30
	mostMemory   = 3 << 29
	podMemory    = 256 << 20
)

// patience is how long an API server may take to answer before it counts as not ready: kube-apiserver's own check of etcd gives up after 2 s, and the
// example's probe after 5.
const patience = 5 * time.Second

// every is the attack with all loads at one time.
const every = "every load at once"

// TestAPIServersStayReadyBesideAttacks attacks with every RPC in turn, and then with all of them at once, at night for half an hour. The
// core and the API servers have one processor, the attackers and their proxy another. All the while both API servers must be ready and able to write, and the core's memory and database must stay far below their limits; its history is
// compacted as the operator does.
func TestAPIServersStayReadyBesideAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("the full run runs it: it builds k8s.io/sample-apiserver")
	}
	program := controlplane.BuildSampleAPIServer(t)
	var core string
	var process *testkit.Process
	tenant := func(name string, flags ...string) *tenantproxy.Binary {
		b := tenantproxy.NewShipped(t, core, "/"+name+"/", name, append(flags, "--quota-bytes=134217728")...)
		b.WaitReady(t)
		return b
	}
	var kube, sample *controlplane.APIServer
	apart(t, func() {
		core, process = tenantproxy.StartEtcd(t, true)
		kube = controlplane.NewAPIServer(t, "http://"+tenant("kube").Address)
		sample = controlplane.NewSampleAPIServer(t, program, "http://"+tenant("sample").Address, kube)
	})
	hostile := tenant("hostile", "--quota-leases=1000", "--quota-watches=1000", fmt.Sprintf("--max-answer-bytes=%d", podMemory/2))
	attacks.PutData(t, tenantproxy.Dial(t, hostile.Address), "")
	go compact(t.Context(), tenantproxy.Dial(t, core))

	victims := []*victim{
		{name: "kube-apiserver", config: kube.Config, path: "/api/v1/namespaces/default/configmaps", kind: `"apiVersion":"v1","kind":"ConfigMap","data"`},
		{name: "sample-apiserver", config: sample.Config, path: "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders", kind: `"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","spec"`},
	}
	for _, v := range victims {
		v.begin(t)
	}
	var largest, memory float64
	for _, name := range append(slices.Sorted(maps.Keys(attacks.Loads())), every) {
		var made int
		t.Run(name, func(t *testing.T) { made = attack(t, name, hostile.Address) })
		database := size(t, core)
		largest, memory = max(largest, database), float64(process.PeakMemory(t))
		t.Logf("%-18s %9d attempts; the core's database %4.0f MiB, its memory at most %4.0f MiB so far; %s; %s", name, made, database/(1<<20), memory/(1<<20), &victims[0].noticed, &victims[1].noticed)
	}
	for _, v := range victims {
		for _, wrong := range v.noticed.Wrong("probe", "write") {
			t.Errorf("%s: %s", v.name, wrong)
		}
	}
	proxy := float64(hostile.PeakMemory(t))
	t.Logf("the hostile tenant's proxy has had %.0f MiB", proxy/(1<<20))
	if largest > mostDatabase || memory > mostMemory || proxy > podMemory {
		t.Errorf("too much: the core's database had %.0f MiB, its memory %.0f MiB, the hostile tenant's proxy %.0f MiB", largest/(1<<20), memory/(1<<20), proxy/(1<<20))
	}
}

// attack returns how many calls and messages were tried. Each attacker is a process of its own: a probe would wait for its turn among their goroutines in
// this one and be late by itself, and one that holds what it does not read would have the others collect its garbage.
func attack(t *testing.T, name, address string) (made int) {
	t.Helper()
	names, length := []string{name}, cases.Number(t, 2, 2, 80)
	if name == every {
		names, length = slices.Sorted(maps.Keys(attacks.Loads())), cases.Number(t, 10, 10, 1800)
	}
	var attackers []*testkit.Process
	for _, each := range names {
		attackers = append(attackers, startHostile(t, each, address, modest))
	}
	<-time.After(time.Duration(length) * time.Second)
	for i, each := range attackers {
		tried, err := strconv.Atoi(endHostile(t, each))
		if err != nil {
			t.Errorf("%s ended by itself: %v", names[i], err)
		}
		made += tried
	}
	return made
}

// compact does with the core what the operator does.
func compact(ctx context.Context, core *clientv3.Client) {
	const keep = 5 * time.Minute
	var history operator.History
	for ctx.Err() == nil {
		if now, err := core.Get(ctx, "/"); err == nil {
			var at int64
			if history, at = history.Observe(time.Now(), now.Header.Revision, keep); at > 0 {
				_, _ = core.Compact(ctx, at)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(keep / operator.MomentsKept):
		}
	}
}

// A victim is an API server that is used while it is a neighbor of the attacks.
type victim struct {
	name, path, kind string
	config           *rest.Config

	client  *rest.RESTClient
	noticed attacks.Neighbor
}

// begin probes and writes twice a second until the test ends.
func (v *victim) begin(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(v.config)
	config.WarningHandler = rest.NoWarnings{}
	config.ContentConfig = rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
	var err error
	if v.client, err = rest.UnversionedRESTClientFor(config); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, v.name+" to take a write", func() string {
		if err := v.write(t.Context(), -1); err != nil {
			return err.Error()
		}
		return ""
	})
	go func() {
		for n := 0; t.Context().Err() == nil; n++ {
			v.noticed.Do(t.Context(), patience, "probe", func(ctx context.Context) error {
				return v.client.Get().AbsPath("/readyz").Do(ctx).Error()
			})
			v.noticed.Do(t.Context(), patience, "write", func(ctx context.Context) error { return v.write(ctx, n) })
			select {
			case <-t.Context().Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
}

// write makes an object and deletes the one before it.
func (v *victim) write(ctx context.Context, n int) error {
	object := fmt.Sprintf(`{%s:{},"metadata":{"name":"n%d"}}`, v.kind, n)
	if err := v.client.Post().AbsPath(v.path).SetHeader("Content-Type", "application/json").Body([]byte(object)).Do(ctx).Error(); err != nil {
		return err
	}
	return v.client.Delete().AbsPath(v.path, "n"+strconv.Itoa(n)).Do(ctx).Error()
}

// size is the size of the core's database in bytes.
func size(t *testing.T, core string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer := must.Get(tenantproxy.Dial(t, core).Status(ctx, core)).Or(t)
	return float64(answer.DbSize)
}
