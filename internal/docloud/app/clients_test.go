// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What a controller does not declare is not sent, with whichever account the controllers write
// (--use-service-account-credentials).
func TestControllersWriteWhatTheyDeclare(t *testing.T) {
	c := controlplane.Shared(t)
	for name, builder := range map[string]cloudprovider.ControllerClientBuilder{
		"one account":  clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Config},
		"one for each": clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(c.Config), c.Client.CoreV1(), metav1.NamespaceSystem),
	} {
		client := must.Get(controllerClients{builder, nil, outputs.Guard}.Client("declared")).Or(t)
		ctx := outputs.Within(t.Context(), "tests", []outputs.Write{{System: outputs.Kubernetes, Kind: "secrets", Verbs: []string{"patch"}}})
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "undeclared"}}, metav1.CreateOptions{})
		if !errors.Is(err, outputs.ErrUndeclared) {
			t.Errorf("%s: a ConfigMap was made: %v", name, err)
		}
		_, err = client.CoreV1().Secrets("default").Patch(ctx, "nowhere", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		if errors.Is(err, outputs.ErrUndeclared) || !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: what is declared was not sent: %v", name, err)
		}
	}
}

// Every Event of ours about a Service is signed with a key on the leader's Lease: those of the framework's
// controller, and our own, also after another replica has taken over.
func TestEventsAboutAServiceAreSigned(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 7})
	start := func() *manager {
		return startManager(t, cloud, c.Kubeconfig, []string{"DO_CLUSTER_ID=signed", "DEFAULT_LB_TYPE=REGIONAL"},
			"--leader-elect=true", "--leader-elect-resource-name=signs", "--leader-elect-retry-period=500ms")
	}
	first := start()
	readyFleet(t, c, cloud, "signs-1")
	service(t, c, "signed")
	sources := func(reasons ...string) (got []string, problem string) {
		events, err := c.Client.CoreV1().Events("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "Service", "involvedObject.name": "signed"}.String()})
		lease, leaseErr := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "signs", metav1.GetOptions{})
		if err != nil || leaseErr != nil {
			return nil, fmt.Sprint(err, leaseErr)
		}
		keys := eventsign.KeysOf(lease.Annotations)
		for i := range events.Items {
			if e := &events.Items[i]; !keys.Signed(e) {
				t.Errorf("not signed: %s by %s: %s", e.Reason, e.Source.Component, e.Message)
			}
			got = append(got, events.Items[i].Reason)
		}
		for _, reason := range reasons {
			if !slices.Contains(got, reason) {
				problem = fmt.Sprintf("there is no %s yet: %v", reason, got)
			}
		}
		return got, problem
	}
	testkit.Eventually(t, "the framework's Events", func() string { _, problem := sources("EnsuredLoadBalancer"); return problem })
	first.Stop()
	start()
	_, err := c.Client.CoreV1().Services("default").Patch(t.Context(), "signed", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"service.beta.kubernetes.io/do-loadbalancer-size-unit":"nonsense"}}}`), metav1.PatchOptions{})
	must.Do(t, err)
	var got []string
	testkit.Eventually(t, "a refusal's Event", func() (problem string) { got, problem = sources("SyncLoadBalancerFailed"); return problem })
	t.Log(got)
}
