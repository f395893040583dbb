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

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestAPIServerOnARestoredCore restores the core beneath a kube-apiserver, in four ways. The proxy is never restarted. With bumped revisions the API server is not
// either: it lists again; without, it is restarted, as the runbook says. Afterwards lists from etcd and from the cache have what the backup had, writes succeed
// within the quota, and a watch from the list brings them.
func TestAPIServerOnARestoredCore(t *testing.T) {
	t.Parallel()
	bump := []string{"--bump-revision=1000000000", "--mark-compacted"}
	const token = "--initial-cluster-token=restored"
	for name, c := range map[string]struct {
		flags   []string
		restart bool
	}{
		"same ID": {nil, true}, "new ID": {[]string{token}, true}, "bumped": {bump, false}, "bumped, new ID": {append(slices.Clone(bump), token), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := testkit.NewEtcdWith(t)
			proxy := tenantproxy.NewBinary(t, core.Endpoint, "/kubernetes/restored/", "restored", "--quota-keys=4500")
			proxy.WaitReady(t)
			url := "http://" + proxy.Address
			s := &restored{t: t, APIServer: controlplane.NewAPIServer(t, url)}
			s.create("kept-1", "kept-2", "deleted")
			backup := core.Backup(t)
			s.create("lost-1", "lost-2")
			must.Do(t, s.Client.CoreV1().ConfigMaps("default").Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
			s.expect("kept-1", "kept-2", "lost-1", "lost-2")
			fill(t, proxy.Address, "lost")

			if c.restart {
				s.Kill()
			}
			core.Restore(t, backup, c.flags...)
			if c.restart {
				s.APIServer = controlplane.NewAPIServer(t, url)
			}
			from := s.expect("deleted", "kept-1", "kept-2")
			s.beyond(proxy.Address)
			fill(t, proxy.Address, "after") // there is room for it, since what was written before is lost
			s.create("after-1", "after-2")
			s.watched(from, "after-1", "after-2")
			s.expect("after-1", "after-2", "deleted", "kept-1", "kept-2")
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
