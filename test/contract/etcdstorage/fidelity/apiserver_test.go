// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestTwoAPIServersLiveOnOneCore runs two real kube-apiservers with informers on two tenants of one core, while one of the proxies is killed again and again;
// neither knows of the other. Then the core is restored beneath them, in four ways, of which a change tries one (all are tried by
// internal/etcdstorage/proxy.TestRestoredCoreModel).
func TestTwoAPIServersLiveOnOneCore(t *testing.T) {
	t.Parallel()
	bump := []string{"--bump-revision=1000000000", "--mark-compacted"}
	const token = "--initial-cluster-token=restored"
	ways := map[string][]string{"same ID": nil, "new ID": {token}, "bumped": bump, "bumped, new ID": append(slices.Clone(bump), token)}
	for _, name := range cases.Sample(t, 1, slices.Sorted(maps.Keys(ways))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := testkit.NewEtcdWith(t)
			tenants := []*tenant{newTenant(t, core, "first"), newTenant(t, core, "second")}
			for round := range cases.Number(t, 5, 12, 12) {
				for _, tenant := range tenants {
					tenant.write(round)
				}
				if round%3 == 1 {
					tenants[0].proxy.Kill()
					tenants[0].proxy.Start(t)
				}
			}
			for n, tenant := range tenants {
				tenant.expect()
				tenant.informed()
				tenant.knowsNothingOf(tenants[1-n].name)
			}
			leased(t, core)
			tenants[0].restored(core, ways[name])
		})
	}
}

// A tenant is a kube-apiserver on a proxied tenant, with an informer of the ConfigMaps in namespace default.
type tenant struct {
	*controlplane.APIServer
	t        *testing.T
	name     string
	proxy    *tenantproxy.Binary
	informer cache.Store
	has      map[string]bool // the ConfigMaps that there must be
}

func newTenant(t *testing.T, core *testkit.Etcd, name string) *tenant {
	t.Helper()
	proxy := tenantproxy.NewBinary(t, core.Endpoint, "/kubernetes/"+name+"/", name, "--quota-keys=4500")
	proxy.WaitReady(t)
	s := &tenant{t: t, name: name, proxy: proxy, APIServer: controlplane.NewAPIServer(t, "http://"+proxy.Address), has: map[string]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace("default"))
	s.informer = factory.Core().V1().ConfigMaps().Informer().GetStore()
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return s
}

// write makes a ConfigMap, deletes every second one, and emits an event, which etcd keeps with a lease. Trouble in between is waited out.
func (s *tenant) write(round int) {
	s.t.Helper()
	name := fmt.Sprintf("round-%02d", round)
	s.create(name)
	if round%2 == 0 {
		s.delete(name)
	}
	s.again("an event", apierrors.IsAlreadyExists, func() error {
		_, err := s.Client.CoreV1().Events("default").Create(s.t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: name, Kind: "ConfigMap"},
			Reason: "Round", Message: s.name, Type: corev1.EventTypeNormal,
		}, metav1.CreateOptions{})
		return err
	})
}

// restored restores the core beneath the tenant. Nothing is restarted: the proxy raises the revisions, and the API server and the informer list again.
// Afterwards lists from etcd and from the cache and the informer have what the backup had, an update of an object from before the restore is a conflict,
// writes succeed within the quota, and a watch from the list brings them.
func (s *tenant) restored(core *testkit.Etcd, flags []string) {
	s.t.Helper()
	s.create("kept", "deleted")
	s.informed()
	backup, had := core.Backup(s.t), maps.Clone(s.has)
	s.create("lost")
	s.delete("deleted")
	s.expect()
	fill(s.t, s.proxy.Address, "lost")
	configMaps := s.Client.CoreV1().ConfigMaps("default")
	lost := must.Get(configMaps.Get(s.t.Context(), "kept", metav1.GetOptions{})).Or(s.t)
	lost.Data = map[string]string{"lost": "yes"}
	lost = must.Get(configMaps.Update(s.t.Context(), lost, metav1.UpdateOptions{})).Or(s.t)
	s.informed()
	core.Restore(s.t, backup, flags...)
	s.has = had
	from := s.expect()
	s.informed()
	if _, err := configMaps.Update(s.t.Context(), lost, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		s.t.Errorf("an update of an object that is lost: %v", err)
	}
	fill(s.t, s.proxy.Address, "after") // there is room for it, since what was written before is lost
	s.create("after-1", "after-2")
	s.watched(from, "after-1", "after-2")
	s.expect()
	s.informed()
}

