// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"crypto/tls"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// NewTLSEtcd returns an etcd of its own, not shared with other tests, that serves TLS with the folder's pair and wants client certificates of the
// folder's bundle. It reads the pair at each handshake and the bundle only once, as etcd does. Client uses config. More flags may follow.
func NewTLSEtcd(tb testing.TB, files TLSFolder, config *tls.Config, flags ...string) *Etcd {
	tb.Helper()
	binary := Binary(tb, "lab")
	shared.mu.Lock()
	e := &Etcd{
		binary: binary, folder: Folder(tb, "etcd-tls-"),
		flags: append(files.flags(), flags...),
	}
	shared.mu.Unlock()
	e.start(tb, "https://"+FreeAddress(tb))
	tb.Cleanup(func() { e.process.Stop() })
	e.Client = e.Connect(tb, clientv3.Config{TLS: config})
	return e
}

// LendTLSEtcd returns an empty etcd that serves TLS and that no other test uses meanwhile, with the authority of its clients' certificates, which all of a
// package have in common. Client shows one for this name. A password costs little to hash.
func LendTLSEtcd(tb testing.TB, name string) (*Etcd, *Authority) {
	tb.Helper()
	binary := Binary(tb, "lab")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	pool := &shared.tls
	if pool.authority == nil {
		pool.authority = NewAuthority(tb, "core")
	}
	if n := len(pool.etcds); n > 0 {
		e := pool.etcds[n-1]
		pool.etcds = pool.etcds[:n-1]
		e.lend(tb, &pool.etcds)
		return e, pool.authority
	}
	files := TLSFolder(Folder(tb, "etcd-lent-tls-"))
	files.PutPair(tb, pool.authority.Issue(tb, Leaf{}))
	files.Put(tb, "ca.crt", pool.authority.PEM)
	e := &Etcd{binary: binary, folder: Folder(tb, "etcd-lent-"), flags: append(files.flags(), "--bcrypt-cost=4")}
	e.start(tb, "https://"+FreeAddress(tb))
	config := clientv3.Config{TLS: pool.authority.Issue(tb, Leaf{CommonName: name}).Client(tb, pool.authority)}
	config.Endpoints, config.DialTimeout, config.Logger = []string{e.Endpoint}, loginPatience, zap.NewNop()
	e.Client = must.Get(clientv3.New(config)).Or(tb)
	e.stopAtEnd()
	e.lend(tb, &pool.etcds)
	return e, pool.authority
}

// NewEtcdWith returns an etcd of its own without TLS, not shared with other tests, that is started with more flags.
func NewEtcdWith(tb testing.TB, flags ...string) *Etcd {
	tb.Helper()
	binary := Binary(tb, "lab")
	shared.mu.Lock()
	e := &Etcd{binary: binary, folder: Folder(tb, "etcd-with-"), flags: flags}
	shared.mu.Unlock()
	e.start(tb, "http://"+FreeAddress(tb))
	tb.Cleanup(func() { e.process.Stop() })
	e.Client = e.Connect(tb, clientv3.Config{})
	return e
}

// loginPatience bounds a login, which costs etcd much computing by intention: on a machine that is busy with other tests it takes tens of seconds. Only a
// hang exceeds it.
const loginPatience = 2 * time.Minute

// Connect returns another client, as config says; endpoints, time-outs and logger are filled in.
func (e *Etcd) Connect(tb testing.TB, config clientv3.Config) *clientv3.Client {
	tb.Helper()
	config.Endpoints, config.DialTimeout, config.Logger = []string{e.Endpoint}, loginPatience, zap.NewNop()
	client := must.Get(clientv3.New(config)).Or(tb)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Grant is an etcd user with the keys it may read and write.
type Grant struct {
	// User is also the name of the role. A certificate with this common name is this user.
	User string
	// Password may be empty: then only a certificate logs in.
	Password string
	// Prefixes are the ranges [prefix, end of prefix).
	Prefixes []string
}

// EnableAuth makes the users and a root user with this password, and turns authentication on. Client is of no use afterwards; a client of root is
// returned.
func (e *Etcd) EnableAuth(tb testing.TB, config clientv3.Config, rootPassword string, grants ...Grant) *clientv3.Client {
	tb.Helper()
	ctx := tb.Context()
	must := func(_ any, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	auth := clientv3.NewAuth(e.Client)
	must(auth.RoleAdd(ctx, "root"))
	must(auth.UserAdd(ctx, "root", rootPassword))
	must(auth.UserGrantRole(ctx, "root", "root"))
	for _, g := range grants {
		must(auth.UserAddWithOptions(ctx, g.User, g.Password, &clientv3.UserAddOptions{NoPassword: g.Password == ""}))
		must(auth.RoleAdd(ctx, g.User))
		must(auth.UserGrantRole(ctx, g.User, g.User))
		for _, prefix := range g.Prefixes {
			must(auth.RoleGrantPermission(ctx, g.User, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
		}
	}
	must(auth.AuthEnable(ctx))
	config.Username, config.Password = "root", rootPassword
	return e.Connect(tb, config)
}

// Pause stops etcd as SIGSTOP does, under which it keeps its connections and answers nothing, and returns when each of its threads has stopped.
func (e *Etcd) Pause(tb testing.TB) {
	tb.Helper()
	PauseProcess(tb, e.process.PID())
}

// Resume ends a Pause.
func (e *Etcd) Resume() { e.process.Signal(syscall.SIGCONT) }
