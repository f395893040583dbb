// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// meanwhile makes rounds, in which somebody else does something just before the step of this kind and object. What was decided must
// not be written then: it is decided again.
func (g *stage) meanwhile(name, kind, object string, deed func()) {
	g.t.Helper()
	did := false
	g.r.Wrote = func(s operator.Step, done bool) {
		if operator.Kind(s) == kind && s.What().Object == object && !done && !did {
			did = true
			deed()
		}
	}
	defer func() { g.r.Wrote = nil }()
	if result := g.once(name); !did || result.Next != g.r.Timing.Poll {
		g.t.Errorf("%s %s: did %v, %+v", kind, object, did, result)
	}
}

// Each write holds only for what was looked at when it was decided (a second operator that thinks it leads, a tenant, an administrator): an
// object that was changed or replaced meanwhile is looked at again first.
func TestEachWriteIsOnWhatWasSeen(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns, name := g.tenant(), "seen"
	g.storage(name, toTenant(ns, ""))
	g.sync(name)
	ctx := t.Context()

	g.patch(name, `{"spec":{"priority":100}}`)
	g.meanwhile(name, "Apply", "Deployment/etcd-"+name, func() {
		patch := []byte(`{"metadata":{"annotations":{"by":"another"}}}`)
		if _, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Patch(ctx, "etcd-"+name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if args := g.args(name); !slices.Contains(args, "--max-in-flight=16") {
		t.Errorf("what somebody else has changed was written over: %v", args)
	}
	g.sync(name)
	if args := g.args(name); !slices.Contains(args, "--max-in-flight=32") {
		t.Errorf("it was not decided again: %v", args)
	}

	merge := func(patch string) {
		must.Do(t, g.admin.Patch(ctx, g.secret(ns, "client"), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	merge(`{"data":{"tls.crt":null}}`)
	g.meanwhile(name, "DeliverClient", "Secret "+ns+"/client", func() { merge(`{"metadata":{"annotations":{"by":"tenant"}}}`) })
	if data := g.secret(ns, "client").Data; len(data["tls.crt"]) > 0 {
		t.Error("what the tenant has changed was written to")
	}
	g.sync(name)
	if s := g.secret(ns, "client"); len(s.Data["tls.crt"]) == 0 || s.Annotations["by"] != "tenant" || s.Annotations[v1alpha1.DeliveredAnnotation] != name+"/"+string(g.get(name).UID) {
		t.Errorf("%v %v", s.Annotations, s.Data)
	}

	g.patch(name, `{"spec":{"networkPolicy":{"enabled":false}}}`)
	policies := g.cluster.Client.NetworkingV1().NetworkPolicies(g.namespace)
	g.meanwhile(name, "Remove", "NetworkPolicy/etcd-"+name, func() {
		must.Do(t, policies.Delete(ctx, "etcd-"+name, metav1.DeleteOptions{}))
		if _, err := policies.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	g.sync(name)
	if _, err := policies.Get(ctx, "etcd-"+name, metav1.GetOptions{}); err != nil {
		t.Errorf("the object that somebody else has put in its place: %v", err)
	}

	s := must.Get(g.r.observe(ctx, name)).Or(t)
	g.patch(name, `{"spec":{"priority":60}}`)
	if err := g.r.writeStatus(ctx, s.object, map[string]any{"observedGeneration": 1}); !apierrors.IsConflict(err) {
		t.Errorf("a status of another generation: %v", err)
	}
	if err := g.r.hold(ctx, s, false); !apierrors.IsConflict(err) {
		t.Errorf("a finalizer of what was changed: %v", err)
	}
}

// greedy makes a Pod as well wherever an object is applied.
type greedy struct {
	client.Client

	said []error
}

// Apply implements client.Writer.
func (c *greedy) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "greedy-", Namespace: "default"}}
	c.said = append(c.said, c.Create(ctx, pod))
	return c.Client.Apply(ctx, o, options...)
}

// What the controller does not declare is not written in its rounds, even where everything is allowed; what it declares is all that it needs.
func TestUndeclaredWritesAreRefused(t *testing.T) {
	t.Parallel()
	g := newStage(t, cluster.New(t, definition(t)))
	c := &greedy{Client: g.r.Client}
	g.r.Client = c
	g.storage("greedy", "{}")
	g.sync("greedy")
	if len(c.said) == 0 || slices.ContainsFunc(c.said, func(err error) bool { return !errors.Is(err, outputs.ErrUndeclared) }) {
		t.Errorf("making Pods: %v", c.said)
	}
	g.expect("greedy", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
}

// The operator shows the core the administrator's certificate where there is one, and the proxies theirs.
func TestTheAdministratorsCertificate(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	theirs := g.secret(g.namespace, "etcd-coreserving-cert").Data
	pair := g.authority.Issue(t, testkit.Leaf{CommonName: "root"})
	data := map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}
	g.r.AdminSecret = "core-admin"
	if c, err := g.r.credentials(t.Context()); err != nil || c.files.Problem == "" {
		t.Errorf("the Secret is missing: %+v %v", c.files, err)
	}
	g.create(secretOf(g.namespace, "core-admin", data))
	c, err := g.r.credentials(t.Context())
	files, proxies := c.files, c.proxyCert
	if err != nil || files.Problem != "" || string(c.Cert) != string(pair.Cert) || string(c.Key) != string(pair.Key) || c.Username != "" || string(proxies) != string(theirs["client.pem"]) ||
		files.Cert != "client.pem" || files.Key != "client-key.pem" || files.CA != "ca.pem" {
		t.Errorf("%+v %v", files, err)
	}
}

// What lies under a prefix that an EtcdStorage did not get is not counted as its own, and a count that finds nothing new writes nothing.
func TestOnlyItsOwnIsCounted(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.put("/uncounted/x", "/counted-below/x")
	g.storage("uncounted", "{}")
	g.storage("counted", "{}")
	g.sync("uncounted")
	g.sync("counted")
	g.put("/counted/a", "/counted/b")
	for range 2 {
		g.measured("uncounted")
		g.measured("counted")
	}
	if u := g.get("uncounted").Status.Usage; u != nil {
		t.Errorf("%+v", u)
	}
	was := g.get("counted")
	if u := was.Status.Usage; u == nil || u.Keys != 2 {
		t.Errorf("%+v", u)
	}
	g.clock.Step(g.r.Timing.Measure)
	g.measured("counted")
	if is := g.get("counted"); is.ResourceVersion != was.ResourceVersion {
		t.Errorf("a count that finds nothing new was written: %+v", is.Status.Usage)
	}
}

func secretOf(namespace, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}
