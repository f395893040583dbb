// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func deleteNow() *metav1.DeleteOptions { return &metav1.DeleteOptions{} }

// gone waits until a Service does not exist any more.
func (w *world) gone(name string) {
	w.T.Helper()
	testkit.Eventually(w.T, "service "+name+" to be gone", func() string {
		_, err := w.Client.CoreV1().Services(w.Name).Get(w.T.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it is there; " + w.Story()
	})
}

func (w *world) remove(name string) {
	w.T.Helper()
	must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(w.T.Context(), name, *deleteNow()))
	w.gone(name)
}

func (w *world) hasTarget(lb digitalocean.LoadBalancer, id int) bool {
	return slices.Contains(lb.DropletIDs, id)
}

func TestAddressesThatArriveLateReachTheLoadBalancer(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.timing.Resync = time.Hour
		w.cluster.DefaultType = annotation.TypeRegionalNetwork
		w.run()
		w.create("web")
		lb := w.balancer("web")
		late := w.bareNode("late")
		// The framework looks at a new Node at once and not again.
		testkit.Eventually(t, "the new Node to be told of", func() string {
			if len(w.events("LoadBalancerNodesLeftOut")) == 0 {
				return w.Story()
			}
			return ""
		})
		// All marks that the new Node made are worked off by the time that another Service is served.
		w.create("another")
		w.balancer("another")
		w.address("late")
		w.eventually("the late Node to be a target", lb.ID, func(lb digitalocean.LoadBalancer) bool { return w.hasTarget(lb, late) })
		if got := w.Writes(0); got["PUT /v2/load_balancers/{lb_id}"] != 0 || got["POST /v2/load_balancers/{lb_id}/droplets"] > 2 {
			t.Errorf("writes %v, want one call for droplets per load balancer", got)
		}
		w.ReportedOnce("web", "LoadBalancerNodesLeftOut", w.NodeName("late"))
	})
}

func TestNodesThatGoOrAreExcludedAreTakenOut(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.timing.Resync = time.Hour
		c := w.node("c")
		w.run()
		w.create("web")
		lb := w.balancer("web")
		node := must.Get(w.Client.CoreV1().Nodes().Get(t.Context(), w.NodeName("c"), metav1.GetOptions{})).Or(w.T)
		node.Labels[corev1.LabelNodeExcludeBalancers] = "true"
		must.Get(w.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})).Or(w.T)
		w.eventually("the excluded Node to be no target", lb.ID, func(lb digitalocean.LoadBalancer) bool { return !w.hasTarget(lb, c) && len(lb.DropletIDs) == 2 })
		w.DeleteNode(w.NodeName("b"))
		w.eventually("the lost Node to be no target", lb.ID, func(lb digitalocean.LoadBalancer) bool { return len(lb.DropletIDs) == 1 })
	})
}

func TestLoadBalancerThatWasEditedElsewhereIsRepaired(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		lb := w.balancer("web")
		must.Do(w.T, w.Account.EditLoadBalancer(lb.ID, func(lb *digitalocean.LoadBalancer) {
			lb.ForwardingRules[0].TargetPort = 1
			lb.DropletIDs = nil
		}))
		w.eventually("the load balancer to be as it was", lb.ID, func(now digitalocean.LoadBalancer) bool {
			return now.ForwardingRules[0] == lb.ForwardingRules[0] && len(now.DropletIDs) == 2
		})
		w.ReportedOnce("web", "LoadBalancerRepaired", "forwarding rule")
		w.resyncs()
		if got := w.Writes(0); got["PUT /v2/load_balancers/{lb_id}"] != 1 {
			t.Errorf("writes %v, want one PUT", got)
		}
	})
}

func TestLoadBalancerThatWasDeletedElsewhereIsMadeAnew(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		lb := w.balancer("web")
		must.Do(w.T, w.Account.DeleteLoadBalancer(lb.ID))
		testkit.Eventually(t, "another load balancer", func() string {
			if w.Service("web").Annotations[annotation.LoadBalancerID] == lb.ID {
				return w.Story()
			}
			return ""
		})
		if again := w.balancer("web"); again.Name != lb.Name || again.ID == lb.ID {
			t.Errorf("load balancer %+v after %+v", again, lb)
		}
		w.ReportedOnce("web", "LoadBalancerRecreated", lb.ID, "does not exist any more")
		w.resyncs()
		if got := w.Writes(0); len(got) != 1 || got[createRoute] != 2 {
			t.Errorf("writes %v, want two POSTs", got)
		}
	})
}

