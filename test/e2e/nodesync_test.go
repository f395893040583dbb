// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	testkit.Main(m)
}

// campaign is the product against a real API server and a real etcd, both of which can be killed.
type campaign struct {
	t       *testing.T
	random  *rand.Rand
	api     *testkit.Cluster
	etcd    *testkit.Etcd
	slow    *relay
	calico  *caliconode.Datastore
	binary  string
	product *testkit.Process
	log     string
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
		if node, ok := c.etcd.Dump(t)["/calico/resources/v3/projectcalico.org/nodes/"+name]; ok && strings.Contains(node, nodesync.FenceAnnotation) {
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
	delete(out, "/calico/resources/v3/projectcalico.org/clusterinformations/default")
	return out
}

func newCampaign(t *testing.T) *campaign {
	seed := uint64(number("MOORING_E2E_SEED", int(time.Now().UnixNano()%1_000_000)))
	t.Logf("MOORING_E2E_SEED=%d replays this campaign", seed)
	c := &campaign{
		t: t, random: rand.New(rand.NewPCG(seed, seed)), api: testkit.ControlPlane(t), etcd: testkit.NewEtcd(t),
		binary: testkit.Binary(t, "calico-node-sync"), log: filepath.Join(t.TempDir(), "calico-node-sync.log"),
	}
	c.slow = newRelay(t, c.etcd.Endpoint)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, c.etcd.Endpoint
	var err error
	if c.calico, err = caliconode.Connect(*config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.calico.Close() })
	if err := c.calico.Initialize(t.Context(), "10.244.0.0/16"); err != nil {
		t.Fatal(err)
	}
	return c
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
	c.product = testkit.Start(c.t, c.log, []string{"ETCD_ENDPOINTS=" + c.slow.url()}, c.binary,
		"--kubeconfig", c.api.Kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--grace-period=1s", "--resync-period=3s", "--mass-guard-nodes=1000")
	c.t.Cleanup(c.product.Stop)
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

func (c *campaign) join(name string, last byte) {
	c.t.Helper()
	c.insist("registering "+name, func(ctx context.Context) error {
		_, err := c.api.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	c.insist("starting calico-node on "+name, func(ctx context.Context) error {
		agent, err := c.calico.Start(ctx, caliconode.Host{
			Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 0, last}), IPIP: true,
		})
		if err != nil {
			return err
		}
		for i := range 3 {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i), UID: types.UID(fmt.Sprintf("%s-%d", name, i))},
				Spec:       corev1.PodSpec{NodeName: name, ServiceAccountName: "default"},
			}
			if _, err := agent.PodNetwork().Add(ctx, pod); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *campaign) leave(name string) {
	c.t.Helper()
	c.insist("deleting Node "+name, func(ctx context.Context) error {
		err := c.api.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// insist repeats something until it works: the servers it needs may just have been killed.
func (c *campaign) insist(what string, try func(context.Context) error) {
	c.t.Helper()
	testkit.Eventually(c.t, what, func() string {
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		defer cancel()
		if err := try(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
}

// killSomething waits for a random part of the time that a clean-up takes, and kills one of the three.
func (c *campaign) killSomething() string {
	c.t.Helper()
	<-time.After(time.Duration(1000+c.random.IntN(2500)) * time.Millisecond)
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
