// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// The clock jumps around the ends of certificates and CAs, forwards and backwards, and the core is away for some of it. Whatever is issued is valid at that
// instant against every bundle that is published; within what certificates tolerate all that is published is so at every instant; after one look all is in
// order, and a second one writes nothing.
func TestTheClockJumps(t *testing.T) {
	t.Parallel()
	m := newDeathStage(t, server(t), false)
	ns, name := m.tenantOf(), "jumpy"
	m.storage(name, toTenant(ns, ", signingCertificateValidity: 240h, servingCertificateValidity: 90h, clientCertificateValidity: 60h"))
	m.start(cluster.Death{})
	none := 0
	m.settle(name, &none, nil)
	// A certificate begins an hour before it is made, so that a clock may be behind by that; and it is renewed after two thirds of its life.
	for i, jump := range []struct {
		hours  float64
		beyond bool // what certificates tolerate
		away   bool // the core
	}{
		{hours: 19}, {hours: 20, away: true}, {hours: -0.9}, {hours: 19}, {hours: 100, beyond: true}, {hours: -99, beyond: true}, {hours: 0.5}, {hours: 300, beyond: true},
		{hours: -400, beyond: true}, {hours: 401, beyond: true}, {hours: 19}, {hours: 9000, beyond: true}, {hours: -9000, beyond: true}, {hours: 15},
	} {
		if jump.away {
			m.etcd.Kill()
			m.patience = inVain
		}
		m.clock.Step(time.Duration(jump.hours * float64(time.Hour)))
		m.faults = nil
		m.start(cluster.Death{})
		m.program.Load().Look(func(write string) {
			issued := strings.HasSuffix(write, "-server-cert") || strings.HasSuffix(write, "/secrets/client")
			for _, problem := range m.brokenPairs(context.WithoutCancel(t.Context()), m.get(name), name) {
				if place, _, _ := strings.Cut(strings.TrimPrefix(problem, "the pair in "), " "); !jump.beyond || issued && strings.HasSuffix(write, place[strings.Index(place, "/"):]) {
					m.faults = append(m.faults, fmt.Sprintf("after %s: %s", write, problem))
				}
			}
		})
		m.settle(name, &none, nil)
		if !jump.away {
			m.quiet(name)
		}
		for _, fault := range append(m.faults, m.brokenPairs(t.Context(), m.get(name), name)...) {
			t.Errorf("jump %d, by %v h: %s", i, jump.hours, fault)
		}
		if jump.away {
			m.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "")
			m.etcd.Restart(t)
			m.patience = 0
			m.start(cluster.Death{})
			testkit.Eventually(t, "the core to answer", func() string {
				m.clock.Step(m.r.Timing.rest()) // it is left alone for so long
				m.settle(name, &none, nil)
				if c := m.conditions(name); !strings.Contains(c, "CoreReachable=True") {
					return c
				}
				return ""
			})
		}
		if t.Failed() {
			return
		}
	}
}

// blind reads no other EtcdStorage, as an informer does that is far behind.
type blind struct{ client.Reader }

// List implements client.Reader.
func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Two EtcdStorages with prefixes of which one lies in the other, and operators that do not see the other and die after each write: at no instant do both have
// their prefix, and in the end one is served and the other says why it is not.
func TestNeverTwoOwners(t *testing.T) {
	t.Parallel()
	m := newDeathStage(t, server(t), false)
	names := []string{"rival-a", "rival-b"}
	m.storage(names[0], "{prefix: /rival/x/}")
	m.storage(names[1], "{prefix: /rival/x/y/}")
	quiet := 0
	for turn := 0; quiet < 4; turn++ {
		if turn > 200 {
			t.Fatalf("they do not settle: %s\n%s", m.conditions(names[0]), m.conditions(names[1]))
		}
		name := names[turn%2]
		m.start(cluster.Death{Write: 1, After: turn%3 > 0})
		m.watch(name)
		m.r.Reader = blind{m.r.Reader}
		m.pass(name) // dies, or waits
		quiet++
		if m.program.Load().Died() {
			quiet = 0
		}
	}
	for _, fault := range m.faults {
		t.Error(fault)
	}
	owners, err := m.ownersNow(t.Context())
	if err != nil || len(owners) != 1 {
		t.Fatalf("owners %v, %v", owners, err)
	}
	for _, name := range names {
		if name == owners[0].Tenant {
			m.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
			continue
		}
		m.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "PrefixTaken", "belongs to tenant "+owners[0].Tenant)
		if strings.Contains(m.state(name), m.namespace+"/"+name+"-signers") {
			t.Error("it got a CA")
		}
	}
}
