// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/cloud-provider/names"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/mooring-dev/mooring/internal/testkit"
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

// The framework's controller of Services serves Services, with the Nodes there are, and does nothing for Nodes.
func TestNodesDoNotKeepTheControllerOfServicesBusy(t *testing.T) {
	t.Parallel()
	if constructors()[names.ServiceLBController].Constructor == nil || len(constructors()) < 4 {
		t.Fatal("the framework's controllers have other names")
	}
	metrics := controllersmetrics.NewControllerManagerMetrics("services-test")
	for what, quiet := range map[string]bool{"as the framework starts it": false, "as we start it": true} {
		var objects []runtime.Object
		for i := range 20 {
			objects = append(objects, readyNode(fmt.Sprintf("n%d", i)))
		}
		objects = append(objects, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: "1", Finalizers: []string{servicehelpers.LoadBalancerCleanupFinalizer}},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		})
		client, cloud := fake.NewClientset(objects...), &counted{}
		factory := informers.NewSharedInformerFactory(client, 0)
		var nodes coreinformers.NodeInformer = factory.Core().V1().Nodes()
		if quiet {
			nodes = quietNodes{nodes}
		}
		keeper, err := servicecontroller.New(cloud, client, factory.Core().V1().Services(), nodes, "kubernetes", featuregate.NewFeatureGate())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			keeper.Run(ctx, 1, metrics)
		}()
		factory.Start(ctx.Done())
		testkit.Eventually(t, what+": the Service to be served with all Nodes", func() string {
			if n := cloud.ensured.Load(); n != 20 {
				return fmt.Sprintf("%d Nodes", n)
			}
			return ""
		})
		if _, err := client.CoreV1().Nodes().Create(ctx, readyNode("late"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
		cancel()
		<-done
		factory.Shutdown()
	}
}

func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}