func TestDeletionDisownRenameAndChangeOfType(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		for _, name := range []string{"deleted", "disowned", "renamed", "retyped"} {
			w.create(name)
		}
		deleted, disowned, renamed, retyped := w.balancer("deleted"), w.balancer("disowned"), w.balancer("renamed"), w.balancer("retyped")

		w.remove("deleted")
		if _, err := w.Account.LoadBalancer(deleted.ID); err == nil {
			t.Error("the load balancer of the deleted service is there")
		}

		w.annotate("disowned", annotation.Disown, "true")
		must.Do(w.T, w.Account.EditLoadBalancer(disowned.ID, func(lb *digitalocean.LoadBalancer) { lb.EnableProxyProtocol = true }))
		w.resyncs()
		w.remove("disowned")
		if lb, err := w.Account.LoadBalancer(disowned.ID); err != nil || !lb.EnableProxyProtocol {
			t.Errorf("the disowned load balancer is %+v: %v", lb, err)
		}

		w.annotate("renamed", "name", "another-name")
		w.eventually("the new name", renamed.ID, func(lb digitalocean.LoadBalancer) bool { return lb.Name == "another-name" })

		w.PatchService("retyped", map[string]any{"spec": map[string]any{"type": "ClusterIP"}})
		testkit.Eventually(t, "the load balancer of the service of another type to be gone", func() string {
			if _, err := w.Account.LoadBalancer(retyped.ID); err == nil || len(w.Service("retyped").Finalizers) > 0 {
				return w.Story()
			}
			return ""
		})
		w.resyncs()
		if got := w.Writes(0); got[createRoute] != 4 || got["DELETE /v2/load_balancers/{lb_id}"] != 2 || got["PUT /v2/load_balancers/{lb_id}"] != 1 {
			t.Errorf("writes %v", got)
		}
	})
}

// TestADisownedLoadBalancerIsNotChangedByAnInformerThatLags: what the cache says may be old, so that the Service is read live before a change.
func TestADisownedLoadBalancerIsNotChangedByAnInformerThatLags(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		lb := w.balancer("web")
		w.view <- struct{}{}
		defer func() { <-w.view }()
		mark := w.Sim.Mark()
		w.annotate("web", annotation.Disown, "true")
		must.Do(w.T, w.Account.EditLoadBalancer(lb.ID, func(lb *digitalocean.LoadBalancer) { lb.EnableProxyProtocol = true }))
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v, want none", got)
		}
	})
}

func TestLoadBalancerClassIsLeftToOthers(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "classy", Namespace: w.Name, Labels: map[string]string{cloud.Label: w.Name}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("example.com/other"), Ports: []corev1.ServicePort{{Port: 80}},
			},
		}
		must.Get(w.Client.CoreV1().Services(w.Name).Create(t.Context(), s, metav1.CreateOptions{})).Or(w.T)
		w.create("web")
		w.balancer("web")
		w.resyncs()
		if got := w.Writes(0); got[createRoute] != 1 {
			t.Errorf("writes %v, want one POST", got)
		}
	})
}

func TestCertificateThatIsRenewedIsNotedAndNotFought(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		byID, err := w.Account.CreateCertificate(digitalocean.CertificateSpec{Name: "one", DNSNames: []string{"one.example.com"}})
		must.Do(w.T, err)
		byName, err := w.Account.CreateCertificate(digitalocean.CertificateSpec{Name: "two", DNSNames: []string{"two.example.com"}})
		must.Do(w.T, err)
		w.run()
		w.create("by-id", "protocol", "https", "certificate-id", byID.ID)
		w.create("by-name", "protocol", "https", "certificate-name", "two")
		w.balancer("by-id")
		w.balancer("by-name")
		mark := w.Sim.Mark()
		renewed := must.Get(w.Account.RotateCertificate(byID.ID)).Or(w.T)
		must.Get(w.Account.RotateCertificate(byName.ID)).Or(w.T)
		testkit.Eventually(t, "the renewed certificate on the service", func() string {
			if w.Service("by-id").Annotations[annotation.CertificateID] != renewed.ID {
				return w.Story()
			}
			return ""
		})
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v, want none", got)
		}
	})
}

func TestHostnameAndProxyProtocolShowInTheStatus(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("proxied", "enable-proxy-protocol", "true")
		w.balancer("proxied")
		if mode := w.Service("proxied").Status.LoadBalancer.Ingress[0].IPMode; mode == nil || *mode != corev1.LoadBalancerIPModeProxy {
			t.Errorf("ipMode is %v, want Proxy", mode)
		}
		w.create("named", "hostname", "Web.Example.com")
		testkit.Eventually(t, "the hostname", func() string {
			if published(w.Service("named")) != "web.example.com" {
				return w.Story()
			}
			return ""
		})
	})
}
