// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// A tenant is a kube-apiserver on a proxied tenant.
type tenant struct {
	*controlplane.APIServer
	name  string
	proxy *tenantproxy.Binary
	seen  *seen
}

// seen is what an informer of ConfigMaps saw: for each, the values of its counter in order.
type seen struct{ events chan string }

func newTenant(t *testing.T, core, name string) *tenant {
	t.Helper()
	proxy := tenantproxy.NewBinary(t, core, "/kubernetes/"+name+"/", name)
	proxy.WaitReady(t)
	return &tenant{name: name, proxy: proxy, APIServer: controlplane.NewAPIServer(t, "http://"+proxy.Address), seen: &seen{events: make(chan string, 10_000)}}
}

// TestTwoAPIServersLiveOnOneCore runs two real kube-apiservers on two tenants of one core while one of the proxies is killed again and again.
func TestTwoAPIServersLiveOnOneCore(t *testing.T) {
	t.Parallel()
	core, _ := tenantproxy.StartEtcd(t, false)
	tenants := []*tenant{newTenant(t, core, "first"), newTenant(t, core, "second")}
	for _, tenant := range tenants {
		tenant.prepare(t)
	}
	rounds := cases.Number(t, 5, 12, 12)
	for round := range rounds {
		for _, tenant := range tenants {
			tenant.write(t, round)
		}
		if round%3 == 1 {
			tenants[0].proxy.Kill()
			tenants[0].proxy.Start(t)
		}
	}
	for n, tenant := range tenants {
		tenant.check(t, rounds)
		tenant.knowsNothingOf(t, tenants[1-n].name)
	}
	leased(t, core)
}

const namespace = "fidelity"

// prepare makes a namespace and watches its ConfigMaps.
func (s *tenant) prepare(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "a namespace", func() string {
		_, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
	source := cache.NewListWatchFromClient(s.Client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())
	note := func(what string, object any) {
		if tomb, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tomb.Obj
		}
		if m, ok := object.(*corev1.ConfigMap); ok && m.Data != nil {
			s.seen.events <- what + " " + m.Name + " " + m.Data["round"]
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { note("added", object) },
			UpdateFunc: func(_, object any) { note("updated", object) },
			DeleteFunc: func(object any) { note("deleted", object) },
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go informer.RunWithContext(ctx)
	testkit.Eventually(t, "the informer to have listed", func() string {
		if informer.HasSynced() {
			return ""
		}
		return "it has not"
	})
}

// write counts a ConfigMap up, makes and deletes another, and emits an event, which etcd keeps with a lease. Trouble in between is waited out.
func (s *tenant) write(t *testing.T, round int) {
	t.Helper()
	ctx := t.Context()
	maps := s.Client.CoreV1().ConfigMaps(namespace)
	s.again(t, "counting up", func() error {
		now, err := maps.Get(ctx, "counter", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, configMap(s.name, "counter", round), metav1.CreateOptions{})
			return err
		}
		if err != nil || now.Data["round"] == strconv.Itoa(round) {
			return err
		}
		now.Data["round"] = strconv.Itoa(round)
		_, err = maps.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	name := fmt.Sprintf("round-%02d", round)
	s.again(t, "creating", func() error {
		_, err := maps.Create(ctx, configMap(s.name, name, round), metav1.CreateOptions{})
		return ignore(err, apierrors.IsAlreadyExists)
	})
	if round%2 == 0 {
		s.again(t, "deleting", func() error { return ignore(maps.Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound) })
	}
	s.again(t, "writing an event", func() error {
		_, err := s.Client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, InvolvedObject: corev1.ObjectReference{Namespace: namespace, Name: "counter", Kind: "ConfigMap"},
			Reason: "Round", Message: s.name, Type: corev1.EventTypeNormal,
		}, metav1.CreateOptions{})
		return ignore(err, apierrors.IsAlreadyExists)
	})
}

func configMap(tenant, name string, round int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"tenant": tenant, "round": strconv.Itoa(round)}}
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}

func (s *tenant) again(t *testing.T, what string, try func() error) {
	t.Helper()
	testkit.Eventually(t, what, func() string {
		if err := try(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// check compares what there is, and what the informer saw, with what was written.
func (s *tenant) check(t *testing.T, rounds int) {
	t.Helper()
	list := must.Get(s.Client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})).Or(t)
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
		if m.Data["tenant"] != s.name {
			t.Errorf("%s has a ConfigMap of %s", s.name, m.Data["tenant"])
		}
	}
	want := []string{"counter"}
	left := map[string]bool{}
	for round := range rounds {
		for _, event := range []string{"counter " + strconv.Itoa(round), fmt.Sprintf("round-%02d %d", round, round)} {
			left["added "+event] = true
		}
		if round%2 == 1 {
			want = append(want, fmt.Sprintf("round-%02d", round))
		} else {
			left[fmt.Sprintf("deleted round-%02d %d", round, round)] = true
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s has %q, want %q", s.name, names, want)
	}
	counted := map[string]int{}
	testkit.Eventually(t, "the informer to have seen everything", func() string {
		for {
			select {
			case event := <-s.seen.events:
				event = strings.Replace(event, "updated ", "added ", 1)
				counted[event]++
				delete(left, event)
				continue
			default:
			}
			break
		}
		if len(left) > 0 {
			return fmt.Sprintf("%s misses %q", s.name, slices.Sorted(maps.Keys(left)))
		}
		return ""
	})
	for event, n := range counted {
		if n > 1 {
			t.Errorf("%s saw %q %d times", s.name, event, n)
		}
	}
}

// knowsNothingOf looks for another tenant's name everywhere.
func (s *tenant) knowsNothingOf(t *testing.T, other string) {
	t.Helper()
	client := tenantproxy.Dial(t, s.proxy.Address)
	all := must.Get(client.Get(t.Context(), "\x00", clientv3.WithFromKey())).Or(t)
	if len(all.Kvs) < 50 {
		t.Errorf("%s has %d keys only", s.name, len(all.Kvs))
	}
	for _, kv := range all.Kvs {
		if strings.HasPrefix(string(kv.Key), "/kubernetes/") || strings.Contains(string(kv.Value), other) {
			t.Errorf("%s sees %q", s.name, kv.Key)
		}
	}
}

// leased checks in the core that the events of both have leases, each its own.
func leased(t *testing.T, core string) {
	t.Helper()
	client := tenantproxy.Dial(t, core)
	byTenant := map[string]map[int64]bool{}
	for _, name := range []string{"first", "second"} {
		events := must.Get(client.Get(t.Context(), "/kubernetes/"+name+"//registry/events/", clientv3.WithPrefix())).Or(t)
		byTenant[name] = map[int64]bool{}
		for _, kv := range events.Kvs {
			byTenant[name][kv.Lease] = true
			if kv.Lease == 0 {
				t.Errorf("%s has no lease", kv.Key)
			}
		}
		if len(events.Kvs) == 0 {
			t.Errorf("%s has no events", name)
		}
	}
	for lease := range byTenant["first"] {
		if byTenant["second"][lease] {
			t.Errorf("both tenants use the lease %x", lease)
		}
	}
}
