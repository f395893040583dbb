// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// guarded is a core with authentication on: root is its administrator, and credentials are those of the operator.
type guarded struct {
	etcd        *testkit.Etcd
	root        *clientv3.Client
	credentials Credentials
}

// inVain is how long calls wait that nobody answers.
const inVain = time.Second

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	authority := testkit.NewAuthority(t, "core")
	pair := authority.Issue(t, testkit.Leaf{CommonName: "storage-proxies"})
	config := pair.Client(t, authority)
	etcd := testkit.NewTLSEtcd(t, testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM), config)
	root := etcd.EnableAuth(t, clientv3.Config{TLS: config}, "secret")
	return &guarded{etcd: etcd, root: root, credentials: Credentials{CA: authority.PEM, Cert: pair.Cert, Key: pair.Key, Username: "root", Password: "secret"}}
}

func (g *guarded) dial(t *testing.T, c Credentials) *Client {
	t.Helper()
	out := must.Get(Dial(t.Context(), []string{g.etcd.Endpoint}, c, Patience)).Or(t)
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// A role has the tenant's two ranges and nothing else, a user that role and no other: what more there is is seen as wrong, and taken away;
// what is there is not written again. When the tenant goes, both go, and those of a tenant whose name begins likewise stay.
func TestUserAndRoleAreJustTheTenants(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c, ctx := g.dial(t, g.credentials), t.Context()
	ensure := func(tenant, user string) {
		t.Helper()
		must.Do(t, c.EnsureUser(ctx, tenant, "/"+tenant+"/", user, "p"))
	}
	look := func() operator.Core {
		t.Helper()
		got := c.Observe(ctx, Question{Tenant: "a", Prefix: "/a/", Users: true, CertificateUser: "storage-proxies", Exiting: true})
		if got.Problem != "" {
			t.Fatal(got.Problem)
		}
		return got
	}
	if got := look(); !got.Auth || got.RoleExists || got.RoleReady || len(got.Users) > 0 || got.SharedUser != "" {
		t.Errorf("before: %+v", got)
	}
	ensure("a", "mooring/a/1")
	ensure("ab", "mooring/ab/1")
	ensured := look()
	if !ensured.RoleExists || !ensured.RoleReady || !slices.Equal(ensured.Users, []string{"mooring/a/1"}) || !slices.Equal(ensured.Granted, ensured.Users) {
		t.Errorf("%+v", ensured)
	}
	role, err := g.root.RoleGet(ctx, "mooring/a")
	must.Do(t, err)
	var ranges []string
	for _, p := range role.Perm {
		ranges = append(ranges, p.PermType.String()+" "+string(p.Key)+" "+string(p.RangeEnd))
	}
	slices.Sort(ranges)
	if want := []string{"READWRITE /.etcd.mooring.dev/tenants/a/ /.etcd.mooring.dev/tenants/a0", "READWRITE /a/ /a0"}; !slices.Equal(ranges, want) {
		t.Errorf("%q", ranges)
	}
	before := g.authRevision(t)
	ensure("a", "mooring/a/1")
	if after := g.authRevision(t); after != before {
		t.Errorf("what is there is written again: %d writes", after-before)
	}
	_, err = g.root.RoleAdd(ctx, "greedy")
	_, err2 := g.root.UserGrantRole(ctx, "mooring/a/1", "greedy")
	_, err3 := g.root.RoleGrantPermission(ctx, "mooring/a", "/b/", "/b0", clientv3.PermissionType(clientv3.PermReadWrite))
	must.Do(t, errors.Join(err, err2, err3))
	if got := look(); got.RoleReady || len(got.Granted) > 0 {
		t.Errorf("more than the tenant's: %+v", got)
	}
	ensure("a", "mooring/a/1")
	if got := look(); !got.RoleReady || !slices.Equal(got.Granted, got.Users) {
		t.Errorf("put right: %+v", got)
	}
	_, err = g.root.RoleRevokePermission(ctx, "mooring/a", "/a/", "/a0")
	_, err2 = g.root.RoleGrantPermission(ctx, "mooring/a", "/a/", "/a0", clientv3.PermissionType(clientv3.PermRead))
	must.Do(t, errors.Join(err, err2))
	if got := look(); got.RoleReady {
		t.Error("a range that can only be read passes")
	}
	ensure("a", "mooring/a/1")
	must.Do(t, c.RetireUsers(ctx, "a", []string{"mooring/a/1", "mooring/a/gone"}, false))
	if got := look(); len(got.Users) > 0 || !got.RoleReady {
		t.Errorf("a user is retired: %+v", got)
	}
	must.Do(t, c.RetireUsers(ctx, "a", nil, true))
	must.Do(t, c.RetireUsers(ctx, "a", nil, true))
	if got := look(); got.RoleExists {
		t.Errorf("the tenant goes: %+v", got)
	}
	users := must.Get(g.root.UserList(ctx)).Or(t)
	if want := []string{"mooring/ab/1", "root"}; !slices.Equal(users.Users, want) {
		t.Errorf("%v", users.Users)
	}
}

// authRevision moves with each write about users and roles.
func (g *guarded) authRevision(t *testing.T) uint64 {
	t.Helper()
	status := must.Get(g.root.AuthStatus(t.Context())).Or(t)
	return status.AuthRevision
}

// The certificate that all proxies have must be nobody's in the core.
func TestACertificateThatIsSomebodyIsSeen(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	_, err := g.root.UserAddWithOptions(t.Context(), "storage-proxies", "", &clientv3.UserAddOptions{NoPassword: true})
	must.Do(t, err)
	c := g.dial(t, g.credentials)
	for name, want := range map[string]string{"storage-proxies": "storage-proxies", "": "", "somebody": ""} {
		if got := c.Observe(t.Context(), Question{Tenant: "a", Prefix: "/a/", Users: true, CertificateUser: name}); got.SharedUser != want || got.Problem != "" {
			t.Errorf("%q: %+v", name, got)
		}
	}
	if name := CommonName(g.credentials.Cert); name != "storage-proxies" || CommonName(nil) != "" {
		t.Errorf("%q", name)
	}
}

// What is wrong with the core is one sentence with what to do about it.
func TestProblemsSayWhatToDo(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	question := Question{Tenant: "a", Prefix: "/a/", Users: true}
	nobody := g.credentials
	nobody.Username, nobody.Password = "", ""
	if got := g.dial(t, nobody).Observe(t.Context(), question).Problem; !strings.Contains(got, "put the name and password of an administrator into the Secret of --etcd-core-admin-secret") {
		t.Errorf("nobody: %q", got)
	}
	wrong := g.credentials
	wrong.Password = "other"
	if _, err := Dial(t.Context(), []string{g.etcd.Endpoint}, wrong, Patience); err == nil || err.Error() != "the core etcd refuses the operator's user name or password: correct them in the Secret of --etcd-core-admin-secret" {
		t.Errorf("a wrong password: %v", err)
	}
	root := g.dial(t, g.credentials)
	g.etcd.Kill()
	root.patience = inVain
	want := "the core etcd " + g.etcd.Endpoint + " does not respond within 1s: check whether it runs, whether a network policy blocks it, and whether its certificate"
	if got := root.Observe(t.Context(), question).Problem; !strings.Contains(got, want) {
		t.Errorf("killed: %q", got)
	}
	if _, err := Dial(t.Context(), []string{g.etcd.Endpoint}, g.credentials, inVain); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("killed before the login: %v", err)
	}
}

