// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// grantLease makes a lease with an ID and attaches a key to it.
func (g *stage) grantLease(id int64, key string) {
	g.t.Helper()
	lease := etcdserverpb.NewLeaseClient(g.root.ActiveConnection())
	must.Get(lease.LeaseGrant(g.t.Context(), &etcdserverpb.LeaseGrantRequest{TTL: 600, ID: id})).Or(g.t)
	must.Get(g.root.Put(g.t.Context(), key, "x", clientv3.WithLease(clientv3.LeaseID(id)))).Or(g.t)
}

// enableAuth turns authentication on in the core, and gives the operator alone the administrator's password.
func (g *stage) enableAuth() {
	g.t.Helper()
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "storage-proxies"})
	g.root = g.etcd.EnableAuth(g.t, clientv3.Config{TLS: pair.Client(g.t, g.authority)}, "secret")
	g.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "core-admin", Namespace: g.namespace},
		Data: map[string][]byte{"username": []byte("root"), "password": []byte("secret")}})
	g.r.AdminSecret = "core-admin"
}

func (g *stage) newAuthOperator() {
	g.t.Helper()
	g.r = g.newOperator()
	g.r.AdminSecret = "core-admin"
}

// coreUser is a client of the core by the user that the proxies of the tenant use.
func (g *stage) coreUser(name string) *clientv3.Client {
	g.t.Helper()
	user, key := "", ""
	for _, arg := range g.args(name) {
		if value, ok := strings.CutPrefix(arg, "--core-username="); ok {
			user = value
		}
		if value, ok := strings.CutPrefix(arg, "--core-password-file=/etc/etcd-storage/core-user/"); ok {
			key = value
		}
	}
	password := g.secret(g.namespace, name+"-core-user").Data[key]
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "storage-proxies"})
	return g.etcd.Connect(g.t, clientv3.Config{TLS: pair.Client(g.t, g.authority), Username: user, Password: string(password)})
}

// With authentication on each tenant has a user that may do no more than the tenant; it is replaced by another without a moment without one; and a
// certificate that would be somebody in the core keeps proxies from being made.
func TestEachTenantHasAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.enableAuth()
	ns := g.tenant()
	name := "authed"
	g.storage(name, toTenant(ns, ", deletionPolicy: Delete"))
	for deaths := 0; ; deaths++ { // die after each write, here too
		g.newAuthOperator()
		if !g.diedAfterOne(name) {
			break
		}
	}
	proxied := g.startProxy(name, ns)
	must.Get(proxied.Put(t.Context(), "hello", "world")).Or(t)
	user := g.coreUser(name)
	for key, allowed := range map[string]bool{
		"/authed/x": true, operator.SystemPrefix(name) + "x": true, "/authed0": false, "/other/x": false, "/authed": false, operator.OwnersPrefix + name: false,
		operator.SystemPrefix("authed2") + "x": false,
	} {
		if _, err := user.Get(t.Context(), key); (err == nil) != allowed || err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s: %v", key, err)
		}
	}
	before := g.state(name, ns)
	g.sync(name)
	if after := g.state(name, ns); after != before {
		t.Errorf("a second look writes:\n%s\n%s", before, after)
	}
	g.rotateUser(t, name, user)
	g.delete(name)
	if users := g.users(); !g.gone(name) || !slices.Equal(users, []string{"root"}) {
		t.Errorf("users %v", users)
	}
}

// diedAfterOne is one round that dies after its first write.
func (g *stage) diedAfterOne(name string) (died bool) {
	g.t.Helper()
	g.r.Wrote = func(_ operator.Step, done bool) {
		if done {
			panic(cluster.ErrDead)
		}
	}
	defer func() {
		g.r.Wrote = nil
		if p := recover(); p != nil {
			died = true
		}
	}()
	g.once(name)
	return false
}

func (g *stage) users() []string {
	g.t.Helper()
	answer := must.Get(g.root.UserList(g.t.Context())).Or(g.t)
	return answer.Users
}

// rotateUser lets the user's time come: the old one works until all proxies have the new one.
func (g *stage) rotateUser(t *testing.T, name string, old *clientv3.Client) {
	t.Helper()
	g.deployed(name)
	g.clock.Step(721 * time.Hour)
	g.sync(name)
	if users := g.users(); !slices.Equal(users, []string{"mooring/authed/1", "mooring/authed/2", "root"}) {
		t.Errorf("users %v", users)
	}
	for _, c := range []*clientv3.Client{old, g.coreUser(name)} {
		if _, err := c.Get(t.Context(), "/authed/x"); err != nil {
			t.Error(err)
		}
	}
	g.deployed(name) // all proxies are of the new template
	g.sync(name)
	if users := g.users(); !slices.Equal(users, []string{"mooring/authed/2", "root"}) {
		t.Errorf("users %v", users)
	}
	if _, found := g.secret(g.namespace, name+"-core-user").Data["password-1"]; found {
		t.Error("the password of the user that is gone is still there")
	}
	if _, err := g.coreUser(name).Get(t.Context(), "/authed/x"); err != nil {
		t.Error(err)
	}
}

// What is wrong with the core's credentials is said in a sentence, and nothing is deployed meanwhile.
func TestTheCoresCredentials(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.storage("creds", "{}")
	data := g.secret(g.namespace, "etcd-coreserving-cert").Data
	g.setSecret("etcd-coreserving-cert", map[string][]byte{"x": nil})
	g.sync("creds")
	g.expect("creds", v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreCredentials",
		"Secret "+g.namespace+"/etcd-coreserving-cert with the core's credentials is missing, or has none of the keys tls.crt, client.pem")
	g.setSecret("etcd-coreserving-cert", map[string][]byte{"tls.crt": data["client.pem"], "tls.key": data["client-key.pem"]})
	g.enableAuth()
	g.r.AdminSecret = ""
	g.sync("creds")
	g.expect("creds", v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "the core etcd has authentication enabled, and the operator may not read users")
	g.r.AdminSecret = "core-admin"
	if _, err := g.root.UserAddWithOptions(context.Background(), "storage-proxies", "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
		t.Fatal(err)
	}
	g.sync("creds")
	g.expect("creds", v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "SharedCoreUser", `the certificate in Secret etcd-coreserving-cert is that of etcd user "storage-proxies"`)
	if strings.Contains(g.state("creds"), "etcd-creds") {
		t.Error("it was deployed")
	}
	must.Get(g.root.UserDelete(t.Context(), "storage-proxies")).Or(t)
	g.sync("creds")
	g.expect("creds", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	if args := g.args("creds"); !slices.Contains(args, "--core-username=mooring/creds/1") || !slices.Contains(args, "--core-cert-file=/etc/etcd-storage/core-client/tls.crt") ||
		!slices.Contains(args, "--core-ca-file=/etc/etcd-storage/core-ca/ca.pem") {
		t.Errorf("%v", args)
	}
}

func (g *stage) setSecret(name string, data map[string][]byte) {
	g.t.Helper()
	s := g.secret(g.namespace, name)
	s.Data = data
	must.Do(g.t, g.admin.Update(g.t.Context(), s, &client.UpdateOptions{}))
}