// fill writes 3,000 keys of a tenant.
func fill(t *testing.T, proxy, name string) {
	t.Helper()
	client := tenantproxy.Dial(t, proxy)
	for page := range 30 {
		var puts []clientv3.Op
		for i := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/filler/%s/%d-%d", name, page, i), "x"))
		}
		testkit.Eventually(t, "room for keys", func() string {
			if _, err := client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// again tries until it succeeds, or fails in a way that is as good.
func (s *tenant) again(what string, good func(error) bool, try func() error) {
	s.t.Helper()
	testkit.Eventually(s.t, what, func() string {
		if err := try(); err != nil && !good(err) {
			return err.Error()
		}
		return ""
	})
}

func (s *tenant) create(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.again("ConfigMap "+name, apierrors.IsAlreadyExists, func() error {
			_, err := s.Client.CoreV1().ConfigMaps("default").Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
		s.has[name] = true
	}
}

func (s *tenant) delete(name string) {
	s.t.Helper()
	s.again("the end of "+name, apierrors.IsNotFound, func() error {
		return s.Client.CoreV1().ConfigMaps("default").Delete(s.t.Context(), name, metav1.DeleteOptions{})
	})
	delete(s.has, name)
}

// others are the ConfigMaps that kube-apiserver does not make itself.
func others(items []*corev1.ConfigMap) (names, versions []string) {
	for _, item := range items {
		if item.Name != "kube-root-ca.crt" {
			names, versions = append(names, item.Name), append(versions, item.Name+"@"+item.ResourceVersion)
		}
	}
	slices.Sort(names)
	slices.Sort(versions)
	return names, versions
}

// informed waits until the informer has the ConfigMaps that there must be, each as the API server has it.
func (s *tenant) informed() {
	s.t.Helper()
	testkit.Eventually(s.t, "the informer of "+s.name, func() string {
		list, err := s.Client.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var all, known []*corev1.ConfigMap
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		for _, o := range s.informer.List() {
			if item, ok := o.(*corev1.ConfigMap); ok {
				known = append(known, item)
			}
		}
		_, want := others(all)
		if _, got := others(known); !slices.Equal(got, want) || len(got) != len(s.has) {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		return ""
	})
}

// expect waits until lists from etcd and from the cache have the ConfigMaps that there must be and no others, and returns the revision of the former.
func (s *tenant) expect() (revision string) {
	s.t.Helper()
	want := slices.Sorted(maps.Keys(s.has))
	for _, at := range []string{"0", ""} {
		testkit.Eventually(s.t, "the ConfigMaps of "+s.name, func() string {
			list, err := s.Client.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{ResourceVersion: at})
			if err != nil {
				return err.Error()
			}
			revision = list.ResourceVersion
			var all []*corev1.ConfigMap
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			if got, _ := others(all); !slices.Equal(got, want) {
				return fmt.Sprintf("%v, want %v", got, want)
			}
			return ""
		})
	}
	return revision
}

// watched reads the creation of these ConfigMaps from a watch that begins at a revision.
func (s *tenant) watched(from string, names ...string) {
	s.t.Helper()
	w, err := s.Client.CoreV1().ConfigMaps("default").Watch(s.t.Context(), metav1.ListOptions{ResourceVersion: from})
	must.Do(s.t, err)
	defer w.Stop()
	for _, name := range names {
		event, open := <-w.ResultChan()
		if o, ok := event.Object.(*corev1.ConfigMap); !open || !ok || o.Name != name {
			s.t.Fatalf("%v %+v, want the creation of %s", event.Type, event.Object, name)
		}
	}
}

// knowsNothingOf looks for another tenant's name everywhere.
func (s *tenant) knowsNothingOf(other string) {
	s.t.Helper()
	t := s.t
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
func leased(t *testing.T, core *testkit.Etcd) {
	t.Helper()
	byTenant := map[string]map[int64]bool{}
	for _, name := range []string{"first", "second"} {
		events := must.Get(core.Client.Get(t.Context(), "/kubernetes/"+name+"//registry/events/", clientv3.WithPrefix())).Or(t)
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