// A handshake that fails is told as such, although calls wait for it until their time is over.
func TestTLSThatFails(t *testing.T) {
	t.Parallel()
	authority, other := testkit.NewAuthority(t, "core"), testkit.NewAuthority(t, "other")
	mine, theirs := authority.Issue(t, testkit.Leaf{CommonName: "operator"}), other.Issue(t, testkit.Leaf{CommonName: "operator"})
	etcd := testkit.NewTLSEtcd(t, testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM), mine.Client(t, authority))
	question := Question{Tenant: "a", Prefix: "/a/"}
	const patience = 2 * inVain // the call waits in vain, and the handshake that tells why must end
	for want, credentials := range map[string]Credentials{
		"x509: certificate signed by unknown authority": {CA: other.PEM, Cert: mine.Cert, Key: mine.Key},
		"remote error: tls: ":                           {CA: authority.PEM, Cert: theirs.Cert, Key: theirs.Key},
	} {
		client := must.Get(Dial(t.Context(), []string{etcd.Endpoint}, credentials, patience)).Or(t)
		t.Cleanup(func() { _ = client.Close() })
		got := client.Observe(t.Context(), question)
		if !strings.HasPrefix(got.Problem, "TLS with the core etcd "+etcd.Endpoint+" fails: ") || !strings.Contains(got.Problem, want) || !got.Silent {
			t.Errorf("want %q: %+v", want, got)
		}
	}
}

// Whatever of the credentials changes makes another connection necessary.
func TestCredentialsThatDiffer(t *testing.T) {
	t.Parallel()
	all := Credentials{CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key"), Username: "u", Password: "p"}
	if !all.Equal(all) {
		t.Error("they are not equal to themselves")
	}
	for name, change := range map[string]func(*Credentials){
		"CA": func(c *Credentials) { c.CA = nil }, "certificate": func(c *Credentials) { c.Cert = nil }, "key": func(c *Credentials) { c.Key = nil },
		"name": func(c *Credentials) { c.Username = "" }, "password": func(c *Credentials) { c.Password = "" },
	} {
		other := all
		change(&other)
		if all.Equal(other) {
			t.Errorf("another %s passes for the same", name)
		}
	}
	for want, c := range map[string]Credentials{
		"the core's CA bundle holds no certificate in PEM": {CA: []byte("x")}, "the client certificate for the core: ": {CA: testkit.NewAuthority(t, "a").PEM, Cert: []byte("x")},
	} {
		if _, err := Dial(t.Context(), []string{"https://127.0.0.1:1"}, c, Patience); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A claim replaces the records that it names, as they were when it was decided, and takes them away if they were another tenant's.
func TestAClaimReplacesWhatItWasDecidedOn(t *testing.T) {
	t.Parallel()
	c, _ := dial(t)
	ctx := t.Context()
	heir := func(replaces operator.Owner) error {
		_, err := c.Claim(ctx, operator.Claim{Record: operator.Record{Owner: owner("heir", "/a/")}, Replaces: []operator.Owner{replaces}, Revision: see(t, c, "heir", "/a/").Revision})
		return err
	}
	released := func() operator.Owner {
		t.Helper()
		must.Do(t, c.Release(ctx, claimed(t, c, "a", "/a/")))
		return see(t, c, "a", "/a/").Owners[0]
	}
	gone := released()
	must.Do(t, c.Forget(ctx, gone))
	if err := heir(gone); !errors.Is(err, ErrConflict) {
		t.Errorf("the record that it replaces is gone: %v", err)
	}
	must.Do(t, heir(released()))
	if owners := see(t, c, "heir", "/a/").Owners; len(owners) != 1 || owners[0].Tenant != "heir" || owners[0].Released {
		t.Errorf("%+v", owners)
	}
}
