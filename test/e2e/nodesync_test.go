// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/pem"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// These tests wait most of the time: for grace periods, leases and restarts.
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU())); err != nil {
			panic(err)
		}
	}
	testkit.Main(m)
}

// campaign is the product, with the rights that ship, against a real API server and a real etcd, both of which can be killed.
type campaign struct {
	*site
	random     *rand.Rand
	kubeconfig string
	slow       *relay
	product    *testkit.Process
}

// The same machines go again and again while controller, API server and etcd are killed with signal 9 at random moments. Each time the
// datastore must end as it was before the machine came, byte for byte.
func TestKillingAnythingAtAnyTimeEndsAlike(t *testing.T) {
	t.Parallel()
	c := newCampaign(t)
	for i := range 3 {
		c.join(fmt.Sprintf("stays-%d", i), byte(i+1))
	}
	want := c.dump()
	c.startProduct()
	rounds := number("MOORING_E2E_ROUNDS", 30)
	if testing.Short() {
		rounds = min(rounds, 6)
	}
	interrupted := 0
	for round := range rounds {
		name := fmt.Sprintf("goes-%d", round)
		c.join(name, byte(100+round%100))
		c.leave(name)
		victim := c.killSomething()
		if node, ok := c.etcd.Dump(t)[nodePrefix+c.name(name)]; ok && strings.Contains(node, nodesync.FenceAnnotation) {
			interrupted++
		}
		testkit.Eventually(t, fmt.Sprintf("the clean-up of %s after %s was killed", name, victim), func() string {
			if len(c.ended()) > 0 {
				return c.ended()
			}
			return cmp.Diff(want, c.dump())
		})
	}
	t.Logf("%d of %d kills found a clean-up half done", interrupted, rounds)
}

// dump is the datastore without ClusterInformation, on which the product records the cluster once.
func (c *campaign) dump() map[string]string {
	out := c.etcd.Dump(c.t)
	delete(out, clusterInformationKey)
	return out
}

func newCampaign(t *testing.T) *campaign {
	c := &campaign{site: newSite(t, controlplane.New(t), "campaign"), random: cases.Rand(t)}
	c.slow = newRelay(t, c.etcd.Endpoint)
	c.kubeconfig = c.direct()
	return c
}

// direct writes a kubeconfig of the product's that leads to the API server itself.
func (s *site) direct() string {
	s.t.Helper()
	return s.through(s.api.Config.Host)
}

// through writes a kubeconfig of the product's that leads to an address behind which the API server is.
func (s *site) through(address string) string {
	s.t.Helper()
	authority, err := os.ReadFile(s.api.Config.CAFile)
	s.must(err)
	block, _ := pem.Decode(authority)
	return writeKubeconfig(s.t, address, s.token, block.Bytes)
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// startProduct starts calico-node-sync as a user would, against the slow way to etcd, so that a kill finds it in the middle of things.
func (c *campaign) startProduct() {
	c.t.Helper()
	c.product = c.startAt(c.kubeconfig, c.slow.url(), "--grace-period=1s", "--resync-period=3s", "--mass-guard-nodes=1000")
}

// ended says so when the product has ended by itself, which it may only do when the API server is away while it starts.
func (c *campaign) ended() string {
	select {
	case <-c.product.Done():
		c.startProduct()
		return "calico-node-sync ended and was started again, as Kubernetes would"
	default:
		return ""
	}
}

func (c *campaign) join(machine string, last byte) {
	c.t.Helper()
	c.insist("registering "+machine, func(ctx context.Context) error { return c.tryAddNode(ctx, machine) })
	c.insist("starting calico-node on "+machine, func(ctx context.Context) error {
		agent, err := c.calico.Start(ctx, c.host(machine, last))
		if err != nil {
			return err
		}
		for i := range 3 {
			if _, err := agent.PodNetwork().Add(ctx, c.pod(machine, i)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *campaign) leave(machine string) {
	c.t.Helper()
	c.insist("deleting the Node of "+machine, func(ctx context.Context) error { return c.tryDropNode(ctx, machine) })
}

// insist repeats something until it works: the servers it needs may just have been killed.
func (c *campaign) insist(what string, try func(context.Context) error) {
	c.t.Helper()
	testkit.Eventually(c.t, what, func() string { return c.within(try) })
}

// killSomething waits for a random part of the time that a clean-up takes, and kills one of the three.
func (c *campaign) killSomething() string {
	c.t.Helper()
	<-time.After(time.Duration(1500+c.random.IntN(3500)) * time.Millisecond)
	switch c.random.IntN(4) {
	case 0:
		c.api.Kill(c.t, "kube-apiserver")
		return "the API server"
	case 1:
		c.etcd.Kill()
		c.etcd.Restart(c.t)
		return "etcd"
	default:
		c.product.Kill()
		c.startProduct()
		return "calico-node-sync"
	}
}
