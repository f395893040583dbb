// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestAPIServerOnARestoredCore restores the core beneath a kube-apiserver and a client with an informer, in four ways. Nothing is restarted: the proxy raises
// the revisions, and the API server and the informer list again. Afterwards lists from etcd and from the cache and the informer have what the backup had, an
// update of an object from before the restore is a conflict, writes succeed within the quota, and a watch from the list brings them.
func TestAPIServerOnARestoredCore(t *testing.T) {
	t.Parallel()
	bump := []string{"--bump-revision=1000000000", "--mark-compacted"}
	const token = "--initial-cluster-token=restored"
	for name, flags := range map[string][]string{
		"same ID": nil, "new ID": {token}, "bumped": bump, "bumped, new ID": append(slices.Clone(bump), token),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := testkit.NewEtcdWith(t)
			proxy := tenantproxy.NewBinary(t, core.Endpoint, "/kubernetes/restored/", "restored", "--quota-keys=4500")
			proxy.WaitReady(t)
			s := &restored{t: t, APIServer: controlplane.NewAPIServer(t, "http://"+proxy.Address)}
			s.create("kept-1", "kept-2", "deleted")
			informer := s.inform()
			backup := core.Backup(t)
			s.create("lost-1", "lost-2")
			must.Do(t, s.Client.CoreV1().ConfigMaps("default").Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
			s.expect("kept-1", "kept-2", "lost-1", "lost-2")
			fill(t, proxy.Address, "lost")
			lost := must.Get(s.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept-1", metav1.GetOptions{})).Or(t)
			lost.Data = map[string]string{"lost": "yes"}
			lost = must.Get(s.Client.CoreV1().ConfigMaps("default").Update(t.Context(), lost, metav1.UpdateOptions{})).Or(t)
			s.informed(informer, "kept-1", "kept-2", "lost-1", "lost-2")

			core.Restore(t, backup, flags...)
			from := s.expect("deleted", "kept-1", "kept-2")
			s.informed(informer, "deleted", "kept-1", "kept-2")
			if _, err := s.Client.CoreV1().ConfigMaps("default").Update(t.Context(), lost, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update of an object that is lost: %v", err)
			}
			s.beyond(proxy.Address)
			fill(t, proxy.Address, "after") // there is room for it, since what was written before is lost
			s.create("after-1", "after-2")
			s.watched(from, "after-1", "after-2")
			s.expect("after-1", "after-2", "deleted", "kept-1", "kept-2")
			s.informed(informer, "after-1", "after-2", "deleted", "kept-1", "kept-2")
		})
	}
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

// restored is a kube-apiserver with ConfigMaps in namespace default.
type restored struct {
	*controlplane.APIServer
	t *testing.T
}

// beyond writes one key until the core is beyond any revision that was lost.
func (s *restored) beyond(proxy string) {
	s.t.Helper()
	client := tenantproxy.Dial(s.t, proxy)
	for range 100 {
		testkit.Eventually(s.t, "a put", func() string {
			if _, err := client.Put(s.t.Context(), "/filler/again", "x"); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// create creates ConfigMaps, waiting for the API server where it has just lost its etcd.
func (s *restored) create(names ...string) {
	s.t.Helper()
	for _, name := range names {
		testkit.Eventually(s.t, "ConfigMap "+name, func() string {
			_, err := s.Client.CoreV1().ConfigMaps("default").Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err.Error()
			}
			return ""
		})
	}
}

// inform returns an informer of the ConfigMaps.
func (s *restored) inform() cache.Store {
	s.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(s.t.Context().Done())
	s.t.Cleanup(factory.Shutdown)
	return informer.GetStore()
}

// informed waits until an informer has these ConfigMaps and no others, each as the API server has it.
func (s *restored) informed(store cache.Store, names ...string) {
	s.t.Helper()
	testkit.Eventually(s.t, "the informer", func() string {
		var want, got []string
		list, err := s.Client.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, item := range list.Items {
			if item.Name != "kube-root-ca.crt" {
				want = append(want, item.Name+"@"+item.ResourceVersion)
			}
		}
		for _, o := range store.List() {
			if item, ok := o.(*corev1.ConfigMap); ok && item.Name != "kube-root-ca.crt" {
				got = append(got, item.Name+"@"+item.ResourceVersion)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || len(got) != len(names) {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		return ""
	})
}

// expect waits until lists from etcd and from the cache have these ConfigMaps and no others, and returns the revision of the former.
func (s *restored) expect(names ...string) (revision string) {
	s.t.Helper()
	for _, at := range []string{"0", ""} {
		testkit.Eventually(s.t, "the ConfigMaps", func() string {
			list, err := s.Client.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{ResourceVersion: at})
			if err != nil {
				return err.Error()
			}
			revision = list.ResourceVersion
			var got []string
			for _, item := range list.Items {
				if item.Name != "kube-root-ca.crt" {
					got = append(got, item.Name)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, names) {
				return fmt.Sprintf("%v, want %v", got, names)
			}
			return ""
		})
	}
	return revision
}

// watched reads the creation of these ConfigMaps from a watch that begins at a revision.
func (s *restored) watched(from string, names ...string) {
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
