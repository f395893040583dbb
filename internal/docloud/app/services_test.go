// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/cloud-provider/names"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// counted counts what the framework asks of a provider of load balancers.
type counted struct {
	cloudprovider.Interface

	ensured, updated atomic.Int64
}

func (c *counted) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (*counted) GetLoadBalancerName(context.Context, string, *corev1.Service) string { return "lb" }

func (*counted) EnsureLoadBalancerDeleted(context.Context, string, *corev1.Service) error { return nil }

func (*counted) GetLoadBalancer(context.Context, string, *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	return &corev1.LoadBalancerStatus{}, true, nil
}

func (c *counted) EnsureLoadBalancer(_ context.Context, _ string, _ *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	c.ensured.Add(int64(len(nodes)))
	return &corev1.LoadBalancerStatus{}, nil
}

func (c *counted) UpdateLoadBalancer(context.Context, string, *corev1.Service, []*corev1.Node) error {
	c.updated.Add(1)
	return nil
}

// startServices starts the framework's controller of Services with so many Nodes and Services, and returns what stops it. Quiet is as we start it.
func startServices(tb testing.TB, cloud cloudprovider.Interface, quiet bool, nodes, services int) (kubernetes.Interface, func()) {
	tb.Helper()
	objects := make([]runtime.Object, 0, nodes+services)
	for i := range nodes {
		objects = append(objects, readyNode(fmt.Sprintf("n%d", i)))
	}
	for i := range services {
		objects = append(objects, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "d", Name: fmt.Sprintf("web%d", i), UID: types.UID(strconv.Itoa(i)), Finalizers: []string{servicehelpers.LoadBalancerCleanupFinalizer},
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		})
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	var informer coreinformers.NodeInformer = factory.Core().V1().Nodes()
	if quiet {
		informer = provider.QuietNodes(informer)
	}
	keeper, err := servicecontroller.New(cloud, client, factory.Core().V1().Services(), informer, "kubernetes", featuregate.NewFeatureGate())
	must.Do(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keeper.Run(ctx, 1, metricsOfServices())
	}()
	factory.Start(ctx.Done())
	return client, func() {
		cancel()
		<-done
		factory.Shutdown()
	}
}

// metricsOfServices exist once per process.
var metricsOfServices = sync.OnceValue(func() *controllersmetrics.ControllerManagerMetrics {
	return controllersmetrics.NewControllerManagerMetrics("services-test")
})

// The framework's controller of Services serves Services, with the Nodes there are, and does nothing for Nodes.
func TestNodesDoNotKeepTheControllerOfServicesBusy(t *testing.T) {
	t.Parallel()
	if constructors()[names.ServiceLBController].Constructor == nil || len(constructors()) < 4 {
		t.Fatal("the framework's controllers have other names")
	}
	for what, quiet := range map[string]bool{"as the framework starts it": false, "as we start it": true} {
		cloud := &counted{}
		client, stop := startServices(t, cloud, quiet, 20, 1)
		testkit.Eventually(t, what+": the Service to be served with all Nodes", func() string {
			if n := cloud.ensured.Load(); n != 20 {
				return fmt.Sprintf("%d Nodes", n)
			}
			return ""
		})
		must.Get(client.CoreV1().Nodes().Create(t.Context(), readyNode("late"), metav1.CreateOptions{})).Or(t)
		if quiet {
			<-time.After(time.Second)
		} else {
			testkit.Eventually(t, what+": an update for a Node that comes", func() string {
				return map[bool]string{true: "none"}[cloud.updated.Load() == 0]
			})
		}
		if n := cloud.updated.Load(); quiet && n != 0 {
			t.Errorf("%s: %d updates", what, n)
		}
		stop()
	}
}

// BenchmarkControllerOfServices prints the CPU time that the framework's controller of Services takes from its start until all Services were served once
// and it has been quiet for a while, lists of the API server included.
func BenchmarkControllerOfServices(b *testing.B) {
	const services = 50
	for _, c := range []struct {
		what  string
		quiet bool
		nodes int
	}{{"as we start it, 5000 nodes", true, 5000}, {"as we start it, 500 nodes", true, 500}, {"as the framework starts it, 500 nodes", false, 500}} {
		b.Run(c.what, func(b *testing.B) {
			cloud := &counted{}
			before := cpuTime(b)
			_, stop := startServices(b, cloud, c.quiet, c.nodes, services)
			testkit.Eventually(b, "all Services to be served", func() string {
				if n := cloud.ensured.Load(); n < int64(c.nodes*services) {
					return fmt.Sprintf("%d Nodes of all Services", n)
				}
				return ""
			})
			for used, last := cpuTime(b), time.Duration(0); used-last > 50*time.Millisecond; {
				<-time.After(time.Second)
				used, last = cpuTime(b), used
			}
			b.ReportMetric((cpuTime(b) - before).Seconds(), "CPU-s")
			b.ReportMetric(float64(cloud.updated.Load()), "updates")
			b.ReportMetric(0, "ns/op")
			stop()
		})
	}
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}
